// SPDX-License-Identifier: Apache-2.0
//
// Has requests that Node makes itself go through the proxy at
// `SETTINGS.proxy`, a port of 127.0.0.1, which is all the network that a
// container has. It runs before the function, if that may reach hosts.
//
// Every host but the function's own loopback is reached by a tunnel, CONNECT.
// `http` and `https` are told by their agents, so that all packages that are
// built on them follow; `fetch` by its dispatcher, which is made when it is
// first looked at, for loading it takes tens of milliseconds. The versions of
// Node that can do this alone want to be told when they start.
{
  const http = require("node:http");
  const https = require("node:https");
  const net = require("node:net");
  const tls = require("node:tls");

  const PROXY = Number(SETTINGS.proxy);
  const HEAD_BYTES_MAX = 64 << 10;
  const DISPATCHER = Symbol.for("undici.globalDispatcher.1");

  const isOwn = (host) => /^(localhost|\[?::1\]?|127\.0\.0\.1)$/i.test(host ?? "localhost");

  /** Gives a socket to a host through the proxy, paused: done(error, socket). */
  function tunnel(host, port, done) {
    const target = `${net.isIPv6(host) ? `[${host}]` : host}:${port}`;
    const socket = net.connect(PROXY, "127.0.0.1");
    let answer = Buffer.alloc(0);
    const end = (error) => {
      socket.off("data", onData).off("error", end).off("close", onClose);
      if (!error) return done(null, socket);
      socket.on("error", () => {}).destroy();
      done(error);
    };
    const onClose = () => end(new Error(`the proxy closed the connection to ${target}`));
    const onData = (piece) => {
      answer = Buffer.concat([answer, piece]);
      const at = answer.indexOf("\r\n\r\n");
      if (at < 0) return answer.length > HEAD_BYTES_MAX ? end(new Error("the proxy's answer has no end")) : undefined;
      const [, status, reason] = /^HTTP\/1\.1 (\d+) ?([^\r]*)/.exec(answer.toString("latin1")) ?? [];
      if (status !== "200") {
        const code = status === "403" ? "ERR_HOST_NOT_ALLOWED" : "ECONNREFUSED";
        return end(Object.assign(new Error(reason || `no connection to ${target}`), { code }));
      }
      socket.pause();
      if (answer.length > at + 4) socket.unshift(answer.subarray(at + 4));
      return end(null);
    };
    socket.on("data", onData).on("error", end).on("close", onClose);
    socket.write(`CONNECT ${target} HTTP/1.1\r\nHost: ${target}\r\n\r\n`);
  }

  /** The same with TLS inside; `options` are those of tls.connect. */
  function secureTunnel(options, done) {
    const { host } = options;
    tunnel(host, options.port, (error, socket) => {
      if (error) return done(error);
      const servername = options.servername ?? (net.isIP(host) ? "" : host);
      return done(null, tls.connect({ ...options, path: undefined, socket, servername }));
    });
  }

  /** The same for `http`, which does not expect a socket that waits. */
  function plainTunnel({ host, port }, done) {
    tunnel(host, port, (error, socket) => {
      done(error, socket);
      // Whoever listens to it does so from the next tick on.
      if (socket) process.nextTick(() => socket.resume());
    });
  }

  for (const [Agent, open] of [
    [http.Agent, plainTunnel],
    [https.Agent, secureTunnel],
  ]) {
    const direct = Agent.prototype.createConnection;
    Agent.prototype.createConnection = function createConnection(options, done, ...rest) {
      const isOutside = options !== null && typeof options === "object" && !options.socketPath && !isOwn(options.host);
      if (!isOutside || typeof done !== "function") return direct.call(this, options, done, ...rest);
      return open(options, done);
    };
  }

  /** What fetch opens connections with. */
  const connect = ({ hostname, protocol, port, servername }, done) => {
    const host = hostname.replace(/^\[|\]$/g, "");
    const isSecure = protocol === "https:";
    const options = { host, port: Number(port) || (isSecure ? 443 : 80), servername: servername || undefined };
    if (isOwn(host)) {
      const socket = isSecure ? tls.connect(options) : net.connect(options);
      socket.once(isSecure ? "secureConnect" : "connect", () => done(null, socket)).once("error", done);
      return;
    }
    if (!isSecure) return void tunnel(host, options.port, done);
    secureTunnel({ ...options, ALPNProtocols: ["http/1.1"] }, (error, socket) => {
      if (error) return done(error);
      return socket.once("secureConnect", () => done(null, socket)).once("error", done);
    });
  };

  // Those that are built on one dispatcher; looking at one loads it.
  const names = ["fetch", "WebSocket", "EventSource"].filter((name) => name in globalThis);
  const found = names.map((name) => [name, Object.getOwnPropertyDescriptor(globalThis, name)]);
  const install = () => {
    for (const [name, descriptor] of found) Object.defineProperty(globalThis, name, descriptor);
    void globalThis.Response;
    const Dispatcher = globalThis[DISPATCHER]?.constructor;
    if (Dispatcher) globalThis[DISPATCHER] = new Dispatcher({ connect });
  };
  for (const [name] of found) {
    Object.defineProperty(globalThis, name, {
      configurable: true,
      enumerable: true,
      get() {
        install();
        return globalThis[name];
      },
      set(value) {
        Object.defineProperty(globalThis, name, { configurable: true, enumerable: true, writable: true, value });
      },
    });
  }
}
