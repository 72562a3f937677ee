// SPDX-License-Identifier: Apache-2.0
// The key by which this tab uses the node's API, where that needs one.

import { key } from "./api.js";
import { h } from "./elements.js";

/** A field for the key; `why` says for what it is needed. */
export function keyPage(_, __, why) {
  const field = h("input", {
    type: "password", name: "key", autocomplete: "off", spellcheck: "false", placeholder: "sinew_…", "aria-label": "API key", required: true,
  });
  const use = (event) => {
    event.preventDefault();
    key.set(field.value.trim());
    leave();
  };
  const forget = () => {
    key.set("");
    leave();
  };
  return [
    h("h1", {}, "Key"),
    why ? h("p", { class: "bad" }, why) : undefined,
    h("p", {}, "A node that other machines can reach answers only to keys. ", h("code", {}, "sinew key create --scope deploy"),
      " on its machine makes one."),
    h("form", { class: "filter", onsubmit: use }, field, h("button", { type: "submit" }, "Use it"),
      key.get() ? h("button", { type: "button", onclick: forget }, "Forget it") : undefined),
    h("p", { class: "quiet" }, key.get() ? "This tab has a key. " : "",
      "It is kept by this tab until it is closed, and sent to this node only."),
  ].filter(Boolean);
}

/** Back to where it was needed, or to the first page. */
function leave() {
  if (location.hash === "#/key") location.hash = "#/";
  else dispatchEvent(new Event("hashchange"));
}
