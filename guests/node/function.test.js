// SPDX-License-Identifier: Apache-2.0
//
// Tests of `function.js` and `loading.js`, run as the node runs them: their
// sources one after the other, in one scope.
"use strict";

const assert = require("node:assert/strict");
const fs = require("node:fs");
const Module = require("node:module");
const os = require("node:os");
const path = require("node:path");
const test = require("node:test");

const PARTS = ["loading.js", "values.js", "request.js", "calls.js", "http_event.js", "function.js"].map((name) => fs.readFileSync(path.join(__dirname, name), "utf8"));
const ADAPTER = `${PARTS.join("")}module.exports = { adapt };`;
const ID = Buffer.from(Array.from({ length: 16 }, (_, at) => at));
const before = { cwd: process.cwd(), env: { ...process.env } };
const folders = [];

function write(root, files) {
  fs.mkdirSync(root, { recursive: true });
  for (const [name, text] of Object.entries(files)) {
    fs.mkdirSync(path.dirname(path.join(root, name)), { recursive: true });
    fs.writeFileSync(path.join(root, name), text);
  }
}

/** A function of some files (or of one, index.js), in this process. */
async function load(files, settings = {}, layers = []) {
  const root = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), "function-")));
  folders.push(root);
  write(path.join(root, "app"), typeof files === "string" ? { "index.js": files } : files);
  layers.forEach((layer, at) => write(path.join(root, "layers", String(at)), layer));
  const all = {
    layers: String(layers.length), "memory-bytes": String(64 << 20),
    "app-root": path.join(root, "app"), "layers-root": path.join(root, "layers"), ...settings,
  };
  const module = new Module("function.js");
  // What the template gives it: where pieces of an answer go. Each takes a turn of the loop.
  const sent = [];
  const left = [];
  module.outgoing = () => ({
    send: async (bytes) => {
      await new Promise(setImmediate);
      sent.push(Buffer.from(bytes));
    },
    onLeft: (then) => left.push(then),
  });
  // Pieces of a body, each after a turn of the loop; an error breaks it off.
  const coming = [];
  module.incoming = () => ({
    read: async () => {
      await new Promise(setImmediate);
      const piece = coming.shift() ?? null;
      if (piece instanceof Error) throw piece;
      return piece === null ? null : Buffer.from(piece);
    },
  });
  module._compile(ADAPTER, path.join(root, "function.js"));
  const { ready, apply } = module.exports.adapt(all, module, (url) => import(url));
  await ready;
  const raw = async (body = "", head = null) => {
    const bytes = head ? headOf(head) : Buffer.alloc(0);
    sent.length = 0;
    const last = await apply(ID, bytes, Buffer.from(body));
    assert(Buffer.isBuffer(last));
    assert(sent.length === 0 || last.length === 0, "after pieces nothing is left");
    const result = Buffer.concat([...sent, last]);
    // The highest bit says that nobody shall remember the answer.
    const length = result.readUInt32LE(0);
    const end = 4 + (length % 0x80000000);
    const { status, headers } = JSON.parse(result.subarray(4, end));
    assert.equal(length >= 0x80000000, status >= 500, "what a server says of itself passes");
    return [status, headers, result.subarray(end)];
  };
  const call = async (...all) => (await raw(...all))[2].toString();
  return Object.assign(call, { raw, sent, left, coming, apply });
}

function restore() {
  process.chdir(before.cwd);
  for (const name of Object.keys(process.env)) if (!(name in before.env)) delete process.env[name];
}

test.afterEach(restore);
test.after(() => folders.forEach((folder) => fs.rmSync(folder, { recursive: true })));

/** The two lines of a head. */
function headOf({ method, path, query, headers, route, params, client, scheme, ...call }) {
  const kind = headers?.find(([name]) => name === "content-type")?.[1];
  return Buffer.from(`${JSON.stringify({ ...call, content_type: kind })}\n${JSON.stringify({ method, path, query, headers, route, params, client, scheme })}`);
}

const typed = (kind) => ({ headers: [["content-type", kind]] });
const JSON_TYPE = [["content-type", "application/json"]];
const TEXT_TYPE = [["content-type", "text/plain; charset=utf-8"]];
const BYTES_TYPE = [["content-type", "application/octet-stream"]];

test("what the body becomes", async () => {
  const call = await load("const { inspect } = require('node:util'); exports.handler = (event) => inspect(event, { maxStringLength: 20 });");
  const { inspect } = require("node:util");
  for (const [body, head, expected] of [
    ["", null, {}],
    ['{"a": 1}', null, { a: 1 }],
    ['\ufeff{"a": 1}', null, { a: 1 }],
    [" [1, 2.5, null]", null, [1, 2.5, null]],
    ["7", null, 7],
    ['{"a"', null, '{"a"'],
    ["grüße", null, "grüße"],
    [Buffer.from([0xff, 0]), null, Buffer.from([0xff, 0])],
    ['{"a": 1}', typed("application/json; charset=utf-8"), { a: 1 }],
    ['{"a": 1}', typed("application/cloudevents+json"), { a: 1 }],
    ["{", typed("application/json"), "{"],
    ['{"a": 1}', typed("text/plain"), '{"a": 1}'],
    [Buffer.from("gr\xfc\xdfe", "latin1"), typed("text/plain; charset=latin1"), "grüße"],
    [Buffer.from("gr\xfc", "latin1"), typed("text/plain"), Buffer.from("gr\xfc", "latin1")],
    ["x", typed("text/plain; charset=nonsense"), Buffer.from("x")],
    ["{}", typed("application/octet-stream"), Buffer.from("{}")],
    ["<a/>", typed("image/svg+xml"), "<a/>"],
    ["a=1&b=2", typed("application/x-www-form-urlencoded"), "a=1&b=2"],
    ['{"a": 1}', typed("application/x-www-form-urlencoded"), { a: 1 }],
    ["[".repeat(100_000), null, "[".repeat(100_000)],
  ]) {
    assert.equal(await call(body, head), inspect(expected, { maxStringLength: 20 }), String(body).slice(0, 30));
  }
});

test("a context tells of the call", async () => {
  const call = await load(`exports.handler = (event, context) => [
    context.request_id, context.awsRequestId, context.aws_request_id, context.function_name, context.functionVersion,
    context.memory_limit_in_mb, context.getRemainingTimeInMillis() > 0 && context.get_remaining_time_in_millis() <= 5000,
    context.http];`);
  const headers = [["a", "1"], ["b", "2"], ["a", "3"], ["cookie", "x=1"], ["cookie", "y=2"]];
  const route = { route: "/{name}", params: [["name", "x"]] };
  const head = { method: "PUT", path: "/x", query: "q=1&r=%20&q=2", headers, ...route, request_id: "id", function: "hello", version: 7, deadline_ms: Date.now() + 5000 };
  const http = { method: "PUT", scheme: "http", client: null, path: "/x", route: "/{name}", params: { name: "x" }, query: { q: "2", r: " " }, queryString: "q=1&r=%20&q=2", headers: { a: "1, 3", b: "2", cookie: "x=1; y=2" } };
  assert.deepEqual(JSON.parse(await call("", head)), ["id", "id", "id", "hello", 7, 64, true, http]);
  assert.equal(JSON.parse(await call())[0], "00010203-0405-0607-0809-0a0b0c0d0e0f");
});

test("what a handler returns", async () => {
  for (const [expression, expected] of [
    ["{ a: [1, null, true, 'ü', undefined], b: undefined }", [200, JSON_TYPE, '{"a":[1,null,true,"ü",null]}']],
    ["[]", [200, JSON_TYPE, "[]"]],
    ["false", [200, JSON_TYPE, "false"]],
    ["0", [200, JSON_TYPE, "0"]],
    ["new Date(0)", [200, JSON_TYPE, '"1970-01-01T00:00:00.000Z"']],
    ["'grüße'", [200, TEXT_TYPE, "grüße"]],
    ["''", [200, TEXT_TYPE, ""]],
    ["Buffer.from('ab')", [200, BYTES_TYPE, "ab"]],
    ["new Uint16Array([0x6261])", [200, BYTES_TYPE, "ab"]],
    ["new Uint8Array([97, 98]).buffer", [200, BYTES_TYPE, "ab"]],
    ["null", [204, [], ""]],
    ["undefined", [204, [], ""]],
    ["new Response('hi', { status: 201, headers: { a: 'b' } })", [201, [["a", "b"], ["content-type", "text/plain;charset=UTF-8"]], "hi"]],
    ["{ statusCode: 404 }", [404, [], ""]],
    ["{ statusCode: '201', body: 'x' }", [201, JSON_TYPE, "x"]],
    ["{ statusCode: 200, body: { a: 1 } }", [200, JSON_TYPE, '{"a":1}']],
    ["{ statusCode: 200, body: Buffer.from('x') }", [200, BYTES_TYPE, "x"]],
    ["{ statusCode: 200, body: 'x', headers: { 'Content-Type': 'text/html' } }", [200, [["content-type", "text/html"]], "x"]],
    ["{ statusCode: 302, headers: { Location: '/', 'X-N': 1, 'Content-Length': '9' } }", [302, [["location", "/"], ["x-n", "1"]], ""]],
    ["{ statusCode: 200, multiValueHeaders: { A: ['1', '2'] }, cookies: ['c=1', 'd=2'] }",
      [200, [["a", "1"], ["a", "2"], ["set-cookie", "c=1"], ["set-cookie", "d=2"]], ""]],
    ["{ statusCode: 200, isBase64Encoded: true, body: 'YWJj' }", [200, BYTES_TYPE, "abc"]],
  ]) {
    const call = await load(`exports.handler = () => (${expression});`);
    const [status, headers, body] = await call.raw();
    assert.deepEqual([status, headers, body.toString()], expected, expression);
  }
});

test("what cannot be an answer", async () => {
  for (const [expression, pattern] of [
    ["{ a: [1, { 'b c': 1n }] }", /the result\.a\[1\]\["b c"\] cannot be written as JSON: it is a BigInt; return/],
    ["(() => { const a = {}; a.b = a; return a; })()", /the result\.b cannot .* contains itself/],
    ["() => 1", /the result cannot .* it is a function/],
    ["Symbol('x')", /it is a symbol/],
    ["{ statusCode: 99 }", /status is 99/],
    ["{ statusCode: true }", /status is true/],
    ["{ statusCode: 'ok' }", /status is "ok"/],
    ["{ statusCode: 200, body: { a: 1n } }", /the result\.body\.a cannot/],
    ["{ statusCode: 200, isBase64Encoded: true, body: '?' }", /no base64/],
    ["{ statusCode: 200, headers: { a: 'x\\r\\nb: y' } }", /line break/],
    ["{ statusCode: 200, headers: { 'a b': 'x' } }", /cannot be a header's name/],
    ["{ statusCode: 200, headers: { a: null } }", /header "a" is null/],
  ]) {
    const call = await load(`exports.handler = () => (${expression});`);
    await assert.rejects(() => call(), pattern, expression);
  }
});

test("ways to write a handler", async () => {
  for (const source of [
    "exports.handler = (event, context) => context.awsRequestId && event;",
    "exports.handler = (event) => event;",
    "exports.handler = async (event, context) => event;",
    "exports.handler = async function (event) { await null; return event; };",
    "exports.handler = (event, context, callback) => callback(null, event);",
    "exports.handler = (event, context, callback) => { setTimeout(callback, 1, null, event); };",
    "exports.handler = async (event, context, callback) => event;",
    "module.exports = (event) => event;",
    "module.exports = { default: (event) => event };",
    "module.exports = { default: { handler: (event) => event } };",
    "module.exports = { fetch: async (request) => new Response(await request.text()) };",
    "exports.handler = (req, res) => { req.pipe(res); };",
    "module.exports = async (req, res) => { for await (const piece of req) res.write(piece); res.end(); };",
  ]) {
    const call = await load(source);
    for (let at = 0; at < 2; at += 1) assert.equal(await call('{"a":1}'), '{"a":1}', source);
  }
});

test("ES modules", async () => {
  for (const files of [
    { "index.mjs": "export const handler = (event) => event;" },
    { "index.mjs": "await null; export default { fetch: async (request) => new Response(await request.text()) };" },
    { "index.mjs": "export async function fetch(request) { return new Response(await request.text()); }" },
    { "index.mjs": "export default (event) => event;" },
    { "index.mjs": "export default function (req, res) { req.pipe(res); }" },
    { "index.js": "export const handler = (event) => event;", "package.json": '{"type": "module"}' },
  ]) {
    const call = await load(files);
    assert.equal(await call('{"a":1}'), '{"a":1}', JSON.stringify(files));
  }
});

test("what is no handler", async () => {
  for (const [files, pattern, settings] of [
    ["exports.handler = 7;", /index.handler is number, which cannot be called/],
    ["exports.handler = (a, b, c, d) => 1;", /takes 4 parameters/],
    ["exports.handler = class {};", /is a class/],
    ["exports.other = () => 1; exports.third = 3;", /index exports no 'handler'; it exports: other, third/],
    ["", /it exports: nothing/],
    ["", /'handler' is not of the form/, { handler: "handler" }],
    ["", /no module 'app': the code has no app.js, .mjs or .cjs; it has: index.js/, { handler: "app.handler" }],
  ]) {
    await assert.rejects(() => load(files, settings), pattern);
  }
});

test("where a handler is", async () => {
  for (const [handler, name] of [["src/web.run", "src/web.js"], ["./a.run", "a.cjs"], ["lib.run", "lib/index.js"], ["a.b.run", "a.b.js"]]) {
    const call = await load({ [name]: "exports.run = () => __filename;" }, { handler });
    assert(fs.existsSync(await call()));
    assert((await call()).endsWith(name));
  }
});

test("a fetch handler", async () => {
  const call = await load(
    `exports.fetch = async (request, env, ctx) => {
       ctx.waitUntil(new Promise((resolve) => setTimeout(() => { globalThis.waited = true; resolve(); }, 5)));
       const headers = new Headers([["set-cookie", "a=1"], ["set-cookie", "b=2"]]);
       const text = [request.method, request.url, request.headers.get("h"), env.GREETING, await request.text()];
       return new Response(JSON.stringify(text), { status: 202, headers });
     };`,
    { handler: "index.fetch", "env.GREETING": "hello" },
  );
  const head = { method: "PUT", path: "/a%20b", query: "q=1", headers: [["host", "x.example"], ["h", "v"]] };
  const [status, headers, body] = await call.raw("in", head);
  assert.equal(status, 202);
  assert.deepEqual(headers.filter(([name]) => name === "set-cookie"), [["set-cookie", "a=1"], ["set-cookie", "b=2"]]);
  assert.deepEqual(JSON.parse(body), ["PUT", "http://x.example/a%20b?q=1", "v", "hello", "in"]);
  assert.equal(globalThis.waited, true);
  assert.equal(JSON.parse(await call("", { method: "GET" }))[0], "GET");
  await assert.rejects(await load("exports.fetch = () => 7;").then((one) => () => one()), /did not return a Response/);
});

test("what a fetch handler has waited for is not waited for by the client", async () => {
  const call = await load(
    `let done = 0;
     exports.fetch = async (request, env, ctx) => {
       const body = "x".repeat(done + 2);
       const rest = Promise.all([1, 2].map(() => new Promise((resolve) => setTimeout(resolve, 5)))).then(() => { done += 1; });
       ctx.waitUntil(request.method === "GET" ? Promise.resolve() : rest);
       ctx.waitUntil(Promise.reject(new Error("late")));
       return new Response(request.method === "HEAD" ? null : body);
     };`,
    { handler: "index.fetch" },
  );
  assert.equal(await call("", { method: "POST" }), "xx");
  assert.deepEqual(call.sent.map((piece) => piece.length > 0), [true, false], "all of it, and that it is");
  assert.equal(await call("", { method: "PUT" }), "xxx", "its end was waited for");
  assert.equal(await call("", { method: "HEAD" }), "");
  assert.deepEqual(call.sent.map((piece) => piece.length > 0), [true, false]);
  assert.equal(await call("", { method: "GET" }), "x".repeat(5));
  assert.equal(call.sent.length, 0, "there was nothing to wait for");
});

test("req and res are those of node:http", async () => {
  const call = await load(`const http = require("node:http");
    exports.handler = (req, res) => {
      const genuine = req instanceof http.IncomingMessage && res instanceof http.ServerResponse;
      const seen = [genuine, req.method, req.url, req.headers, req.rawHeaders.length, req.httpVersion, req.socket.remoteAddress];
      res.writeEarlyHints({ link: "</a.css>" });
      res.writeHead(201, { "X-A": "1", "Set-Cookie": ["a=1", "b=2"], "Transfer-Encoding": "chunked" });
      res.write(JSON.stringify(seen));
      setTimeout(() => res.end("\\n"), 1);
    };`);
  const head = { method: "PUT", path: "/x", query: "q=1", headers: [["host", "x"], ["a", "1"], ["a", "2"]] };
  const [status, headers, body] = await call.raw("in", head);
  assert.deepEqual([status, headers], [201, [["x-a", "1"], ["set-cookie", "a=1"], ["set-cookie", "b=2"]]]);
  const seen = [true, "PUT", "/x?q=1", { host: "x", a: "1, 2", "content-length": "2" }, 6, "1.1", "127.0.0.1"];
  assert.deepEqual(JSON.parse(body), seen);
});

test("handlers are told who asks, and how", async () => {
  const head = { method: "GET", path: "/x", headers: [["host", "shop"]], client: "2001:db8::7", scheme: "https" };
  const req = await load(`exports.handler = (req, res) => res.end([req.socket.remoteAddress, req.socket.remoteFamily, req.socket.encrypted].join());`);
  assert.equal(await req("", head), "2001:db8::7,IPv6,true");
  const { client: _, scheme: __, ...unknown } = head;
  assert.equal(await req("", unknown), "127.0.0.1,IPv4,false");
  const fetched = await load(`exports.fetch = (request, env, ctx) => new Response([request.url, ctx.client].join());`, { handler: "index.fetch" });
  assert.equal(await fetched("", head), "https://shop/x,2001:db8::7");
  assert.equal(await fetched("", unknown), "http://shop/x,");
  const event = await load(`exports.handler = (event, { http }) => [http.scheme, http.client];`);
  assert.equal(await event("", head), '["https","2001:db8::7"]');
  assert.equal(await event("", unknown), '["http",null]');
});

test("large bodies go through a request and a response", async () => {
  const call = await load("exports.handler = (req, res) => { req.pipe(res); };");
  const body = Buffer.alloc(3 << 20, "x");
  assert((await call.raw(body))[2].equals(body));
});

test("what goes wrong with req and res", async () => {
  for (const [source, pattern] of [
    ["exports.handler = (req, res) => { throw new Error('mine'); };", /mine/],
    ["exports.handler = async (req, res) => { throw new Error('mine'); };", /mine/],
    ["exports.handler = (req, res) => { res.destroy(); };", /closed the connection without an answer/],
    ["exports.handler = (req, res, next) => next(new Error('mine'));", /mine/],
    ["exports.handler = (req, res, next) => next();", /nothing follows/],
    ["exports.handler = (req, res) => { res.setHeader('a', 'b'.repeat(70000)); res.write('x'); setImmediate(() => setImmediate(() => res.end())); };", /the headers have/],
  ]) {
    const call = await load(source);
    await assert.rejects(() => call(), pattern, source);
  }
});

test("an application in the manner of Express", async () => {
  const call = await load(`const app = (request, answer, next) => next ? next() : app.handle(request, answer);
    app.use = () => app;
    app.handle = (req, res) => { res.statusCode = 418; res.setHeader("A", "b"); res.end("teapot"); };
    module.exports = app;`);
  const [status, headers, body] = await call.raw("", { method: "GET" });
  assert.deepEqual([status, headers, body.toString()], [418, [["a", "b"]], "teapot"]);
});

test("a callback's error", async () => {
  await assert.rejects(await load("exports.handler = (e, c, done) => done('mine');").then((one) => () => one()), /^Error: mine/);
  await assert.rejects(await load("exports.handler = (e, c, done) => done(new TypeError('mine'));").then((one) => () => one()), TypeError);
});

test("what a function finds", async () => {
  const call = await load(
    {
      "index.js": `const atLoad = process.env.GREETING;
        exports.handler = () => [process.cwd() === __dirname, atLoad, require("shared"), require("own"), require("deep")];`,
      "node_modules/own.js": "module.exports = 'app';",
    },
    { "env.GREETING": "hello" },
    [{ "shared.js": "module.exports = 'layer 0';", "own.js": "module.exports = 'layer';" },
      { "shared.js": "module.exports = 'layer 1';", "node_modules/deep/index.js": "module.exports = 'layer 1';" }],
  );
  assert.deepEqual(JSON.parse(await call()), [true, "hello", "layer 0", "app", "layer 1"]);
});

test("globals stay between calls", async () => {
  const call = await load("let n = 0; exports.handler = () => (n += 1);");
  assert.deepEqual([await call(), await call()], ["1", "2"]);
});

test("a syntax error of an ES module has a place", async () => {
  const broken = (files) => load(files).catch((caught) => caught.stack);
  for (const [files, place] of [
    [{ "index.mjs": "import fs from 'node:fs';\nexport const a = 1;\nexport const handler = (;\n" }, /^\S*index\.mjs:3\n/],
    [{ "index.mjs": "export default function () {\n  return {;\n}\n" }, /^\S*index\.mjs:2\n/],
    [{ "index.mjs": "export { handler } from './lib/a.mjs';\n", "lib/a.mjs": "export function handler() {\n  return 1 +;\n}\n" }, /^\S*lib\/a\.mjs:2\n/],
  ]) {
    assert.match(await broken(files), place);
  }
});

test("a broken function does not load, and its stack is the user's", async () => {
  const error = await load("function f() { throw new Error('mine'); }\nf();").catch((caught) => caught);
  assert.match(error.stack, /at f .*index\.js:1/);
  assert.doesNotMatch(error.stack, /function\.js|node:internal/);
  await assert.rejects(load("exports.handler = (;"), SyntaxError);
  await assert.rejects(load("require('nonexistent-module');"), /Cannot find module 'nonexistent-module'/);
  await assert.rejects(load({ "index.mjs": "throw new Error('mine');" }), /mine/);
});

test("only the user's lines are left of a stack", async () => {
  for (const kind of ["(event) =>", "async (event) =>", "(event, context, callback) =>", "(req, res) =>", "async (req, res) =>"]) {
    const call = await load(`function deep() { throw new Error("mine"); }\nexports.handler = ${kind} deep();`);
    const error = await call().catch((caught) => caught);
    assert.match(error.stack, /at deep .*index\.js:1/, kind);
    assert.doesNotMatch(error.stack, /function\.js|node:internal/, kind);
  }
});

test("a call that comes before the function is loaded waits", async () => {
  const root = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), "function-")));
  folders.push(root);
  for (const [text, check] of [
    ["export const handler = (event) => event;", async (answer) => assert.match((await answer).toString(), /7$/)],
    ["await null; throw new Error('mine');", (answer) => assert.rejects(answer, /mine/)],
  ]) {
    write(path.join(root, text.length.toString()), { "index.mjs": text });
    const module = new Module("function.js");
    module._compile(ADAPTER, path.join(root, "function.js"));
    const { ready, apply } = module.exports.adapt({ "app-root": path.join(root, text.length.toString()) }, { outgoing() {} }, (url) => import(url));
    await check(apply(ID, Buffer.alloc(0), Buffer.from("7")));
    await ready.catch(() => {});
  }
});

test("what few handlers need is not loaded for the others", () => {
  const root = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), "function-")));
  folders.push(root);
  write(root, { "app/index.js": "exports.handler = () => ({ a: 1 });", "function.js": ADAPTER });
  const settings = JSON.stringify({ "app-root": path.join(root, "app") });
  const script = `const f = require(${JSON.stringify(path.join(root, "function.js"))}).adapt(${settings}, { outgoing() {} }, (url) => import(url));
    f.ready.then(() => f.apply(Buffer.alloc(16), Buffer.alloc(0), Buffer.from("{}"))).then(() => {
      console.log(process.moduleLoadList.filter((name) => /undici|_http_server/.test(name)).join());
    });`;
  const { stdout, stderr } = require("node:child_process").spawnSync(process.execPath, ["-e", script], { encoding: "utf8" });
  assert.deepEqual([stdout, stderr], ["\n", ""]);
});

test("a user's file may be called as this one", async () => {
  const call = await load({ "function.js": "exports.handler = () => { throw new Error('mine'); };" }, { handler: "function.handler" });
  assert.match((await call().catch((error) => error)).stack, /app\/function\.js:1/);
});

/** A handler's source, of the form fetch, whose body is a stream of what `source` does with its controller. */
const streaming = (source) => `exports.fetch = () => new Response(new ReadableStream(${source}));`;

test("what is there at once is one answer, however it was written", async () => {
  const sources = [
    "exports.fetch = () => new Response('x'.repeat(5));",
    streaming("{ start(to) { for (let n = 0; n < 5; n++) to.enqueue(Buffer.from('x')); to.close(); } }"),
    streaming("{ pull(to) { to.enqueue(Buffer.from('x')); if ((this.n = (this.n ?? 0) + 1) === 5) to.close(); } }"),
    "exports.handler = (req, res) => res.end('xxxxx');",
    "exports.handler = (req, res) => { for (let n = 0; n < 4; n++) res.write('x'); res.end('x'); };",
  ];
  for (const source of sources) {
    const call = await load(source, { handler: source.includes("fetch") ? "index.fetch" : "index.handler" });
    assert.deepEqual([(await call()), call.sent.length], ["xxxxx", 0], source);
  }
});

test("what has to be waited for is sent as it comes", async () => {
  const later = "for (let turn = 0; turn < 3; turn++) await new Promise(setImmediate);";
  const sources = [
    streaming(`{ async start(to) { to.enqueue(Buffer.from('one')); ${later} to.enqueue(Buffer.from('two')); to.close(); } }`),
    `exports.handler = async (req, res) => { res.write('one'); ${later} res.write('two'); res.end(); };`,
  ];
  for (const source of sources) {
    const call = await load(source, { handler: source.includes("fetch") ? "index.fetch" : "index.handler" });
    assert.equal(await call(), "onetwo");
    const [head, ...rest] = call.sent;
    assert(head.toString().endsWith("one"), source);
    assert.deepEqual(rest.map(String), ["two"]);
  }
});

test("a head is sent before there is anything of the body", async () => {
  const later = "for (let turn = 0; turn < 3; turn++) await new Promise(setImmediate);";
  const call = await load(streaming(`{ async pull(to) { ${later} to.enqueue(Buffer.from('x')); to.close(); } }`), { handler: "index.fetch" });
  const [status, , body] = await call.raw();
  assert.deepEqual([status, body.toString(), call.sent.length], [200, "x", 2]);
});

test("what is long is sent in its order, and not kept", async () => {
  const sources = [
    "exports.handler = (req, res) => { for (let n = 0; n < 40; n++) res.write(String.fromCharCode(65 + n).repeat(10000)); res.end('.'); };",
    streaming("{ start(to) { for (let n = 0; n < 40; n++) to.enqueue(Buffer.alloc(10000, 65 + n)); to.enqueue(Buffer.from('.')); to.close(); } }"),
  ];
  const whole = Array.from({ length: 40 }, (_, n) => String.fromCharCode(65 + n).repeat(10000)).join("") + ".";
  for (const source of sources) {
    const call = await load(source, { handler: source.includes("fetch") ? "index.fetch" : "index.handler" });
    const [, , body] = await call.raw();
    assert.equal(body.toString("latin1") === whole, true, source);
    assert(call.sent.length > 1, source);
  }
});

test("who makes a body hears that nobody waits for it", async () => {
  const call = await load(
    streaming("{ start(to) { this.to = to; to.enqueue(Buffer.from('x')); }, cancel(why) { globalThis.heard = why; } }"),
    { handler: "index.fetch" },
  );
  const ended = call();
  while (call.left.length === 0 || call.sent.length === 0) await new Promise(setImmediate);
  call.left.forEach((then) => then());
  assert.equal(await ended, "x");
  assert.match(globalThis.heard, /nobody waits/);
  delete globalThis.heard;
});

test("who can give something up hears that nobody waits for it", async () => {
  const listens = (signal) => `new Promise((_, reject) => ${signal}.addEventListener('abort', () => reject(${signal}.reason)))`;
  for (const [handler, source] of [
    ["index.handler", `exports.handler = (event, context) => ${listens("context.signal")};`],
    ["index.fetch", `exports.fetch = (request) => ${listens("request.signal")};`],
    [
      "index.handler",
      `exports.handler = (req, res) => {
        globalThis.heard = [];
        req.on("aborted", () => heard.push("req aborted")).on("close", () => heard.push("req close", req.destroyed, req.aborted));
        res.on("close", () => heard.push("res close"));
      };`,
    ],
  ]) {
    const call = await load(source, { handler });
    const ended = call("1", { method: "POST" });
    ended.catch(() => {});
    await new Promise(setImmediate);
    assert.equal(call.left.length, 1, source);
    call.left.forEach((then) => then());
    await assert.rejects(ended, { name: "AbortError", message: /nobody waits/ }, source);
  }
  await new Promise(setImmediate);
  assert.deepEqual(globalThis.heard.toSorted(), ["req aborted", "req close", "res close", true, true]);
  delete globalThis.heard;
  const call = await load("exports.handler = (event, context) => String(context.signal === context.signal);");
  assert.equal(await call("1"), "true");
});

const READERS = {
  "index.fetch": "exports.fetch = async (request) => new Response(await request.text());",
  "index.handler": "exports.handler = (req, res) => { let all = ''; req.on('data', (piece) => { all += piece; }); req.on('end', () => res.end(all)); };",
};

test("a body is read while it comes", async () => {
  for (const [handler, source] of Object.entries(READERS)) {
    const call = await load(source, { handler, body: "stream" });
    call.coming.push("one", "two", "x".repeat(100_000));
    assert.equal(await call("", { body: "stream" }), "onetwo" + "x".repeat(100_000), handler);
    assert.equal(await call("whole"), "whole", "what is short comes at once");
    const left = await load(source.replace("await request.text()", "await request.text().catch(() => 'lost')"), { handler, body: "stream" });
    left.coming.push("one", new Error("the client left"));
    const ended = left("", { body: "stream" });
    if (handler === "index.fetch") assert.equal(await ended, "lost");
    else await assert.rejects(ended, /the client left/);
  }
});

test("a body that nobody reads is not taken, and a request says that it has one", async () => {
  const unread = await load("exports.fetch = () => new Response('no');", { handler: "index.fetch", body: "stream" });
  unread.coming.push("one");
  assert.equal(await unread("", { body: "stream" }), "no");
  assert.equal(unread.coming.length, 1);
  const told = await load("exports.handler = (req, res) => res.end(JSON.stringify(req.headers));", { body: "stream" });
  assert.deepEqual(JSON.parse(await told("", { body: "stream" })), { "transfer-encoding": "chunked" });
  assert.deepEqual(JSON.parse(await told("", { body: "stream", headers: [["content-length", "3"]] })), { "content-length": "3" });
});

test("an event is a whole body", async () => {
  await assert.rejects(load("exports.handler = (event) => event;", { body: "stream" }), /takes an event, which is a whole body/);
});

test("a stream of something else says what it is", async () => {
  const call = await load(streaming("{ async start(to) { await null; to.enqueue(7); to.close(); } }"), { handler: "index.fetch" });
  await assert.rejects(call(), /a stream of Uint8Arrays, not of number/);
});

test("the event of a request by HTTP is all of it, where that is wanted", async () => {
  const call = await load("exports.handler = (event) => event;", { event: "http" });
  const head = { source: "http", method: "PUT", path: "/a", query: "b=1&b=2", headers: [["cookie", "c=1; d"], ["host", "a.b:1"]] };
  const event = JSON.parse(await call("text", head));
  assert.deepEqual([event.version, event.rawPath, event.queryStringParameters, event.cookies], ["2.0", "/a", { b: "1,2" }, ["c=1", "d"]]);
  assert.deepEqual([event.body, event.isBase64Encoded], ["text", false]);
  const binary = JSON.parse(await call(Buffer.from([0xff]), head));
  assert.deepEqual([binary.body, binary.isBase64Encoded], ["/w==", true]);
  assert.deepEqual([event.requestContext.domainName, event.requestContext.http.method], ["a.b", "PUT"]);
  assert.equal(JSON.parse(await call("{}", { ...head, headers: [["content-type", "application/json"]] })).body, "{}");
  for (const source of ["call", "lambda", "event"]) {
    assert.deepEqual(JSON.parse(await call('{"own": 1}', { source })), { own: 1 }, source);
  }
  for (const source of ["exports.handler = (req, res) => {};", "exports.handler = { fetch() {} };"]) {
    await assert.rejects(load(source, { event: "http" }), /remove event = "http"/);
  }
});
