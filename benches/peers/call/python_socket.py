# SPDX-License-Identifier: Apache-2.0
"""One of the functions in a process of its own, connected to the others by unix
sockets and nothing else: what a call costs if all that is between two
interpreters is a length and JSON. The first function is asked by HTTP:
`python3 python_socket.py HANDLER.py NAME NAME=PORT…`."""

import http.server
import importlib.util
import json
import os
import socket
import struct
import sys
import threading
import types

file, function_name, *others = sys.argv[1:]
ports = dict(other.split("=") for other in others)
connections = {}


def place(name):
    return os.path.join(os.path.dirname(file), f"{ports[name]}.sock")


def send(stream, value):
    text = json.dumps(value).encode()
    stream.sendall(struct.pack("<I", len(text)) + text)


def receive(stream):
    data = stream.recv(1 << 16)
    while data and (len(data) < 4 or len(data) < 4 + struct.unpack_from("<I", data)[0]):
        data += stream.recv(1 << 16)
    return json.loads(data[4:]) if data else None


def call(name, payload):
    if name not in connections:
        connections[name] = socket.socket(socket.AF_UNIX)
        connections[name].connect(place(name))
    send(connections[name], payload)
    return receive(connections[name])


sys.modules["sinew"] = types.SimpleNamespace(call=call)
spec = importlib.util.spec_from_file_location("handlers", file)
handlers = importlib.util.module_from_spec(spec)
spec.loader.exec_module(handlers)
context = types.SimpleNamespace(function_name=function_name)


def serve():
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(place(function_name))
        listener.listen()
        while True:
            stream, _ = listener.accept()
            while (event := receive(stream)) is not None:
                send(stream, handlers.handler(event, context))


class Door(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        event = json.loads(self.rfile.read(int(self.headers["content-length"])))
        body = json.dumps(handlers.handler(event, context)).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


threading.Thread(target=serve, daemon=True).start()
http.server.HTTPServer(("127.0.0.1", int(ports[function_name])), Door).serve_forever()
