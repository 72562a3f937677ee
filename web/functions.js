// SPDX-License-Identifier: Apache-2.0
// All functions, and one of them.

import { button } from "./acting.js";
import { get, part, put } from "./api.js";
import { callAnswer, callForm } from "./calling.js";
import { latencyChart, requestsChart, spark } from "./charts.js";
import { bytes, cards, count, h, rate, share, table, time, when } from "./elements.js";
import { requestsTable } from "./requests.js";

/** Percent of the requests that a version is tried with. */
const TENTH = 10;

const link = (name) => h("a", { href: `#/functions/${part(name)}` }, name);

/** Everything that serves. */
export async function functionsPage() {
  const { functions } = await get("functions");
  if (functions.length === 0) return [h("h1", {}, "Functions"), nothingYet()];
  const sum = (member) => functions.reduce((total, each) => total + member(each), 0);
  const rates = functions.map(({ recent }) => recent.requests / recent.seconds);
  return [
    h("h1", {}, "Functions"),
    cards([
      ["requests a second", rate(rates.reduce((sum, each) => sum + each, 0), 1)],
      ["failed, last minute", count(sum(({ recent }) => recent.failures))],
      ["instances", count(sum(({ instances }) => instances.idle + instances.busy))],
      ["busy now", count(sum(({ instances }) => instances.busy))],
      ["cold starts", count(sum((each) => each.cold_starts))],
    ]),
    table("Functions, with numbers of the last minute",
      [["name"], ["runtime"], ["version", true], ["last minutes"], ["req/s", true], ["failed", true], ["p50", true],
        ["p99", true], ["instances", true], ["requests", true]],
      functions.map((each) => [
        link(each.name),
        each.runtime,
        String(each.version),
        spark(each.recent.slots, `requests to ${each.name} in the last minutes`),
        rate(each.recent.requests, each.recent.seconds),
        failed(each.recent.failures, each.recent.requests),
        each.recent.requests ? time(each.recent.p50_us) : "–",
        each.recent.requests ? time(each.recent.p99_us) : "–",
        `${each.instances.busy} of ${each.instances.idle + each.instances.busy} busy`,
        count(each.requests),
      ])),
  ];
}

/** One function: charts, its last requests, versions, settings. */
export async function functionPage([name]) {
  const [found, { records }] = await Promise.all([
    get(`functions/${part(name)}`),
    get("logs", { function: name, limit: 20 }),
  ]);
  const { recent } = found;
  return [
    h("h1", {}, found.name, " ", h("span", { class: "quiet" }, `${found.runtime}, version ${found.version}`)),
    cards([
      ["requests a second", rate(recent.requests, recent.seconds)],
      ["failed, last minute", failed(recent.failures, recent.requests)],
      ["p50", recent.requests ? time(recent.p50_us) : "–"],
      ["p99", recent.requests ? time(recent.p99_us) : "–"],
      ["slowest, last minute", recent.requests ? time(recent.slowest_us) : "–"],
      ["busy instances", `${found.instances.busy} of ${found.instances.idle + found.instances.busy}`],
    ]),
    h("div", { class: "charts" }, requestsChart(found.series), latencyChart(found.series)),
    h("h2", {}, "Call it"),
    callForm(found),
    callAnswer(found),
    h("h2", {}, "Last requests"),
    requestsTable(records, false),
    h("h2", {}, "Versions"),
    versionsTable(found),
    h("h2", {}, "Settings"),
    table("Settings", [["name"], ["value"]], [
      ["memory", bytes(found.limits.memory_bytes)],
      ...Object.entries({ ...found.serving, ...found.settings }),
    ].map(([name, value]) => [name, h("td", { class: "wide" }, String(value))])),
  ];
}

/** Versions, the newest first, and what lets each of them serve. */
function versionsTable(found) {
  const live = found.aliases.live ?? [];
  const columns = [["version", true], ["deployed"], ["says"], ["requests", true], ["failed", true], ["gets"], [""]];
  return table("Versions", columns, found.versions.map((each) => [
    h("td", { class: "number", title: each.deployment }, String(each.version)),
    each.deployed_ms === undefined ? "–" : when(each.deployed_ms),
    h("td", { class: "line", title: each.note ?? "" }, each.note ?? h("span", { class: "quiet" }, "–")),
    count(each.requests),
    failed(each.failures, each.requests),
    gets(live.find(({ version }) => version === each.version)),
    serveButtons(found.name, live, each.version),
  ]));
}

const gets = (share) => (share ? h("span", { class: "good" }, share.percent === 100 ? "all requests" : `${share.percent} %`) : "–");

/** All requests for a version, or a tenth of all, which the one that gets most goes without. */
function serveButtons(name, live, version) {
  const share = live.find((each) => each.version === version);
  if (share?.percent === 100) return "";
  const place = `functions/${part(name)}`;
  const all = button("all requests", `Version ${version} gets all requests`,
    () => put(`${place}/aliases/live`, { versions: [{ version, percent: 100 }] }), "all requests, now?");
  if (share) return all;
  const some = async () => {
    // As it is now: somebody else may have changed it since this page was made.
    const { aliases } = await get(place);
    const others = aliases.live.toSorted((one, other) => other.percent - one.percent);
    others[0].percent -= TENTH;
    await put(`${place}/aliases/live`, { versions: [...others, { version, percent: TENTH }] });
  };
  return h("span", { class: "buttons" }, all, button("10 %", `Version ${version} gets a tenth of the requests`, some, "10 %, now?"));
}

function failed(failures, requests) {
  return h("span", { class: failures ? "bad" : "quiet" }, failures ? `${count(failures)} (${share(failures, requests)})` : "0");
}

function nothingYet() {
  const commands = "sinew new hello --runtime python\nsinew deploy hello\nsinew invoke hello -d '{\"name\": \"Ada\"}'";
  return h("div", { class: "empty" }, "No function is deployed yet. Begin with", h("br"), h("pre", {}, commands));
}
