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

/** What the last call from here was answered, also while that comes. */
export function callAnswer({ name }) {
  const { leave, failure, answer } = calls.get(name) ?? {};
  const running = leave && h("p", { class: "quiet" }, "It runs … ", h("button", { type: "button", onclick: leave, "aria-label": `Leave ${name}` }, "leave it"));
  return h("section", { "aria-live": "polite" }, running, failure && h("p", { class: "bad" }, failure), ...(answer ? shown(answer) : []));
}

function shown({ status, took, kind, length, isCut, text, id }) {
  const facts = [took === undefined ? "" : ` in ${time(took)}`, `, ${isCut ? "over " : ""}${bytes(length)}${kind ? ` of ${kind}` : ""}`, id ? ", " : ""];
  return [
    h("p", {}, h("span", { class: status < 400 ? "good" : "bad" }, String(status)), ...facts,
      id ? h("a", { href: `#/requests/${part(id)}` }, "the request") : undefined),
    text === "" ? undefined : h("pre", { class: "answer" }, isCut ? `${text}…` : text),
  ];
}

/** Calls it with what was typed: JSON, or a text if it is none. */
async function send(known, url) {
  const begun = performance.now();
  const leaving = new AbortController();
  Object.assign(known, { leave: () => leaving.abort(), failure: undefined, answer: undefined });
  refresh();
  try {
    const kind = isJson(known.text) ? "application/json" : "text/plain; charset=utf-8";
    const response = await call(url, known.text, kind, leaving.signal);
    // Where it leads to is kept from pages.
    if (response.type === "opaqueredirect") throw new Error("it answers with a redirect, which a page may not look at");
    const { status, headers } = response;
    known.answer = { status, kind: headers.get("content-type") ?? "", id: headers.get("x-request-id"), length: 0, isCut: false, text: "" };
    await read(response, known.answer);
    known.answer.took = Math.round((performance.now() - begun) * 1000);
  } catch (error) {
    known.failure = error.name === "AbortError" ? "You have left it." : `There is no answer: ${error.message}`;
  }
  known.leave = undefined;
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

/** As much of an answer as is shown, as it comes; of the rest nothing is waited for. */
async function read(response, answer) {
  const decoder = new TextDecoder();
  const reader = response.body?.getReader();
  while (reader && !answer.isCut) {
    const { done, value } = await reader.read();
    if (done) break;
    const piece = value.subarray(0, SHOWN_BYTES - answer.length);
    answer.text += decoder.decode(piece, { stream: true });
    answer.length += piece.length;
    answer.isCut = piece.length < value.length;
  }
  if (answer.isCut) await reader.cancel();
  answer.text += decoder.decode();
}
