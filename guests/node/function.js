// SPDX-License-Identifier: Apache-2.0
//
// The adapter between the node and a user's JavaScript handler.
//
// It is a part of the template, in one scope with `loading.js`, `values.js`,
// `request.js`, `calls.js` and `http_event.js`, and is compiled before an instance
// is forked. What it gives is `adapt`, called once, with the
// function's settings (names and values are strings), what serves it (`ask`,
// `outgoing` and `incoming`), and what loads ES modules. Whoever did awaits its
// `ready`, and then calls its `apply(request, head, body)`, three Buffers, which
// gives a Buffer or a promise of one. What a request, a result and a handler look
// like is said in `docs/spec/functions.md`, sections 5 to 7.
//
// Invariants: all that can be found out before the first call is found out
// before `ready` is fulfilled; an exception leaves this module without the
// lines of this file in its stack; nothing but Node's own modules is required,
// and what few handlers need (http) only for those.
"use strict";

const { isUtf8 } = require("node:buffer");

// Of a response that is sent in pieces, and of its head, which is in the first one.
const STREAM_BYTES_MAX = 1 << 30;
const STREAM_HEAD_BYTES_MAX = 64 << 10;
// What has come of a response is kept until some of it has to be waited for, or it is longer than this.
const KEPT_BYTES_MAX = 256 << 10;
// So many turns of the queue of microtasks are no waiting.
const TURNS_AT_ONCE = 16;
// The gateway writes these itself.
const CONNECTION_HEADERS = new Set(["connection", "content-length", "keep-alive", "transfer-encoding", "upgrade"]);
const TOKEN = /^[!#$%&'*+\-.^_`|~0-9a-z]+$/;

// What the function is, and what serves it.
let settings = {};
let server = null;
let timeoutMs = 0;
let memoryMb = 0;

// ------------------------------------------------------------------ results

/** Everything of a result before its body. */
function frame(status, headers) {
  const head = Buffer.from(JSON.stringify({ status, headers }));
  const length = Buffer.alloc(4);
  // What a server says of itself may pass: nobody shall remember it.
  length.writeUInt32LE(head.length + (status >= 500 ? 0x80000000 : 0));
  return Buffer.concat([length, head]);
}

const JSON_FRAME = frame(200, [["content-type", "application/json"]]);
const TEXT_FRAME = frame(200, [["content-type", "text/plain; charset=utf-8"]]);
const BYTES_FRAME = frame(200, [["content-type", "application/octet-stream"]]);
const EVENT_FRAME = frame(200, [["content-type", "application/cloudevents+json"]]);
const NOTHING = frame(204, []);
// What makes an object a CloudEvent.
const EVENT_ATTRIBUTES = ["specversion", "id", "source", "type"];

const isThenable = (value) => isObject(value) && typeof value.then === "function";

/** The blob that stands for what an event handler returned. */
function answer(result) {
  if (result === undefined || result === null) return NOTHING;
  if (typeof result === "string") return Buffer.concat([TEXT_FRAME, Buffer.from(result)]);
  if (isObject(result)) {
    if ("statusCode" in result) return proxyAnswer(result);
    if (EVENT_ATTRIBUTES.every((name) => name in result)) return Buffer.concat([EVENT_FRAME, jsonBytes(result, "the result")]);
    const bytes = bytesOf(result);
    if (bytes) return Buffer.concat([BYTES_FRAME, bytes]);
    // The global is not touched: it would load all of fetch, which takes tens of milliseconds.
    if (Object.prototype.toString.call(result) === "[object Response]" && result.constructor?.name === "Response") {
      return responseAnswer(result);
    }
  }
  return Buffer.concat([JSON_FRAME, jsonBytes(result, "the result")]);
}

/** The blob that stands for a returned value itself, as JSON: what Lambda's clients are answered. */
function valueAnswer(result) {
  return Buffer.concat([JSON_FRAME, jsonBytes(result === undefined ? null : result, "the result")]);
}

const answerOf = (head) => (head.call.source === "lambda" ? valueAnswer : answer);

/** An answer in the form of Lambda's proxy integration. */
function proxyAnswer(result) {
  const status = checkedStatus(result.statusCode);
  const headers = [];
  for (const [name, value] of Object.entries({ ...result.headers, ...result.multiValueHeaders })) {
    for (const one of Array.isArray(value) ? value : [value]) addHeader(headers, name, one);
  }
  for (const cookie of result.cookies ?? []) addHeader(headers, "set-cookie", cookie);
  const [body, kind] = proxyBody(result);
  if (kind && !headers.some(([name]) => name === "content-type")) headers.push(["content-type", kind]);
  return Buffer.concat([frame(status, headers), body]);
}

/** The bytes of a body, and the content type that it has if no header says so. */
function proxyBody({ body, isBase64Encoded }) {
  if (body === undefined || body === null) return [Buffer.alloc(0), null];
  const bytes = bytesOf(body);
  if (bytes) return [bytes, "application/octet-stream"];
  if (typeof body !== "string") return [jsonBytes(body, "the result.body"), "application/json"];
  if (!isBase64Encoded) return [Buffer.from(body), "application/json"];
  if (body.length % 4 !== 0 || !/^[A-Za-z0-9+/]*={0,2}$/.test(body)) {
    throw new TypeError("the result's body is no base64, though isBase64Encoded is set");
  }
  return [Buffer.from(body, "base64"), "application/octet-stream"];
}

function checkedStatus(status) {
  const number = typeof status === "string" && /^\d{3}$/.test(status) ? Number(status) : status;
  if (!Number.isInteger(number) || number < 200 || number > 599) {
    throw new RangeError(`the result's status is ${JSON.stringify(status) ?? status}; it must be a number from 200 to 599`);
  }
  return number;
}

function addHeader(headers, name, value) {
  if (typeof value !== "string" && typeof value !== "number") {
    throw new TypeError(`the header ${JSON.stringify(name)} is ${value === null ? "null" : typeof value}; it must be a string`);
  }
  const lower = name.toLowerCase();
  const text = String(value).trim();
  if (!TOKEN.test(lower)) throw new TypeError(`${JSON.stringify(name)} cannot be a header's name`);
  if (/[\r\n\0]/.test(text)) throw new TypeError(`the header ${JSON.stringify(name)} has a line break or a NUL in its value`);
  if (!CONNECTION_HEADERS.has(lower)) headers.push([lower, text]);
}

async function responseAnswer(response, waiting = []) {
  const headers = [];
  // Set-Cookie is the one header that iteration gives once per value.
  for (const [name, value] of response.headers) addHeader(headers, name, value);
  const sending = new Sending(frame(checkedStatus(response.status), headers), server.outgoing());
  if (response.body === null) return sending.end(waiting);
  const reader = response.body.getReader();
  sending.onLeft(() => reader.cancel("nobody waits for the answer any more").catch(() => {}));
  try {
    for (;;) {
      const reading = reader.read();
      if (sending.isKept && !(await isSettledSoon(reading))) await sending.begin();
      const { done, value } = await reading;
      if (done) return sending.end(waiting);
      const piece = bytesOf(value);
      if (!piece) throw new TypeError(`the body of a Response is a stream of Uint8Arrays, not of ${kindOf(value)}; pipe texts through a TextEncoderStream`);
      await sending.add(piece);
    }
  } catch (error) {
    reader.cancel(error).catch(() => {});
    throw error;
  }
}

const kindOf = (value) => (isObject(value) ? value.constructor?.name ?? "object" : value === null ? "null" : typeof value);

/** Whether a promise is settled without anything to wait for. */
async function isSettledSoon(promise) {
  let isSettled = false;
  const note = () => (isSettled = true);
  promise.then(note, note);
  for (let turn = 0; turn < TURNS_AT_ONCE && !isSettled; turn++) await undefined;
  return isSettled;
}

/** A result on its way: it is kept until some of it has to be waited for, and from then on it is sent as it comes. */
class Sending {
  #outgoing;
  #kept;
  #size = 0;
  // What was sent last: what comes next follows it.
  #last = null;

  constructor(head, outgoing) {
    this.head = head;
    this.#outgoing = outgoing;
    this.#kept = [head];
  }

  /** Whether nothing was sent yet. */
  get isKept() { return this.#kept !== null; }

  onLeft(then) { this.#outgoing.onLeft(then); }

  /** Sends what was kept. */
  async begin() {
    if (this.#kept === null) return;
    if (this.head.length > STREAM_HEAD_BYTES_MAX) {
      throw new RangeError(`the headers have ${this.head.length} bytes; a stream's have at most ${STREAM_HEAD_BYTES_MAX}`);
    }
    const kept = Buffer.concat(this.#kept);
    this.#kept = null;
    await this.#send(kept);
  }

  #send(bytes) {
    this.#last = this.#last === null ? this.#outgoing.send(bytes) : this.#last.then(() => this.#outgoing.send(bytes));
    return this.#last;
  }

  /** Some more of the body. */
  async add(piece) {
    this.#size += piece.length;
    if (this.#size > STREAM_BYTES_MAX) throw new RangeError(`the response is longer than ${STREAM_BYTES_MAX} bytes`);
    if (this.#kept === null) return piece.length > 0 ? this.#send(piece) : undefined;
    this.#kept.push(piece);
    if (this.#size > KEPT_BYTES_MAX) await this.begin();
  }

  /** What is left of it, for the end of the call. That waits for these; the client does not, for an empty piece says that it is whole. */
  async end(waiting = []) {
    const rest = Promise.allSettled(waiting);
    const goesOn = waiting.length > 0 && this.head.length <= STREAM_HEAD_BYTES_MAX && !(await isSettledSoon(rest));
    if (goesOn) await this.begin().then(() => this.#send(Buffer.alloc(0))).catch(() => {});
    await rest;
    return this.#kept === null ? this.#last.then(() => Buffer.alloc(0)) : Buffer.concat(this.#kept);
  }
}

// ----------------------------------------------------------------- handlers

/** Names of a function's parameters; those that are patterns are empty. */
function parameters(handler) {
  const source = Function.prototype.toString.call(handler).slice(0, 4096);
  const lone = /^(?:async\s+)?([A-Za-z_$][\w$]*)\s*=>/.exec(source);
  if (lone) return [lone[1]];
  const list = /^[^(]*\(([^)]*)\)/.exec(source)?.[1] ?? "";
  return list.split(",").map((one) => /^\s*([A-Za-z_$][\w$]*)\s*$/.exec(one)?.[1] ?? "");
}

const isExpress = (handler) => typeof handler.handle === "function" && typeof handler.use === "function";

function takesReqRes(handler) {
  const [first, second] = parameters(handler);
  return /^_?req(uest)?$/.test(first) && /^_?res(ponse)?$/.test(second ?? "");
}

/** Of a handler that is given the request itself. */
function hasNoEvent(name) {
  if (settings.event !== "http") return;
  throw new TypeError(`the handler ${name} is given the request itself; remove event = "http"`);
}

/** A function from request, head and body to a result, or to a promise of one. */
function adapted(handler, name) {
  if (isObject(handler) && typeof handler.fetch === "function") {
    hasNoEvent(name);
    return viaFetch((...all) => handler.fetch(...all));
  }
  if (typeof handler !== "function") {
    throw new TypeError(`the handler ${name} is ${handler === null ? "null" : typeof handler}, which cannot be called`);
  }
  if (/^class\b/.test(Function.prototype.toString.call(handler))) {
    throw new TypeError(`the handler ${name} is a class; export a function`);
  }
  const [isFetch, isHttp] = [name.endsWith(".fetch"), isExpress(handler) || takesReqRes(handler)];
  if (isFetch || isHttp) hasNoEvent(name);
  if (isFetch) return viaFetch(handler);
  if (isHttp) return viaHttp(handler);
  if (settings.body === "stream") {
    throw new TypeError(`the handler ${name} takes an event, which is a whole body; remove body = "stream", or export fetch(request) or (req, res)`);
  }
  if (handler.length > 3) {
    throw new TypeError(`the handler ${name} takes ${handler.length} parameters; it must take (event, context) or (event, context, callback)`);
  }
  return handler.length === 3 ? viaCallback(handler) : viaEvent(handler);
}

/** What a handler gets as its event. Whoever calls it in another way than by HTTP says what that is. */
function eventFor(head, body) {
  return settings.event === "http" && head.call.source === "http" ? httpEvent(head, body) : eventOf(body, head.contentType);
}

function viaEvent(handler) {
  return (request, headBytes, body) => {
    const head = new Head(headBytes);
    const result = handler(eventFor(head, body), new Context(request, head));
    const told = answerOf(head);
    return isThenable(result) ? result.then(told) : told(result);
  };
}

function viaCallback(handler) {
  return (request, headBytes, body) => {
    const head = new Head(headBytes);
    const ended = new Promise((resolve, reject) => {
      const callback = (error, result) => (error ? reject(asError(error)) : resolve(result));
      const returned = handler(eventFor(head, body), new Context(request, head), callback);
      // An async function ends by its promise, unless the callback was first.
      if (isThenable(returned)) returned.then(resolve, reject);
    });
    return ended.then(answerOf(head));
  };
}

const asError = (error) => (error instanceof Error ? error : new Error(typeof error === "string" ? error : JSON.stringify(error)));

function viaFetch(handler) {
  if (typeof Request !== "function") throw new TypeError("a handler of the form fetch(request) needs Node 18 or later");
  return async (_request, headBytes, body) => {
    const head = new Head(headBytes);
    const { method = "POST", path: place = "/", query = "", headers = [], client = null, scheme = "http" } = head.http;
    const host = headers.find(([name]) => name === "host")?.[1] ?? "localhost";
    const url = `${scheme}://${host}${place}${query ? `?${query}` : ""}`;
    const hasBody = method !== "GET" && method !== "HEAD";
    const given = comesLater(head) ? { body: bodyStream(server.incoming()), duplex: "half" } : { body };
    const request = new Request(url, { method, headers, ...(hasBody ? given : {}) });
    // Few handlers ask for it, and a signal that is given to a Request is followed by another one.
    const outgoing = server.outgoing();
    let signal;
    Object.defineProperty(request, "signal", { get: () => (signal ??= signalOf(outgoing)), configurable: true });
    const waiting = [];
    const context = { waitUntil: (promise) => waiting.push(promise), passThroughOnException() {}, client };
    const response = await handler(request, { ...process.env }, context);
    if (!(response instanceof Response)) throw new TypeError("fetch(request) did not return a Response");
    return responseAnswer(response, waiting);
  };
}

/** Whether the body comes while the call runs. */
const comesLater = (head) => head.call.body === "stream";

/** A body that is taken as it is read, and not before. */
function bodyStream(incoming) {
  const pull = async (to) => {
    const piece = await incoming.read();
    if (piece === null) to.close();
    else to.enqueue(piece);
  };
  return new ReadableStream({ pull }, { highWaterMark: 0 });
}

/** The same for an IncomingMessage. */
function comesTo(req, incoming) {
  // Whoever looks whether there is a body looks for one of two headers.
  if (!("content-length" in req.headers)) req.headers["transfer-encoding"] ??= "chunked";
  let isReading = false;
  const took = (piece) => {
    isReading = false;
    req.complete = piece === null;
    req.push(piece);
  };
  // Its own first reading has it read on: before that a parser would push.
  req._readableState.readingMore = false;
  req._consumed = true;
  req._read = () => {
    if (isReading) return;
    isReading = true;
    incoming.read().then(took, (error) => req.destroy(error));
  };
}

/** An Express application, or a function (req, res): real objects over a socket in memory. */
function viaHttp(handler) {
  const http = require("node:http");
  const MemorySocket = memorySocket();
  return (_request, headBytes, body) =>
    new Promise((resolve, reject) => {
      const head = new Head(headBytes);
      const { method = "POST", path: place = "/", query = "", headers = [], client, scheme } = head.http;
      const outgoing = server.outgoing();
      const socket = new MemorySocket(outgoing, client, scheme).on("error", reject);
      const req = new http.IncomingMessage(socket);
      // As a server does whose connection is closed: `res` first.
      outgoing.onLeft(() => {
        socket.destroy(nobodyWaits());
        req.destroy(Object.assign(new Error("aborted"), { code: "ECONNRESET" }));
      });
      Object.assign(req, { method, url: place + (query ? `?${query}` : ""), httpVersion: "1.1", httpVersionMajor: 1, httpVersionMinor: 1 });
      req.rawHeaders = headers.flat();
      req.headers = joined(headers);
      const res = new http.ServerResponse(req);
      asPlainText(res);
      res.assignSocket(socket);
      res.once("finish", () => socket.answer().then(resolve, reject));
      res.once("close", () => reject(socket.errored ?? new Error("the handler closed the connection without an answer")));
      if (comesLater(head)) {
        comesTo(req, server.incoming());
      } else {
        req.headers["content-length"] = String(body.length);
        req.push(body);
        req.push(null);
        req.complete = true;
      }
      // Without it, Express answers itself what nothing follows, and for errors that nobody handles.
      const next = isExpress(handler) ? undefined : (error) => reject(asError(error ?? "the handler called next(), and nothing follows"));
      attempt(reject, () => {
        const returned = handler(req, res, next);
        if (isThenable(returned)) returned.then(undefined, reject);
      });
    });
}

function attempt(reject, work) {
  try {
    work();
  } catch (error) {
    reject(error);
  }
}

/** Nothing on the wire but a head and, after it, the body as it is. */
function asPlainText(res) {
  res.sendDate = false;
  res.shouldKeepAlive = false;
  Object.defineProperty(res, "chunkedEncoding", { get: () => false, set() {} });
  for (const name of ["writeContinue", "writeProcessing", "writeEarlyHints", "writeInformation"]) res[name] = () => {};
}

function memorySocket() {
  const { Duplex } = require("node:stream");
  return class MemorySocket extends Duplex {
    // What was written, until the head is known and what follows it is sent as it comes.
    pieces = [];
    size = 0;
    sending = null;
    later = null;
    remotePort = 0;

    constructor(outgoing, client = "127.0.0.1", scheme = "http") {
      super();
      this.outgoing = outgoing;
      this.remoteAddress = client;
      this.remoteFamily = client.includes(":") ? "IPv6" : "IPv4";
      this.encrypted = scheme === "https";
    }

    _read() {}

    _write(piece, encoding, done) {
      const bytes = typeof piece === "string" ? Buffer.from(piece, encoding) : piece;
      if (this.sending) return void this.sending.add(bytes).then(() => done(), done);
      this.pieces.push(bytes);
      this.size += bytes.length;
      // What is written in one go is the whole answer; else the first of it need not wait for the rest.
      this.later ??= setImmediate(() => this.begin().catch((error) => this.destroy(error)));
      if (this.size <= KEPT_BYTES_MAX) return void done();
      this.begin().then(() => done(), done);
    }

    /** Sends what was written so far, if its head is whole. */
    async begin() {
      const read = this.sending ? null : wireAnswer(this.pieces);
      if (read === null) return;
      this.sending = new Sending(read.head, this.outgoing);
      this.pieces = [];
      await this.sending.add(read.rest);
      await this.sending.begin();
    }

    /** What is left of the result. */
    async answer() {
      clearImmediate(this.later);
      if (this.sending) return this.sending.end();
      const { head, rest } = wireAnswer(this.pieces);
      return Buffer.concat([head, rest]);
    }

    setTimeout() { return this; }
    setNoDelay() { return this; }
    setKeepAlive() { return this; }
    ref() { return this; }
    unref() { return this; }
  };
}

/** The head of the result that stands for what a ServerResponse wrote, and the beginning of its body; null if the head is not whole. */
function wireAnswer(pieces) {
  const wire = Buffer.concat(pieces);
  const end = wire.indexOf("\r\n\r\n");
  if (end < 0) return null;
  const [first, ...lines] = wire.toString("latin1", 0, end).split("\r\n");
  const headers = [];
  for (const line of lines) {
    const colon = line.indexOf(":");
    addHeader(headers, line.slice(0, colon), line.slice(colon + 1));
  }
  return { head: frame(checkedStatus(Number(first.split(" ")[1])), headers), rest: wire.subarray(end + 4) };
}

// ------------------------------------------------------------------ serving

/** What calls the handler; who does not await `ready` waits there. */
let call = null;

const apply = cleaned((request, head, body) => call(request, head, body));

/** What calls a handler, and of its exceptions has only what is the user's. */
function cleaned(called) {
  return (request, head, body) => {
    let result;
    try {
      result = called(request, head, body);
    } catch (error) {
      throw usersPart(error);
    }
    return isThenable(result) ? result.then(undefined, (error) => Promise.reject(usersPart(error))) : result;
  };
}

/** The `apply` of another handler of the same code. */
async function applyOf(name, load) {
  const found = await findHandler(name, load).catch((error) => Promise.reject(usersPart(error)));
  return cleaned(adapted(found.handler, found.name));
}

/** Finds the handler of a function, and serves it once it is there. `load` is what imports ES modules. */
function adapt(given, serving, load) {
  settings = given;
  server = serving;
  timeoutMs = Number(settings["timeout-ms"] ?? "60000");
  memoryMb = Math.floor(Number(settings["memory-bytes"] ?? "0") / (1 << 20));
  // A global, as `fetch` is: CommonJS and ES modules find it alike.
  globalThis.sinew = Object.freeze({ call: callFunction, CallError });
  const ready = find(settings, load)
    .then(({ handler, name }) => void (call = adapted(handler, name)))
    .catch((error) => Promise.reject(usersPart(error)));
  call = (...all) => ready.then(() => call(...all));
  // Whoever has read a head already need not write it down again.
  return { ready, apply, readsHeads: true, applyOf: (name) => applyOf(name, load) };
}
