// SPDX-License-Identifier: Apache-2.0
// Calls that are made later: what waits, what is due when, and what nobody tries any more.

import { button } from "./acting.js";
import { get, part, post } from "./api.js";
import { bytes, cards, count, h, table, time, when } from "./elements.js";

const LETTERS = 100;

/** The queue of the node. */
export async function queuePage() {
  const [queue, { letters }] = await Promise.all([get("queue"), get("dlq", { limit: LETTERS })]);
  const sum = (member) => queue.lanes.reduce((total, lane) => total + lane[member], 0);
  return [
    h("h1", {}, "Queue"),
    cards([
      ["waiting", count(sum("waiting"))],
      ["running", count(sum("running"))],
      ["dead letters", h("span", { class: sum("dead") ? "bad" : undefined }, count(sum("dead")))],
      ["bytes", bytes(queue.bytes)],
      ["retries since the start", count(queue.retries)],
    ]),
    h("h2", {}, "Waiting"),
    queue.lanes.length === 0
      ? h("p", { class: "quiet" }, "No call waits. ", h("code", {}, "sinew invoke NAME --async"), " makes one later.")
      : table("Waiting", [["function"], ["waiting", true], ["running", true], ["dead", true], ["oldest waits for", true]],
        queue.lanes.map((lane) => [name(lane.lane), count(lane.waiting), count(lane.running), count(lane.dead),
          lane.oldest_age_ms === undefined ? "–" : time(lane.oldest_age_ms * 1000)])),
    h("h2", {}, "Scheduled"),
    queue.schedules.length === 0
      ? h("p", { class: "quiet" }, "No function has a schedule.")
      : table("Scheduled", [["function"], ["schedule"], ["next"]],
        queue.schedules.map(({ function: called, schedule, next_ms: next }) =>
          [name(called), h("code", {}, schedule), next === undefined ? "never" : when(next)])),
    h("h2", {}, "Dead letters"),
    letters.length === 0 ? h("p", { class: "quiet" }, "None.") : deadLetters(letters),
  ];
}

/** A function's; results that go to callers have a lane of their own. */
function name(lane) {
  const [kind, called] = lane.includes(":") ? lane.split(":") : [undefined, lane];
  return h("span", {}, kind ? `${kind} of ` : "", h("a", { href: `#/functions/${part(called)}` }, called));
}

function deadLetters(letters) {
  return table("Dead letters", [["died"], ["function"], ["attempts", true], ["why"], [""]], letters.map((letter) => [
    when(letter.ended_ms),
    name(letter.function),
    count(letter.attempts),
    h("td", { class: "line" }, h("span", { class: "bad", title: letter.reason }, (letter.reason ?? "").split("\n")[0])),
    redriveButton(letter.id),
  ]));
}

/** Has a call tried again, as if it were new. */
const redriveButton = (id) => button("redrive", `Redrive ${id}`, () => post(`dlq/${part(id)}/redrive`));
