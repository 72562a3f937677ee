# SPDX-License-Identifier: Apache-2.0
#
# The event of a request by HTTP as Amazon's gateways and function URLs describe
# one to a function (payload format 2.0), for handlers and for adapters of frameworks
# that were written for those. The template has this text before that of
# `function.py`, in one scope; nothing of it runs for functions that did not ask for it.

import binascii
import time

# What is text besides `text/…` and what ends in +json or +xml, if it is in UTF-8; without a type it is taken for JSON.
HTTP_TEXT_TYPES = frozenset(
    ["", "application/json", "application/xml", "application/javascript", "application/graphql"]
)
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def http_event(head, body):
    """The request as a dict of texts, numbers, lists and dicts: it can be written as JSON."""
    http, call = head.http, head.call
    path, query = http.get("path", "/"), http.get("query", "")
    headers, cookies = {}, []
    for name, value in http.get("headers") or ():
        if name == "cookie":
            cookies += [part for part in (part.strip(" \t") for part in value.split(";")) if part]
        else:
            headers[name] = f"{headers[name]},{value}" if name in headers else value
    client, scheme = http.get("client") or "", http.get("scheme", "http")
    domain, _, port = host_of(headers.get("host", ""))
    # What a gateway says of who asks; a proxy that is believed has said so already.
    headers.setdefault("x-forwarded-for", client)
    headers.setdefault("x-forwarded-port", port or ("443" if scheme == "https" else "80"))
    headers.setdefault("x-forwarded-proto", scheme)
    method, route = http.get("method", "POST"), http.get("route")
    now = time.time()
    at = time.gmtime(now)
    key = "$default" if route is None else f"{method} {route}"
    event = {
        "version": "2.0",
        "routeKey": key,
        "rawPath": path,
        "rawQueryString": query,
        "headers": headers,
        "requestContext": {
            "accountId": "anonymous",
            "apiId": call.get("function", ""),
            "domainName": domain,
            "domainPrefix": domain.partition(".")[0],
            "http": {
                "method": method,
                "path": path,
                "protocol": "HTTP/1.1",
                "sourceIp": client,
                "userAgent": headers.get("user-agent", ""),
            },
            "requestId": call.get("request_id", ""),
            "routeKey": key,
            "stage": "$default",
            # Not by the names that the process's language has for months.
            "time": f"{at.tm_mday:02}/{MONTHS[at.tm_mon - 1]}/" + time.strftime("%Y:%H:%M:%S +0000", at),
            "timeEpoch": int(now * 1000),
        },
        "isBase64Encoded": False,
    }
    if cookies:
        event["cookies"] = cookies
    if query:
        event["queryStringParameters"] = query_texts(query)
    if http.get("params"):
        event["pathParameters"] = dict(http["params"])
    if body:
        event["body"] = http_text(body, head.content_type)
        if event["body"] is None:
            event["body"], event["isBase64Encoded"] = binascii.b2a_base64(body, newline=False).decode(), True
    return event


def host_of(host):
    """A host's name, what is between, and its port; an address of version 6 has colons of its own."""
    name, colon, port = host.rpartition(":")
    return (name, colon, port) if port.isdigit() and not name.endswith(":") else (host, "", "")


def query_texts(query):
    """Names and values; those of one name are joined by commas."""
    from urllib.parse import parse_qsl

    texts = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        texts[name] = f"{texts[name]},{value}" if name in texts else value
    return texts


def http_text(body, declared):
    """A body as a text; None if it is none, by its type or by its bytes."""
    kind = declared.partition(";")[0].strip().lower()
    if not (kind.startswith("text/") or kind in HTTP_TEXT_TYPES or kind.endswith(("+json", "+xml"))):
        return None
    try:
        return bytes(body).decode()
    except ValueError:
        return None
