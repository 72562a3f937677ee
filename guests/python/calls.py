# SPDX-License-Identifier: Apache-2.0
# Calls of other functions, as those who make them see them. It is run before `function.py`, in the
# same module: names that are not defined here are that one's, or of `json_values.py`. It is a part of
# what `sinew sdk python` writes.

ERROR_BYTES_SHOWN = 256


class CallError(Exception):
    """What comes of a call of a function that gave no answer, or one with a
    status of 400 and more."""

    def __init__(self, function, status, kind, body):
        problem = problem_of(kind, body)
        self.function, self.status, self.body = function, status, body
        self.component = problem.get("component", "function")
        self.reason = problem.get("detail") or f"it answered with status {status}: {shown(body)}"
        self.request_id = problem.get("request_id", "")
        self.suggestion = problem.get("suggestion", "")
        request = f", request {self.request_id}" if self.request_id else ""
        text = f"calling {function} failed: {self.reason} (component {self.component}{request})"
        super().__init__(f"{text}; {self.suggestion}" if self.suggestion else text)


def problem_of(kind, body):
    if kind != "application/problem+json":
        return {}
    problem = decode_json(body.decode())
    return problem if isinstance(problem, dict) else {}


def shown(body):
    return body[:ERROR_BYTES_SHOWN].decode("utf-8", "replace") + ("…" if len(body) > ERROR_BYTES_SHOWN else "")


def payload_of(payload):
    """Type and body of what a function is called with."""
    if payload is None:
        return "", b""
    if isinstance(payload, str):
        return "text/plain; charset=utf-8", utf8(payload)
    if isinstance(payload, (bytes, bytearray, memoryview)):
        return "application/octet-stream", bytes(payload)
    return "application/json", json_bytes(payload, "the payload")


def returned(kind, body):
    """What a function that was called has returned."""
    if body:
        return event_of(body, kind)
    if kind.startswith("text/"):
        return ""
    return b"" if kind == "application/octet-stream" else None


def call(name, payload=None):
    """Calls the function of a name, and gives what it returns."""
    check_name(name)
    return answered_with(name, *ask(name, *payload_of(payload)))  # noqa: F821 - the template's


async def call_async(name, payload=None):
    """The same for handlers that are coroutines."""
    check_name(name)
    return answered_with(name, *await ask_async(name, *payload_of(payload)))  # noqa: F821 - the template's


def check_name(name):
    if not isinstance(name, str):
        raise TypeError(f"a function is called by its name, a str, not a {kind_name(type(name))}")


def answered_with(name, status, kind, body):
    if status >= 400:
        raise CallError(name, status, kind, body)
    return returned(kind, body)


