// SPDX-License-Identifier: Apache-2.0
// A function called from its page: what it is called with, and what it answers.

import { refresh } from "./acting.js";
import { call, part } from "./api.js";
import { bytes, h, time } from "./elements.js";

/** Of an answer that is shown. */
const SHOWN_BYTES = 64 << 10;

/** By the function's name: what was typed, and what came of it. A page is made anew each second. */
const calls = new Map();

/** A field for what the function is called with. */
export function callForm({ name, url }) {
  const known = calls.get(name) ?? { text: "{}" };
  calls.set(name, known);
  const field = h("textarea", {
    name: "body", rows: 4, spellcheck: "false", autocomplete: "off", "aria-label": `What ${name} is called with`,
    oninput: (event) => { known.text = event.target.value; },
  }, known.text);
  const go = (event) => {
    event.preventDefault();
    void send(known, url);
  };
  return h("form", { class: "call", onsubmit: go }, field, h("button", { type: "submit" }, "Call it"),
    h("code", { class: "quiet" }, `sinew invoke ${name} -d '…'`));
}

/** What the last call from here was answered. */
export function callAnswer({ name }) {
  const { running, failure, answer } = calls.get(name) ?? {};
  if (running) return h("section", { "aria-live": "polite" }, h("p", { class: "quiet" }, "It runs …"));
  if (failure) return h("section", { "aria-live": "polite" }, h("p", { class: "bad" }, failure));
  if (!answer) return h("section", { "aria-live": "polite" });
  const { status, took, kind, length, isCut, text, id } = answer;
  return h("section", { "aria-live": "polite" },
    h("p", {}, h("span", { class: status < 400 ? "good" : "bad" }, String(status)), ` in ${time(took)}, `,
      `${isCut ? "over " : ""}${bytes(length)}${kind ? ` of ${kind}` : ""}`, id ? ", " : "",
      id ? h("a", { href: `#/requests/${part(id)}` }, "the request") : undefined),
    text === "" ? undefined : h("pre", { class: "answer" }, isCut ? `${text}…` : text));
}

/** Calls it with what was typed: JSON, or a text if it is none. */
async function send(known, url) {
  const begun = performance.now();
  Object.assign(known, { running: true, failure: undefined, answer: undefined });
  refresh();
  try {
    const response = await call(url, known.text, isJson(known.text) ? "application/json" : "text/plain; charset=utf-8");
    const { text, length, isCut } = await beginningOf(response);
    known.answer = {
      status: response.status, took: Math.round((performance.now() - begun) * 1000), kind: response.headers.get("content-type") ?? "",
      id: response.headers.get("x-request-id"), length, isCut, text,
    };
  } catch (error) {
    known.failure = `The node does not answer: ${error.message}`;
  }
  known.running = false;
  refresh();
}

function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** As much of an answer as is shown; of the rest nothing is waited for. */
async function beginningOf(response) {
  const pieces = [];
  let length = 0;
  const reader = response.body?.getReader();
  while (reader && length <= SHOWN_BYTES) {
    const { done, value } = await reader.read();
    if (done) return { text: decoded(pieces, length), length, isCut: false };
    pieces.push(value);
    length += value.length;
  }
  await reader?.cancel();
  return { text: decoded(pieces, SHOWN_BYTES), length: SHOWN_BYTES, isCut: length > SHOWN_BYTES };
}

function decoded(pieces, length) {
  const whole = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    whole.set(piece, at);
    at += piece.length;
  }
  return new TextDecoder().decode(whole.subarray(0, length));
}
