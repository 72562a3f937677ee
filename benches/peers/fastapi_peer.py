# SPDX-License-Identifier: Apache-2.0
"""A FastAPI application around a handler: `uvicorn fastapi_peer:app`, with the
handler's `main.py` on the path."""

from fastapi import FastAPI
from main import handler

app = FastAPI()


@app.post("/")
async def call(event: dict):
    return handler(event, None)
