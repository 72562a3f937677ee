# SPDX-License-Identifier: Apache-2.0
"""A function: what `handler` returns becomes the answer, a dict as JSON."""

import os

# Runs once for each instance, before its first request.
GREETING = os.environ.get("GREETING", "Hello")


def handler(event, context):
    """The event is the request's body, parsed if it is JSON."""
    name = event.get("name", "world") if isinstance(event, dict) else event
    print(f"greeting {name} for request {context.request_id}")
    return {"message": f"{GREETING}, {name}!"}
