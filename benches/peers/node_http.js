// SPDX-License-Identifier: Apache-2.0
// A plain Node server, clustered: `node node_http.js PORT WORKERS HANDLER.js`.
"use strict";

const cluster = require("node:cluster");
const http = require("node:http");

const [port, workers, file] = process.argv.slice(2);

if (cluster.isPrimary) {
  for (let at = 0; at < Number(workers); at++) cluster.fork();
} else {
  const { handler } = require(file);
  const server = http.createServer((request, response) => {
    const pieces = [];
    request.on("data", (piece) => pieces.push(piece));
    request.on("end", async () => {
      const body = JSON.stringify(await handler(JSON.parse(Buffer.concat(pieces))));
      response.writeHead(200, { "content-type": "application/json", "content-length": Buffer.byteLength(body) });
      response.end(body);
    });
  });
  server.keepAliveTimeout = 0;
  server.listen(Number(port), "127.0.0.1");
}
