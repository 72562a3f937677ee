// SPDX-License-Identifier: Apache-2.0
// One of the functions in a process of its own, connected to the others by unix
// sockets and nothing else: what a call costs if all that is between two event
// loops is a length and JSON. The first function is asked by HTTP:
// `node node_socket.js HANDLER.js NAME NAME=PORT…`.
"use strict";

const http = require("node:http");
const net = require("node:net");
const path = require("node:path");

const [file, functionName, ...others] = process.argv.slice(2);
const ports = Object.fromEntries(others.map((other) => other.split("=")));
const place = (name) => path.join(path.dirname(file), `${ports[name]}.sock`);
const connections = {};

globalThis.sinew = {
  call: (name, payload) => {
    connections[name] ??= connected(name);
    return connections[name](payload);
  },
};

/** Asks a function, one call after the other. */
function connected(name) {
  let answered;
  const socket = net.connect(place(name));
  messages(socket, (told) => answered(told));
  return (payload) => {
    send(socket, payload);
    return new Promise((resolve) => (answered = resolve));
  };
}

function send(socket, value) {
  const text = JSON.stringify(value);
  const bytes = Buffer.allocUnsafe(4 + Buffer.byteLength(text));
  bytes.writeUInt32LE(bytes.write(text, 4));
  socket.write(bytes);
}

function messages(socket, then) {
  let held = Buffer.alloc(0);
  socket.on("data", (bytes) => {
    held = held.length > 0 ? Buffer.concat([held, bytes]) : bytes;
    while (held.length >= 4 && held.length >= 4 + held.readUInt32LE(0)) {
      const end = 4 + held.readUInt32LE(0);
      const message = JSON.parse(held.toString("utf8", 4, end));
      held = held.subarray(end);
      then(message);
    }
  });
}

const { handler } = require(file);

net.createServer((socket) => {
  messages(socket, async (event) => send(socket, await handler(event, { functionName })));
}).listen(place(functionName));

http.createServer((request, response) => {
  const pieces = [];
  request.on("data", (piece) => pieces.push(piece));
  request.on("end", async () => {
    const told = await handler(JSON.parse(Buffer.concat(pieces)), { functionName });
    const text = JSON.stringify(told);
    response.writeHead(200, { "content-type": "application/json", "content-length": Buffer.byteLength(text) }).end(text);
  });
}).listen(Number(ports[functionName]), "127.0.0.1");
