// SPDX-License-Identifier: Apache-2.0
// One of the functions behind a plain Node server of its own, which reaches the
// others by HTTP over connections that stay open:
// `node node_http.js HANDLER.js NAME NAME=PORT…`.
"use strict";

const http = require("node:http");

const [file, functionName, ...others] = process.argv.slice(2);
const ports = Object.fromEntries(others.map((other) => other.split("=")));
const agent = new http.Agent({ keepAlive: true });

globalThis.sinew = {
  call: (name, payload) =>
    new Promise((resolve, reject) => {
      const body = JSON.stringify(payload);
      const headers = { "content-type": "application/json", "content-length": Buffer.byteLength(body) };
      const options = { agent, host: "127.0.0.1", port: ports[name], method: "POST", path: "/", headers };
      const request = http.request(options, (response) => collect(response, (bytes) => resolve(JSON.parse(bytes))));
      request.on("error", reject);
      request.end(body);
    }),
};

const { handler } = require(file);

function collect(stream, then) {
  const pieces = [];
  stream.on("data", (piece) => pieces.push(piece));
  stream.on("end", () => then(Buffer.concat(pieces)));
}

const server = http.createServer((request, response) => {
  collect(request, async (bytes) => {
    const body = JSON.stringify(await handler(JSON.parse(bytes), { functionName }));
    response.writeHead(200, { "content-type": "application/json", "content-length": Buffer.byteLength(body) });
    response.end(body);
  });
});
server.keepAliveTimeout = 0;
server.listen(Number(ports[functionName]), "127.0.0.1");
