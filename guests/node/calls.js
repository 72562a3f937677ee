// SPDX-License-Identifier: Apache-2.0
//
// Calls of other functions, as those who make them see them. It stands before
// `function.js`, in one scope with it and `values.js`, and is a part of what
// `sinew sdk node` writes.

const ERROR_BYTES_SHOWN = 256;

/** What comes of a call of a function that gave no answer, or one with a status of 400 and more. */
class CallError extends Error {
  constructor(name, status, kind, body) {
    const problem = kind === "application/problem+json" ? JSON.parse(body) : {};
    const { component = "function", request_id: requestId = "", suggestion = "" } = problem;
    const reason = problem.detail || `it answered with status ${status}: ${shown(body)}`;
    const request = requestId ? `, request ${requestId}` : "";
    const text = `calling ${name} failed: ${reason} (component ${component}${request})`;
    super(suggestion ? `${text}; ${suggestion}` : text);
    this.name = "CallError";
    Object.assign(this, { function: name, status, component, reason, requestId, suggestion, body });
  }
}

const shown = (body) => body.toString("utf8", 0, ERROR_BYTES_SHOWN) + (body.length > ERROR_BYTES_SHOWN ? "…" : "");

/** Type and body of what a function is called with. */
function payloadOf(payload) {
  if (payload === undefined || payload === null) return ["", Buffer.alloc(0)];
  if (typeof payload === "string") return ["text/plain; charset=utf-8", Buffer.from(payload)];
  const bytes = bytesOf(payload);
  // Who is called within this instance is given what it was when it was called.
  const given = bytes && settings.together ? Buffer.from(bytes) : bytes;
  return bytes ? ["application/octet-stream", given] : ["application/json", jsonBytes(payload, "the payload")];
}

/** What a function that was called has returned. */
function returned(kind, body) {
  if (body.length > 0) return eventOf(body, kind);
  if (kind.startsWith("text/")) return "";
  return kind === "application/octet-stream" ? body : null;
}

/** Calls the function of a name: a promise of what it returns. */
async function callFunction(name, payload) {
  if (typeof name !== "string") throw new TypeError(`a function is called by its name, a string, not ${typeof name}`);
  const [status, kind, body] = await server.ask(name, ...payloadOf(payload));
  if (status >= 400) throw new CallError(name, status, kind, body);
  return returned(kind, body);
}

