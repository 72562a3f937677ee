// SPDX-License-Identifier: Apache-2.0
//
// The last part of what `sinew sdk node` writes, behind `values.js`, `request.js` and `calls.js`.

// ------------------------------------------------- where no node runs this

const NODE = "http://127.0.0.1:8080";
// As long as a function may take at most.
const CALL_TIMEOUT_MS = 24 * 3_600_000;
const settings = {};
const timeoutMs = 60_000;
const memoryMb = 256;
const server = { ask, outgoing: () => ({ onLeft() {} }) };

/** Calls the function of a name of a node: status, type and body of the answer. */
async function ask(name, kind, body) {
  const node = process.env.SINEW_NODE || NODE;
  const key = (process.env.SINEW_KEY ?? "").trim();
  const headers = { ...(kind && { "content-type": kind }), ...(key && { authorization: `Bearer ${key}` }) };
  const place = placeOf(node);
  try {
    return await asked({ ...place, method: "POST", path: `/function/${encodeURIComponent(name).replaceAll("%3A", ":")}`, headers }, body);
  } catch (error) {
    const detail = `the node at ${node} did not answer: ${error.message || error.code || error.name}`;
    const suggestion = "start one with `sinew up` or `sinew dev`, say in SINEW_NODE where it is, or give `sinew.call` another function in this test";
    return [503, "application/problem+json", Buffer.from(JSON.stringify({ component: "sdk", detail, suggestion }))];
  }
}

/** What `SINEW_NODE` names: a URL, or the path of a node's socket. */
function placeOf(node) {
  if (!node.includes("://")) return { socketPath: node };
  const { protocol, hostname, port, pathname, search } = new URL(node);
  if ((protocol !== "http:" && protocol !== "https:") || pathname !== "/" || search) {
    throw new TypeError(`SINEW_NODE is ${node}: it is a URL like ${NODE}, or the path of a node's socket`);
  }
  const ca = protocol === "https:" && process.env.SINEW_CA;
  return { protocol, hostname: hostname.replace(/^\[|\]$/g, ""), port, ...(ca && { ca: readFileSync(ca) }) };
}

function asked(options, body) {
  return new Promise((resolve, reject) => {
    const request = (options.protocol === "https:" ? https : http).request({ ...options, signal: AbortSignal.timeout(CALL_TIMEOUT_MS) }, async (response) => {
      try {
        const pieces = [];
        for await (const piece of response) pieces.push(piece);
        resolve([response.statusCode, response.headers["content-type"] ?? "", Buffer.concat(pieces)]);
      } catch (error) {
        reject(error);
      }
    });
    request.on("error", reject);
    request.end(body);
  });
}

/** What a handler is given as its context, for a test. */
export function localContext(given = {}) {
  const { requestId = "00000000-0000-7000-8000-000000000000", functionName = "local", functionVersion = 1, timeoutMs: time = timeoutMs, memoryMb: memory = memoryMb } = given;
  const { method = "POST", path = "/", query = "", headers = {}, route, params = {}, scheme = "http", client = null } = given;
  const pairs = (Array.isArray(headers) ? headers : Object.entries(headers)).map(([name, value]) => [name.toLowerCase(), value]);
  const call = { request_id: requestId, function: functionName, version: functionVersion, deadline_ms: Date.now() + time };
  const sent = { method, path, query, headers: pairs, route, params: Object.entries(params), scheme, client };
  const context = new Context(Buffer.alloc(0), new Head({ call, http: () => sent }));
  context.memoryLimitInMB = memory;
  return context;
}

globalThis.sinew ??= { call: callFunction, CallError };
export const sinew = globalThis.sinew;
