// SPDX-License-Identifier: Apache-2.0
// Buttons that have the node do something, and say how that went.

import { h } from "./elements.js";

/** How long a button that asks waits for the second click. */
const ASKED_MS = 5000;

/**
 * A button. `act` is what it does; `label` says of what, to those who do not see where it stands. With `sure` it asks that
 * first, and acts when it is clicked again.
 */
export function button(text, label, act, sure) {
  const own = h("button", { type: "button", "aria-label": label }, text);
  const is = (state, shown) => {
    own.className = state;
    own.textContent = shown;
    own.disabled = state === "busy";
  };
  own.addEventListener("click", async ({ detail }) => {
    // Who clicks twice by habit has not been asked.
    if (detail > 1) return;
    if (sure && own.className !== "asks") {
      is("asks", sure);
      setTimeout(() => own.className === "asks" && is("", text), ASKED_MS);
      return;
    }
    is("busy", "…");
    said("");
    try {
      await act();
    } catch (error) {
      said(`${label}: ${error.message}`);
    }
    is("", text);
    refresh();
  });
  return own;
}

/** Tells how something went, above the page and until it is clicked: the page itself is made anew each second. */
function said(text) {
  const place = document.getElementById("said");
  place.textContent = text;
  place.hidden = text === "";
  place.onclick = () => said("");
}

/** Has the page asked for again now, and not in a second. */
export const refresh = () => dispatchEvent(new Event("changed"));
