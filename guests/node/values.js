// SPDX-License-Identifier: Apache-2.0
//
// Values as JSON and as events. It stands before `function.js`, in one scope with
// it, which has `isUtf8`, and is a part of what `sinew sdk node` writes.

const DEPTH_MAX = 200;
const FORM = "application/x-www-form-urlencoded";
const TEXT_TYPES = new Set([
  FORM, "application/xml", "application/javascript", "application/yaml", "application/x-ndjson",
  "application/graphql", "application/sql",
]);

const isObject = (value) => typeof value === "object" && value !== null;

/** Bytes of a Buffer, typed array or ArrayBuffer; null of anything else. */
function bytesOf(value) {
  if (Buffer.isBuffer(value)) return value;
  if (ArrayBuffer.isView(value)) return Buffer.from(value.buffer, value.byteOffset, value.byteLength);
  if (value instanceof ArrayBuffer || value instanceof SharedArrayBuffer) return Buffer.from(value);
  return null;
}

function jsonBytes(value, what) {
  let text, reason;
  try {
    text = JSON.stringify(value);
  } catch (error) {
    reason = error.message;
  }
  if (text !== undefined) return Buffer.from(text);
  const [place, why] = culprit(value, "", []) ?? ["", reason ?? "it has no value"];
  throw new TypeError(
    `${what}${place} cannot be written as JSON: ${why}; return objects, arrays, strings, numbers, booleans, null or a Buffer`,
  );
}

/** Path and reason of the first value within that makes JSON.stringify fail. */
function culprit(value, place, above) {
  if (typeof value === "bigint") return [place, "it is a BigInt"];
  if (typeof value === "function" || typeof value === "symbol") return place === "" ? [place, `it is a ${typeof value}`] : null;
  if (!isObject(value) || typeof value.toJSON === "function") return null;
  if (above.includes(value)) return [place, "it contains itself"];
  if (above.length === DEPTH_MAX) return [place, "it is nested too deep"];
  for (const [key, item] of Object.entries(value)) {
    const step = Array.isArray(value) ? `[${key}]` : /^[A-Za-z_$][\w$]*$/.test(key) ? `.${key}` : `[${JSON.stringify(key)}]`;
    const found = culprit(item, place + step, [...above, value]);
    if (found) return found;
  }
  return null;
}

/** The event that a body is. */
function eventOf(body, declared) {
  if (body.length === 0) return {};
  const [kind, ...parameters] = declared.split(";").map((part) => part.trim().toLowerCase());
  const isJson = kind === "" || kind === "application/json" || kind.endsWith("+json");
  // What `curl -d` sends says that it is a form, whatever it is.
  if (isJson || (kind === FORM && (body[0] === 0x7b || body[0] === 0x5b))) {
    try {
      if (isUtf8(body)) return JSON.parse(textOf(body, "utf-8"));
    } catch {
      // Then it is a text.
    }
  }
  if (isJson || kind.startsWith("text/") || TEXT_TYPES.has(kind) || kind.endsWith("+xml")) {
    const charset = parameters.find((part) => part.startsWith("charset="))?.slice(8).replaceAll('"', "") || "utf-8";
    try {
      return textOf(body, charset);
    } catch {
      // Then it is bytes.
    }
  }
  return body;
}

function textOf(body, charset) {
  const hasMark = body.length > 2 && body[0] === 0xef && body[1] === 0xbb && body[2] === 0xbf;
  if (charset === "utf-8" && !hasMark && isUtf8(body)) return body.toString("utf8");
  return new TextDecoder(charset, { fatal: true }).decode(body);
}

