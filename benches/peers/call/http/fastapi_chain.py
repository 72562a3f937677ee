# SPDX-License-Identifier: Apache-2.0
"""One of the functions behind FastAPI: `uvicorn fastapi_chain:app`, with FUNCTION
and PORTS in the environment. As those of FastAPI that wait are, the handler is
run by a thread."""

import os
import types

from fastapi import FastAPI
from mapreduce import handler

app = FastAPI()
context = types.SimpleNamespace(function_name=os.environ["FUNCTION"])


@app.post("/")
def call(event: dict):
    return handler(event, context)
