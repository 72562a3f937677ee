// SPDX-License-Identifier: Apache-2.0
// When the steps of a run waited, were queued, handed values over and ran: over the time of
// the run, for each group of like ones, and for single steps.

import { count, h, svg, time } from "./elements.js";
import { PHASES, mostAtOnce, overTime, spansOf } from "./run_groups.js";

const SLOTS = 120;
const HEIGHT = 30;
/** Of a row of many steps, the part above for those that have not begun. */
const YET = 10;

const NAMES = { wait: "waited for others", queue: "queued", transfer: "took and gave values", run: "ran" };

/** What the colours stand for. */
export function timeKeys() {
  return h("p", { class: "keys" }, PHASES.map((phase) => h("span", { class: `key ${phase}` }, NAMES[phase])));
}

/** For each group, how many of its steps were in which part of their time. */
export function groupTimes(groups, whole) {
  const rows = groups.map((group) => [
    h("span", { class: "called", title: group.function }, group.function, " ", h("span", { class: "quiet" }, group.steps.length > 1 ? `×${count(group.steps.length)}` : "")),
    h("div", { class: "track tall" }, picture(group, whole)),
    h("span", { class: "quiet" }, group.timed === 0 ? "–" : `${time(group.times.run)}${group.steps.length > 1 ? `, ${count(mostAtOnce(group.steps, whole))} at a time` : ""}`),
  ]);
  const axis = [h("span"), h("div", { class: "axis" }, h("span", {}, "0"), h("span", {}, time(Math.round(whole / 2))), h("span", {}, time(whole))), h("span")];
  return h("div", { class: "timeline times" }, rows.flat(), axis);
}

/** What a row shows: a single step where its parts were; of many, how many were where. */
function picture(group, whole) {
  const { function: name, steps, times } = group;
  const words = `${name}: ${PHASES.map((phase) => `${NAMES[phase]} ${time(times[phase])}`).join(", ")}`;
  return svg("svg", { viewBox: `0 0 ${SLOTS} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": words },
    svg("title", {}, words), steps.length === 1 ? spans(steps[0], whole, HEIGHT) : areas(steps, whole));
}

/** Above, the part of all steps that was yet to begin; below, those that had begun, of the most that had at a time. */
function areas(steps, whole) {
  const counts = overTime(steps, whole, SLOTS);
  const atOnce = counts.run.map((ran, slot) => ran + counts.transfer[slot]);
  const most = Math.max(...atOnce, 1e-9);
  return [
    ...stacked(["queue", "wait"], counts, YET, steps.length, YET),
    ...stacked(["run", "transfer"], counts, HEIGHT, most, HEIGHT - YET - 1),
  ];
}

/** One area for each part, on top of each other. */
function stacked(phases, counts, ground, most, height) {
  const base = new Float64Array(SLOTS);
  return phases.map((phase) => {
    let path = "";
    for (let slot = 0; slot < SLOTS; slot += 1) {
      const part = counts[phase][slot];
      if (part <= 0) continue;
      // What is there at all is to be seen.
      const high = Math.min(Math.max((height * part) / most, 0.6), height - base[slot]);
      path += `M${slot} ${(ground - base[slot]).toFixed(2)}h1v${(-high).toFixed(2)}h-1z`;
      base[slot] += high;
    }
    return svg("path", { class: phase, d: path });
  });
}

/** The parts of one step's time, where they were. */
function spans(step, whole, height) {
  const scale = SLOTS / Math.max(whole, 1);
  return spansOf(step, whole).map(([phase, from, to]) =>
    svg("rect", { class: phase, x: (from * scale).toFixed(2), y: 0, width: Math.max((to - from) * scale, 0.3).toFixed(2), height }));
}

/** A single step, in a row of a table. */
export function stepTimes(step, whole) {
  return svg("svg", { viewBox: `0 0 ${SLOTS} 12`, preserveAspectRatio: "none", "aria-hidden": "true" }, spans(step, whole, 12));
}
