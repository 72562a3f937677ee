// SPDX-License-Identifier: Apache-2.0
// The last runs of workflows, and one of them: its graph, where its time went, its steps.

import { button } from "./acting.js";
import { get, part, remove } from "./api.js";
import { bytes, cards, count, h, svg, table, time, when } from "./elements.js";
import { graphKeys, graphPicture } from "./run_graph.js";
import { grouped } from "./run_groups.js";
import { groupTimes, stepTimes, timeKeys } from "./run_times.js";

const RUNS = 100;
/** Steps of one page of a table. */
const ROWS = 50;
/** Failures that are told in full. */
const FAILURES = 5;
/** With more steps than this, the steps of a run that goes on are asked for less often. */
const STEPS_OFTEN = 1000;
const RARELY_MS = 5000;
const OVER = ["succeeded", "failed", "cancelled"];

const link = ({ id }) => h("a", { href: `#/runs/${part(id)}`, title: id }, h("code", {}, `…${id.slice(-12)}`));

/** The last runs, the newest first. */
export async function runsPage(_, query) {
  const wanted = query.get("workflow") ?? "";
  const [{ runs }, { workflows }] = await Promise.all([get("runs", { workflow: wanted, limit: RUNS }), get("runs", { limit: 0 })]);
  if (workflows.length === 0 && runs.length === 0) return [h("h1", {}, "Runs"), noWorkflows()];
  const go = (event) => (location.hash = event.target.value ? `#/runs?workflow=${part(event.target.value)}` : "#/runs");
  const option = (value, text) => h("option", { value, selected: value === wanted }, text);
  const of = (...states) => runs.filter(({ state }) => states.includes(state)).length;
  return [
    h("h1", {}, "Runs"),
    cards([
      ["running", count(of("running"))],
      ["waiting", count(of("queued", "interrupted"))],
      ["succeeded", count(of("succeeded"))],
      ["failed", h("span", { class: of("failed") ? "bad" : undefined }, count(of("failed")))],
    ]),
    h("div", { class: "filter" },
      h("label", {}, "Workflow ", h("select", { onchange: go }, option("", "all"), workflows.map(({ name }) => option(name, name))))),
    runs.length === 0
      ? h("p", { class: "quiet" }, "No run yet. ", h("code", {}, "sinew workflow run NAME -d '{}'"), " begins one.")
      : table("Runs", [["began"], ["workflow"], ["state"], ["steps", true], [""], ["took", true], ["run"], ["why"]], runs.map(row)),
  ];
}

function row(run) {
  const { all = 0, done = 0, failed = 0 } = run.steps ?? {};
  return [
    when(run.began_ms),
    h("a", { href: `#/functions/${part(run.workflow)}` }, run.workflow),
    state(run),
    run.steps ? `${count(done)}/${count(all)}` : "–",
    progress(all, done, failed),
    run.took_us === undefined ? "–" : time(run.took_us),
    link(run),
    h("td", { class: "line" }, h("span", { class: "bad", title: run.failure }, (run.failure ?? "").split("\n")[0])),
  ];
}

function progress(all, done, failed) {
  const width = (number) => (120 * number) / Math.max(all, 1);
  return svg("svg", { viewBox: "0 0 120 8", preserveAspectRatio: "none", class: "progress", role: "img", "aria-label": `${done} of ${all} steps done` },
    svg("rect", { class: "rest", x: 0, y: 0, width: 120, height: 8 }),
    svg("rect", { class: "ok", x: 0, y: 0, width: width(done), height: 8 }),
    svg("rect", { class: "failed", x: width(done), y: 0, width: width(failed), height: 8 }));
}

function state({ state: name }) {
  const kind = { succeeded: "good", failed: "bad", running: "live" }[name] ?? "quiet";
  return h("span", { class: kind }, name);
}

/** What was last told of a run with its steps: these are not asked for more often than they change. */
let known = { id: undefined };

async function runOf(id) {
  const now = await get(`runs/${part(id)}`, { steps: false });
  const isSame = known.id === id && known.run.began_ms === now.began_ms && known.run.request_id === now.request_id;
  const isRecent = isSame && (now.steps?.all ?? 0) > STEPS_OFTEN && performance.now() - known.at < RARELY_MS;
  const isWhole = isSame && OVER.includes(now.state) && known.run.state === now.state;
  if (!isRecent && !isWhole) known = { id, run: await get(`runs/${part(id)}`), at: performance.now() };
  return OVER.includes(now.state) || !isRecent ? known.run : { ...now, graph: known.run.graph, graph_us: known.run.took_us };
}

/** One run. */
export async function runPage([id], query) {
  const run = await runOf(id);
  const steps = stepsNow(run);
  const folded = grouped(steps);
  const here = `#/runs/${part(id)}`;
  const open = folded.groups.find(({ key }) => key === query.get("open"));
  const hrefOf = (group) => (group === open ? here : `${here}?open=${part(group.key)}`);
  const all = run.steps?.all ?? steps.length;
  return [
    h("h1", {}, "Run of ", h("a", { href: `#/functions/${part(run.workflow)}` }, run.workflow), " ",
      h("span", { class: "quiet" }, `${run.version === undefined ? "" : `version ${run.version}, `}began ${when(run.began_ms)}`)),
    cards(facts(run, folded)),
    run.failure ? h("pre", { class: "bad" }, run.failure.trimEnd()) : undefined,
    steps.length === 0 ? h("p", { class: "quiet" }, nothing(run)) : undefined,
    ...(steps.length === 0 ? [] : [
      h("h2", {}, "Graph"),
      graphPicture(folded, open?.key, hrefOf),
      graphKeys(),
      all > steps.length ? h("p", { class: "quiet" }, `The first ${count(steps.length)} of ${count(all)} steps.`) : undefined,
      open ? stepsOf(open, run, here, Number(query.get("from")) || 0) : undefined,
      h("h2", {}, "Where the time went"),
      groupTimes(folded.groups, whole(run)),
      timeKeys(),
      h("h2", {}, "Functions"),
      functionsTable(run),
    ]),
    ...failures(steps),
    links(run),
  ].flat().filter(Boolean);
}

/** What was under way when the run ended was stopped. */
function stepsNow({ graph = [], state: name }) {
  const isStopped = (step) => OVER.includes(name) && step.state === "running";
  return graph.map((step) => (isStopped(step) ? { ...step, state: "stopped" } : step));
}

/** Until when its steps are known. */
const whole = (run) => run.graph_us ?? run.took_us ?? 0;

function facts(run, { edges }) {
  const { all = 0, done = 0, running = 0, failed = 0, remembered = 0, keeping = 0 } = run.steps ?? {};
  const sum = (member) => edges.reduce((total, edge) => total + edge[member], 0);
  const some = (name, number) => (number > 0 ? [[name, count(number)]] : []);
  return [
    ["state", state(run)],
    ["steps done", run.steps ? `${count(done)}/${count(all)}` : "–"],
    ...some(OVER.includes(run.state) ? "stopped" : "running", running),
    ...(failed > 0 ? [["failed", h("span", { class: "bad" }, count(failed))]] : []),
    ...some("remembered", remembered),
    ...some("keeping", keeping),
    [OVER.includes(run.state) ? "took" : "running for", run.took_us === undefined ? "–" : time(run.took_us)],
    ["values mapped", bytes(sum("mapped"))],
    ["values sent", bytes(sum("sent"))],
  ];
}

function nothing(run) {
  if (run.state === "queued") return "It has not begun.";
  if (run.state === "interrupted") return "It waits to be begun again: with the results that are on the disk.";
  return "It has made no steps, or nothing is known of them.";
}

/** Each step of a group, those first that failed. */
function stepsOf(group, run, here, wanted) {
  const last = Math.max(Math.ceil(group.steps.length / ROWS) - 1, 0) * ROWS;
  const from = Math.min(Math.max(wanted, 0), last);
  const failedFirst = group.steps.toSorted((a, b) => Number(b.state === "failed") - Number(a.state === "failed") || a.step - b.step);
  const shown = failedFirst.slice(from, from + ROWS);
  const page = (at, text) => (at < 0 || at > last ? undefined : h("a", { href: `${here}?open=${part(group.key)}&from=${at}` }, text));
  const us = (number) => (number === undefined ? "–" : time(number));
  const pages = h("p", { class: "filter" }, h("span", { class: "quiet" }, `${count(from + 1)} to ${count(from + shown.length)} of ${count(group.steps.length)}`),
    page(from - ROWS, "earlier"), page(from + ROWS, "later"), h("a", { href: here }, "hide"),
    h("a", { href: `#/requests?function=${part(requestsOf(run, group))}` }, "what they printed"));
  return [
    h("h2", {}, "Steps of ", group.function),
    pages,
    table(`Steps of ${group.function}`,
      [["step", true], ["state"], ["tries", true], ["waited", true], ["queued", true], ["in", true], ["ran", true], ["out", true], ["result", true], ["when"]],
      shown.map((step) => [
        String(step.step), stepState(step), String(step.attempts), us(step.waited_us), us(step.queued_us), us(step.transfer_in_us),
        us(step.ran_us), us(step.transfer_out_us), result(step), h("td", { class: "spans" }, stepTimes(step, whole(run))),
      ])),
  ];
}

/** The steps of a function are requests to the workflow's name and the last part of its own, and those that are declared to what they call. */
const requestsOf = (run, { function: name }) => {
  const call = run.functions.find((told) => told.function === name)?.call;
  return call ? call.split(":")[0] : `${run.workflow}.${name.split(".").at(-1)}`;
};

function stepState(step) {
  const kind = { failed: "bad", done: "good", remembered: "good", keeping: "good", running: "live" }[step.state] ?? "quiet";
  const why = step.failed_with === undefined ? step.failure : `step ${step.failed_with} failed, which it needs`;
  return h("span", { class: kind, title: why }, step.failed_with === undefined ? step.state : `failed with step ${step.failed_with}`);
}

function result(step) {
  if (step.is_given) return h("span", { class: "good" }, "given away");
  if (step.result_bytes === undefined) return "–";
  return step.is_mapped ? h("span", { class: "good" }, `${bytes(step.result_bytes)} mapped`) : bytes(step.result_bytes);
}

function functionsTable(run) {
  const each = (run.functions ?? []).map((told) => [
    h("a", { href: `#/requests?function=${part(requestsOf(run, told))}` }, told.function),
    `${count(told.done + (told.keeping ?? 0))}/${count(told.all)}`,
    told.failed > 0 ? h("span", { class: "bad" }, count(told.failed)) : "0",
    ...["waited_us", "queued_us", "transfer_in_us", "ran_us", "transfer_out_us"].map((name) => (told[name] ? time(told[name]) : "–")),
    h("td", { class: "line" }, pickled(told.pickled ?? [])),
  ]);
  return table("Functions, with the times of all of their steps together",
    [["function"], ["done", true], ["failed", true], ["waited", true], ["queued", true], ["in", true], ["ran", true], ["out", true], ["pickled, for it cannot be mapped"]], each);
}

function pickled(types) {
  const text = types.map(({ type, count: times }) => `${count(times)} ${type}`).join(", ");
  return h("span", { class: "quiet", title: text }, text || "–");
}

/** Why steps failed, of those that failed by themselves. */
function failures(steps) {
  const failed = steps.filter(({ failure }) => failure !== undefined);
  if (failed.length === 0) return [];
  return [
    h("h2", {}, "Why steps failed"),
    failed.slice(0, FAILURES).map((step) => h("div", {},
      h("p", {}, `Step ${step.step}, `, h("code", {}, step.function), step.attempts > 1 ? `, after ${step.attempts} attempts` : ""),
      h("pre", { class: "bad" }, step.failure.trimEnd()))),
    failed.length > FAILURES ? h("p", { class: "quiet" }, `and ${count(failed.length - FAILURES)} more.`) : undefined,
  ].flat();
}

function links(run) {
  const requests = run.request_id ? h("a", { href: `#/requests/${part(run.request_id)}` }, "its requests, and what they printed") : undefined;
  const cancel = OVER.includes(run.state) ? undefined : button("cancel the run", `Cancel ${run.id}`, () => remove(`runs/${part(run.id)}`), "end it now?");
  return h("p", { class: "quiet" }, requests, requests ? ". " : "", h("code", {}, `sinew workflow describe ${run.id} --steps`), " ", cancel);
}

function noWorkflows() {
  const code = "@workflow\ndef finra(event):\n    trades = fetch(event[\"portfolio\"])\n    return merge([audit(trades, rule) for rule in range(200)])";
  return h("div", { class: "empty" }, "No workflow is deployed yet. One is a function that says ", h("code", {}, "workflow = true"), ":", h("br"), h("pre", {}, code));
}
