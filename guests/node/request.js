// SPDX-License-Identifier: Apache-2.0
//
// What a handler may know of its request. It stands before `function.js`, in one
// scope with it and `values.js`, and is a part of what `sinew sdk node` writes.

const LINE_BREAK = 10;

const nobodyWaits = () => new DOMException("nobody waits for the answer any more", "AbortError");

/** A head: a line about the call, and one about its HTTP side, which few handlers look at. */
class Head {
  #later;
  #http;

  /** Of its bytes, or of both lines as they are: the second one is made when it is asked for. */
  constructor(given) {
    const end = Buffer.isBuffer(given) ? given.indexOf(LINE_BREAK) : 0;
    const part = (from, to) => (end > 0 ? JSON.parse(given.toString("utf8", from, to)) : {});
    [this.call, this.#later] = end === 0 ? [given.call, given.http] : [part(0, end), () => part(end + 1)];
  }

  get http() { return (this.#http ??= this.#later()); }
  get contentType() { return this.call.content_type ?? ""; }
}

/** Lower-case names and values; those of one name are joined, as Node does. */
function joined(headers) {
  const all = {};
  for (const [name, value] of headers) {
    if (name === "set-cookie") (all[name] ??= []).push(value);
    else all[name] = Object.hasOwn(all, name) ? all[name] + (name === "cookie" ? "; " : ", ") + value : value;
  }
  return all;
}

/** A signal that is aborted when nobody waits for a call's answer any more: its client has left, or its time is used up. */
function signalOf(outgoing) {
  const controller = new AbortController();
  outgoing.onLeft(() => controller.abort(nobodyWaits()));
  return controller.signal;
}

/** What a handler may know about its call. */
class Context {
  #head;
  #deadlineMs;
  #outgoing = server.outgoing();
  #signal;

  constructor(request, head) {
    const { deadline_ms: deadlineMs, request_id: requestId, function: name, version } = head.call;
    this.#head = head;
    this.#deadlineMs = deadlineMs || Date.now() + timeoutMs;
    this.awsRequestId = requestId ?? (request.length === 16 ? uuid(request) : "");
    this.functionName = name ?? "";
    this.functionVersion = version ?? 0;
    this.memoryLimitInMB = memoryMb;
    // Lambda's switch for the callback style; here the callback is the end.
    this.callbackWaitsForEmptyEventLoop = false;
  }

  get request_id() { return this.awsRequestId; }
  get aws_request_id() { return this.awsRequestId; }
  get function_name() { return this.functionName; }
  get function_version() { return this.functionVersion; }
  get memory_limit_in_mb() { return this.memoryLimitInMB; }

  getRemainingTimeInMillis() {
    return Math.max(0, Math.floor(this.#deadlineMs - Date.now()));
  }

  get_remaining_time_in_millis() {
    return this.getRemainingTimeInMillis();
  }

  /** For what can be given up: it is made when it is asked for. */
  get signal() { return (this.#signal ??= signalOf(this.#outgoing)); }

  /** The attributes of the CloudEvent that the request is; null if it is none. */
  get cloudEvent() {
    const given = (this.#head.http.headers ?? []).filter(([name]) => name.startsWith("ce-"));
    const event = Object.fromEntries(given.map(([name, value]) => [name.slice(3), unescaped(value)]));
    return "specversion" in event ? event : null;
  }

  /** The HTTP side of a request; `query` has the last value of each name. */
  get http() {
    const { method = "POST", path: place = "/", query = "", headers = [], route, params = [], client = null, scheme = "http" } = this.#head.http;
    return {
      method,
      scheme,
      client,
      path: place,
      route,
      params: Object.fromEntries(params),
      query: Object.fromEntries(new URLSearchParams(query)),
      queryString: query,
      headers: joined(headers),
    };
  }
}

function unescaped(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function uuid(bytes) {
  const digits = bytes.toString("hex");
  return [digits.slice(0, 8), digits.slice(8, 12), digits.slice(12, 16), digits.slice(16, 20), digits.slice(20)].join("-");
}

