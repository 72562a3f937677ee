// SPDX-License-Identifier: Apache-2.0
// The last requests, and one of them: where its time went, what it printed.

import { get, part } from "./api.js";
import { bytes, cards, h, money, table, time, when } from "./elements.js";

/** The end of an id tells it from its neighbours; the whole one is in the title. */
const link = ({ request_id: id }) => {
  const shown = id.length > 14 ? `…${id.slice(-12)}` : id;
  return h("a", { href: `#/requests/${part(id)}`, title: id }, h("code", {}, shown));
};

/** Requests, the newest first. */
export function requestsTable(records, withFunction) {
  if (records.length === 0) return h("p", { class: "quiet" }, "No requests yet.");
  const name = (record) => h("a", { href: `#/functions/${part(record.function)}` }, record.function);
  const columns = [["ended"], ["function"], ["status", true], ["took", true], ["start"], ["request"], ["says"]];
  const rows = records.toReversed().map((record) => [
    when(record.time_ms),
    name(record),
    status(record.status),
    time(record.total_us),
    record.start,
    link(record),
    h("td", { class: "line" }, says(record)),
  ]);
  const keep = (_, index) => withFunction || index !== 1;
  return table("Requests", columns.filter(keep), rows.map((row) => row.filter(keep)));
}

/** All requests that the node remembers, as far as a reader wants them. */
export async function requestsPage(_, query) {
  const [onlyFailed, text] = [query.get("failed") === "yes", query.get("text") ?? ""];
  const wanted = { function: query.get("function") ?? "", text, failed: onlyFailed, limit: 200 };
  const [logs, { functions }] = await Promise.all([getWithRunning(wanted), get("functions")]);
  const go = (change) => {
    const next = new URLSearchParams(location.hash.split("?")[1]);
    for (const [name, value] of Object.entries(change)) value ? next.set(name, value) : next.delete(name);
    location.hash = `#/requests?${next}`;
  };
  const option = (value, text) => h("option", { value, selected: value === wanted.function }, text);
  return [
    h("h1", {}, "Requests"),
    h("div", { class: "filter" },
      h("label", {}, "Function ", h("select", { onchange: (event) => go({ function: event.target.value }) },
        option("", "all"), functions.map(({ name }) => option(name, name)),
        // A step's function is none of the node's own.
        functions.some(({ name }) => name === wanted.function) || !wanted.function ? undefined : option(wanted.function, wanted.function))),
      h("label", {}, h("input", { type: "checkbox", checked: onlyFailed, onchange: (event) => go({ failed: event.target.checked ? "yes" : "" }) }),
        " only those that failed"),
      h("label", {}, "Printed ", h("input", { type: "search", value: text, placeholder: "a text", onchange: (event) => go({ text: event.target.value }) }))),
    // One element, whatever is in it: a page whose parts stay as many keeps what is typed.
    h("section", {}, text || logs.running.length === 0 ? undefined : h("h2", {}, "Running, and printing"),
      text ? undefined : logs.running.map(runningLines)),
    requestsTable(logs.records, true),
  ];
}

/** The same with what is printed by requests that run. */
const getWithRunning = (wanted) => {
  const said = Object.entries(wanted).filter(([, value]) => value !== "" && value !== false);
  return get(`logs?${new URLSearchParams([["running", ""], ...said])}`);
};

/** Lines, each with when it was printed, and what went to standard error apart. */
function printed(lines) {
  return h("pre", { class: "printed" }, lines.flatMap(({ time_us, stream, text }) => [
    h("span", { class: "quiet", title: stream === "err" ? "standard error" : "standard output" }, `${when(time_us / 1000)} `),
    h("span", { class: stream }, `${text}\n`),
  ]));
}

/** A request that runs, and the last of what it has printed. */
function runningLines(running) {
  return h("section", {},
    h("p", {}, h("a", { href: `#/functions/${part(running.function)}` }, running.function), " ",
      h("span", { class: "quiet" }, `version ${running.version}, since ${when(running.begun_us / 1000)}`), " ", link(running)),
    printed(running.lines.slice(-200)));
}

/** One request. */
export async function requestPage([id]) {
  const { records, running } = await getWithRunning({ request_id: id, lines: true });
  if (records.length === 0 && running.length > 0) {
    return [h("h1", {}, "Request"), h("p", {}, "It runs."), ...running.map(runningLines)];
  }
  if (records.length === 0) {
    return [h("h1", {}, "Request"), h("p", {}, "The node remembers no request ", h("code", {}, id),
      ". It keeps those that printed something or failed, and of all others the last ones since it was started.")];
  }
  const called = records.filter((record) => record.parent !== undefined);
  return [...records.length > 1 ? callTree(records) : [], ...records.toSorted((a, b) => a.begun_us - b.begun_us).flatMap((record) => [
    h(called.includes(record) ? "h2" : "h1", {}, called.includes(record) ? "Call of " : "Request to ", h("a", { href: `#/functions/${part(record.function)}` }, record.function), " ",
      h("span", { class: "quiet" }, `version ${record.version}`)),
    cards([
      ["status", status(record.status)],
      ["took", time(record.total_us)],
      ["start", record.start],
      ["ended", when(record.time_ms)],
      ...used(record),
    ]),
    record.failure ? h("p", { class: "bad" }, record.failure.split("\n")[0]) : undefined,
    h("h2", {}, "Where the time went"),
    timeline(record),
    h("h2", {}, "What it printed"),
    record.lines.length > 0 ? printed(record.lines) : h("p", { class: "quiet" }, "Nothing."),
    record.failure?.includes("\n") ? [h("h2", {}, "Why it failed"), h("pre", {}, record.failure)] : undefined,
    h("p", { class: "quiet" }, h("code", {}, `sinew logs --request-id ${record.request_id}`)),
  ].flat().filter(Boolean))];
}

/** The request and the calls between functions that it led to: each where it stood in time, below its caller. */
function callTree(records) {
  const known = new Set(records.map(({ span }) => span).filter(Boolean));
  const begun = Math.min(...records.map((record) => record.begun_us));
  const whole = Math.max(...records.map((record) => record.begun_us + record.total_us)) - begun;
  const below = (span) => records.filter((record) => (span ? record.parent === span : !known.has(record.parent)))
    .sort((a, b) => a.begun_us - b.begun_us);
  const rows = [];
  const seen = new Set();
  const add = (record, depth) => {
    if (seen.has(record)) return;
    seen.add(record);
    const bar = h("div", { class: `bar ${record.failure ? "start" : "run"}`, title: `${time(record.total_us)}, ${record.status}` });
    bar.style.left = `${(100 * (record.begun_us - begun)) / Math.max(whole, 1)}%`;
    bar.style.width = `${(100 * record.total_us) / Math.max(whole, 1)}%`;
    const label = h("span", { class: "called" }, h("a", { href: `#/functions/${part(record.function)}` }, record.function), " ", status(record.status));
    label.style.paddingLeft = `${depth}rem`;
    rows.push(label, h("div", { class: "track" }, bar), h("span", { class: "quiet" }, time(record.total_us)));
    if (record.span) below(record.span).forEach((call) => add(call, depth + 1));
  };
  below().forEach((record) => add(record, 0));
  const sum = (member) => records.reduce((total, { usage }) => total + (usage[member] ?? 0), 0);
  const price = records.some(({ usage }) => usage.price !== undefined)
    ? [["price, all calls", `${money(sum("price"))} ${records[0].currency ?? ""}`]] : [];
  return [
    h("h1", {}, "Calls"),
    cards([["calls", String(records.length)], ["processor, all calls", time(sum("cpu_us"))], ["held, all calls", time(sum("held_us"))], ...price]),
    h("div", { class: "timeline", "aria-label": "Call tree" }, rows),
  ];
}

/** What it took of the machine, as far as that is known, and its price. */
function used({ usage, currency }) {
  const cpu = usage.cpu_us === undefined ? undefined : [usage.cpu_is === "share" ? "processor, its share" : "processor", time(usage.cpu_us)];
  const peak = usage.memory_peak_bytes === undefined ? undefined : ["memory of the instance", `${bytes(usage.memory_peak_bytes)} of ${bytes(usage.memory_bytes)}`];
  const waited = usage.waiting_us > 0 ? ["waited for other functions", time(usage.waiting_us)] : undefined;
  const price = usage.price === undefined ? undefined : ["price", `${money(usage.price)} ${currency ?? ""}`];
  const bodies = ["received, sent", `${bytes(usage.received_bytes)}, ${bytes(usage.sent_bytes)}`];
  return [cpu, peak, waited, bodies, price].filter(Boolean);
}

/** Waiting, starting, running, one below the other. */
function timeline(record) {
  const running = Math.max(record.total_us - record.queued_us - record.starting_us, 0);
  const phases = [
    ["waited for its turn", "queue", record.queued_us],
    [`instance: ${record.start}`, "start", record.starting_us],
    ["ran, and the way there", "run", running],
  ];
  let before = 0;
  const rows = phases.map(([name, kind, us]) => {
    const bar = h("div", { class: `bar ${kind}` });
    bar.style.left = `${(100 * before) / Math.max(record.total_us, 1)}%`;
    bar.style.width = `${(100 * us) / Math.max(record.total_us, 1)}%`;
    before += us;
    return [h("span", {}, name), h("div", { class: "track" }, us > 0 ? bar : undefined), h("span", { class: "quiet" }, time(us))];
  });
  return h("div", { class: "timeline" }, rows.flat());
}

function status(code) {
  return h("span", { class: code >= 500 ? "bad" : code >= 400 ? "quiet" : "good" }, String(code));
}

/** The first line that says something. */
function says(record) {
  const text = record.failure ?? record.log.trimStart();
  return h("span", { class: record.failure ? "bad" : "quiet" }, text.split("\n")[0].slice(0, 160));
}
