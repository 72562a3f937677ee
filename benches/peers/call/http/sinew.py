# SPDX-License-Identifier: Apache-2.0
"""What functions call each other by, over HTTP: on connections that stay open."""

import http.client
import json
import os
import threading

_ports = dict(pair.split("=") for pair in os.environ["PORTS"].split(","))
_kept = threading.local()


def call(name, payload):
    connections = _kept.__dict__.setdefault("connections", {})
    connection = connections.get(name)
    if connection is None:
        connection = connections[name] = http.client.HTTPConnection("127.0.0.1", int(_ports[name]))
        connection.connect()
        connection.sock.setsockopt(6, 1, 1)
    body = json.dumps(payload).encode()
    connection.request("POST", "/", body, {"content-type": "application/json"})
    return json.loads(connection.getresponse().read())
