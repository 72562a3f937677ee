// SPDX-License-Identifier: Apache-2.0
//
// Drives a browser by its debugging pipe: `node browser.mjs BROWSER PROFILE` reads steps from its input, a line of JSON each, and writes an
// answer for each. `{"open": URL}`, `{"run": SCRIPT}` gives what a script in the page comes to, and `{"until": SCRIPT}` waits until that is
// true; `{"click": SELECTOR}` and `{"type": [SELECTOR, TEXT]}` do so by the mouse and the keys, as people do.
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";

const [browser, profile] = process.argv.slice(2);
const flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe", `--user-data-dir=${profile}`];
const child = spawn(browser, [...flags, "about:blank"], { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
const [, , , input, output] = child.stdio;
process.on("exit", () => child.kill("SIGKILL"));
setTimeout(() => process.exit(3), 300_000).unref();

const waiting = new Map();
let last = 0;
let rest = "";
output.setEncoding("utf8").on("data", (text) => {
  const parts = (rest + text).split("\0");
  rest = parts.pop();
  for (const part of parts) {
    const { id, result, error } = JSON.parse(part);
    const found = waiting.get(id);
    waiting.delete(id);
    if (error) found?.reject(new Error(error.message));
    else found?.resolve(result);
  }
});

function ask(method, params = {}, sessionId = undefined) {
  const id = ++last;
  input.write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
  return new Promise((resolve, reject) => waiting.set(id, { resolve, reject }));
}

const { targetId } = await ask("Target.createTarget", { url: "about:blank" });
const { sessionId } = await ask("Target.attachToTarget", { targetId, flatten: true });
const page = (method, params) => ask(method, params, sessionId);

async function run(script) {
  const { result, exceptionDetails } = await page("Runtime.evaluate", { expression: script, returnByValue: true, awaitPromise: true });
  if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
  return result.value;
}

async function until(script) {
  const end = Date.now() + 30_000;
  for (;;) {
    if (await run(script)) return true;
    if (Date.now() > end) throw new Error(`it never came to be: ${script}\n${await run("document.body?.innerText")}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** Where an element is, once it is there. */
async function placeOf(selector) {
  const found = `document.querySelector(${JSON.stringify(selector)})`;
  await until(`${found} !== null`);
  const [x, y] = await run(`(() => { const it = ${found}; it.scrollIntoView({ block: "center" }); const { left, top, width, height } = it.getBoundingClientRect(); return [left + width / 2, top + height / 2]; })()`);
  return { x, y };
}

async function click(selector) {
  const place = await placeOf(selector);
  for (const type of ["mousePressed", "mouseReleased"]) await page("Input.dispatchMouseEvent", { type, ...place, button: "left", clickCount: 1 });
}

async function type([selector, text]) {
  await click(selector);
  await run(`document.querySelector(${JSON.stringify(selector)}).select()`);
  await page("Input.insertText", { text });
}

const steps = { open: (url) => page("Page.navigate", { url }), run, until, click, type };

for await (const line of createInterface({ input: process.stdin })) {
  const [[name, value]] = Object.entries(JSON.parse(line));
  let answer;
  try {
    answer = { ok: (await steps[name](value)) ?? null };
  } catch (error) {
    answer = { failed: error.message };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
process.exit(0);
