# SPDX-License-Identifier: Apache-2.0
import json

import sinew
from sinew import function, workflow


def hello(event, context):
    return {"message": f"Hello, {event['name']}"}


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    body = (await receive())["body"]
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    for piece in (b"Hello, ", json.loads(body)["name"].encode()):
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body"})


def calls(event, context):
    return [sinew.call("hello-js", event)["message"] for _ in range(10)]


@function
def next_number(number):
    return number + 1


@function
def numbers(count):
    return list(range(1000, 1000 + count))


@function
def total(lists):
    return sum(map(sum, lists))


@workflow
def steps(event):
    number = 0
    for _ in range(event["steps"]):
        number = next_number(number)
    return number, total([numbers(10_000) for _ in range(event["steps"] // 10)])
