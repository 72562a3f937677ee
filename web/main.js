// SPDX-License-Identifier: Apache-2.0
// Which page is shown, and that it stays true: it is asked for again each second.

import { get } from "./api.js";
import { h, time } from "./elements.js";
import { functionPage, functionsPage } from "./functions.js";
import { keyPage } from "./key.js";
import { queuePage } from "./queue.js";
import { requestPage, requestsPage } from "./requests.js";
import { runPage, runsPage } from "./runs.js";

const PAGES = [
  [/^\/?$/, functionsPage],
  [/^\/functions\/([^/]+)$/, functionPage],
  [/^\/requests$/, requestsPage],
  [/^\/requests\/([^/]+)$/, requestPage],
  [/^\/runs$/, runsPage],
  [/^\/runs\/([^/]+)$/, runPage],
  [/^\/queue$/, queuePage],
  [/^\/key$/, keyPage],
];
const EVERY_MS = 1000;

const page = document.getElementById("page");
const notice = document.getElementById("notice");
/** Counts the pages that were gone to: an answer for an earlier one is late. */
let visit = 0;
let timer;
/** What a mouse or a finger is on now. */
let pressed;

async function show(isNew) {
  clearTimeout(timer);
  const mine = isNew ? ++visit : visit;
  const [path, search] = location.hash.slice(1).split("?");
  const query = new URLSearchParams(search);
  try {
    const content = await build(path, query);
    if (mine !== visit) return;
    notice.hidden = true;
    swap(content);
  } catch (error) {
    if (mine !== visit) return;
    if (error.status === 401 || error.status === 403) {
      notice.hidden = true;
      if (isNew || page.querySelector("form") === null) page.replaceChildren(...keyPage([], query, error.message));
      return mark(path);
    }
    if (isNew || error.status === 404) page.replaceChildren(h("p", { class: "quiet" }, error.message));
    notice.hidden = error.status !== undefined;
    notice.textContent = `The node does not answer: ${error.message}`;
  }
  mark(path);
  timer = setTimeout(() => show(false), EVERY_MS);
}

function build(path, query) {
  for (const [pattern, make] of PAGES) {
    const found = pattern.exec(path);
    if (found) return make(found.slice(1).map(decodeURIComponent), query);
  }
  return [h("p", {}, "There is no such page. ", h("a", { href: "#/" }, "All functions"))];
}

/** Changes only what is different, so that what a reader marked, opened or scrolled stays. */
function swap(content) {
  const fresh = h("main", {}, ...content);
  if (page.children.length !== fresh.children.length) {
    const focused = page.contains(document.activeElement) ? document.activeElement : undefined;
    page.replaceChildren(...fresh.childNodes);
    return focusAgain(focused);
  }
  [...fresh.children].forEach((child, index) => {
    const old = page.children[index];
    if (old.isEqualNode(child)) return;
    const focused = old.contains(document.activeElement) ? document.activeElement : undefined;
    // What is pressed is let go of before it is another element: else that would be no click.
    if (pressed && old.contains(pressed)) return;
    // A field keeps what is typed, and a button what it asks, or does.
    if ((focused && !["a", "button"].includes(focused.localName)) || old.querySelector("button.asks, button.busy")) return;
    const scrolled = old.scrollLeft;
    old.replaceWith(child);
    child.scrollLeft = scrolled;
    focusAgain(focused);
  });
}

/** Who goes by keys stays where he was: at what has the same name, or leads to the same place. */
function focusAgain(focused) {
  if (!focused) return;
  const name = focused.localName === "a" ? "href" : "aria-label";
  const isSame = (other) => (focused.id ? other.id === focused.id : other.getAttribute(name) === focused.getAttribute(name));
  [...page.querySelectorAll(focused.localName)].find(isSame)?.focus({ preventScroll: true });
}

function mark(path) {
  for (const link of document.querySelectorAll("nav a")) {
    const target = link.getAttribute("href").slice(1);
    const isHere = target === "/" ? path === "" || path === "/" || path.startsWith("/functions") : path.startsWith(target);
    isHere ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
  }
}

async function aboutNode() {
  const status = await get("status").catch(() => undefined);
  if (status) document.getElementById("node").textContent = `${status.version}, up ${time(status.uptime_s * 1e6)}`;
  setTimeout(aboutNode, 30 * EVERY_MS);
}

addEventListener("hashchange", () => show(true));
addEventListener("changed", () => show(false));
addEventListener("pointerdown", ({ target }) => { pressed = target; });
for (const ended of ["pointerup", "pointercancel"]) addEventListener(ended, () => setTimeout(() => { pressed = undefined; }));
document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : show(false)));
show(true);
aboutNode();
