# SPDX-License-Identifier: Apache-2.0
# What a handler is given: its event, and what it may know of its call. It is run before `function.py`,
# in the same module: names that are not defined here are that one's, or of `json_values.py`. It is a
# part of what `sinew sdk python` writes.

import time

TEXT_TYPES = frozenset(
    ("application/x-www-form-urlencoded", "application/xml", "application/javascript", "application/yaml",
     "application/x-ndjson", "application/graphql", "application/sql")
)  # fmt: skip
FORM = "application/x-www-form-urlencoded"


class Head:
    """A line about the call, and one about its HTTP side, which few handlers look at."""

    __slots__ = ("_http", "call")

    def __init__(self, head):
        # Whoever was called on a line gets the first part as it is, and what makes the second one.
        if type(head) is tuple:
            self.call, self._http = head
            return
        call, _, self._http = head.partition(b"\n")
        self.call = decode_json(call.decode()) if call else {}

    @property
    def http(self):
        if isinstance(self._http, bytes):
            self._http = decode_json(self._http.decode()) if self._http else {}
        elif callable(self._http):
            self._http = self._http()
        return self._http

    @property
    def content_type(self):
        return self.call.get("content_type", "")


def event_of(body, declared):
    """What a handler gets as its event."""
    if not body:
        return {}
    kind, _, parameters = declared.partition(";")
    kind = kind.strip().lower()
    is_json = not kind or kind == "application/json" or kind.endswith("+json")
    # What `curl -d` sends says that it is a form, whatever it is.
    if is_json or (kind == FORM and body[:1] in (b"{", b"[")):
        try:
            return decode_json(body.decode("utf-8-sig" if body[:1] == b"\xef" else "utf-8"))
        except (ValueError, RecursionError):
            pass
    if is_json or kind.startswith("text/") or kind in TEXT_TYPES or kind.endswith("+xml"):
        charset = parameters.lower().partition("charset=")[2].partition(";")[0].strip(' "') or "utf-8"
        try:
            return body.decode(charset)
        except (LookupError, ValueError):
            pass
    return body


def pairs_of(query):
    from urllib.parse import parse_qsl

    try:
        return parse_qsl(query, keep_blank_values=True, max_num_fields=10_000)
    except ValueError:
        return []


class Http:
    """The HTTP side of a request; what costs time is made when asked for."""

    def __init__(self, head):
        self.method = head.get("method", "POST")
        self.scheme = head.get("scheme", "http")
        # The address of who asks; None if nobody does by a network.
        self.client = head.get("client")
        self.path = head.get("path", "/")
        self.query_string = head.get("query", "")
        self.route = head.get("route")
        self.params = dict(head.get("params") or ())
        self._headers = head.get("headers") or ()

    @property
    def query(self):
        """Names and values; of a name that occurs twice the last value."""
        return dict(pairs_of(self.query_string))

    @property
    def headers(self):
        """Lower-case names and values; those of one name are joined by commas."""
        headers = {}
        for name, value in self._headers:
            between = "; " if name == "cookie" else ", "
            headers[name] = headers[name] + between + value if name in headers else value
        return headers


class Context:
    """What a handler may know about its call."""

    def __init__(self, request, head):
        self._head = head
        call = head.call
        request_id = call.get("request_id", "")
        if not request_id and len(request) == 16:
            digits = request.hex()
            request_id = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
        self.request_id = self.aws_request_id = request_id
        self.function_name = call.get("function", "")
        self.function_version = call.get("version", 0)
        self.memory_limit_in_mb = memory_mb  # noqa: F821 - of function.py
        self._deadline_ms = call.get("deadline_ms") or time.time() * 1000 + timeout_ms  # noqa: F821 - of function.py

    def get_remaining_time_in_millis(self):
        return max(0, int(self._deadline_ms - time.time() * 1000))

    @property
    def http(self):
        return Http(self._head.http)

    @property
    def cloud_event(self):
        """The attributes of the CloudEvent that the request is; None if it is none."""
        headers = self._head.http.get("headers") or ()
        headers = {name[3:]: value for name, value in headers if name.startswith("ce-")}
        if "specversion" not in headers:
            return None
        from urllib.parse import unquote

        return {name: unquote(value) for name, value in headers.items()}


