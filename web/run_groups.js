// SPDX-License-Identifier: Apache-2.0
// The steps of a run, folded into groups of like ones: those of one function that are as
// far from the beginning. No elements here; however many steps there are, there are few groups.

/** With more groups than this, all steps of a function are one. */
const GROUPS_MAX = 40;

/** Parts of a step's time, in their order. */
export const PHASES = ["wait", "queue", "transfer", "run"];

const ENDED = ["done", "remembered", "keeping", "failed"];

/** Groups of steps, and the edges between them, with what was handed over on each. */
export function grouped(steps) {
  const depths = depthsOf(steps);
  let groups = groupsBy(steps, depths, (step, depth) => `${step.function}/${depth}`);
  if (groups.size > GROUPS_MAX) groups = groupsBy(steps, depths, (step) => step.function);
  const of = new Map();
  for (const group of groups.values()) for (const step of group.steps) of.set(step.step, group);
  return { groups: [...groups.values()], edges: edgesOf(steps, of) };
}

/** How many steps are before each one, on the longest way. Needs are earlier steps. */
function depthsOf(steps) {
  const depths = new Map();
  for (const { step, needs } of steps) {
    depths.set(step, needs.reduce((most, need) => Math.max(most, (depths.get(need) ?? -1) + 1), 0));
  }
  return depths;
}

function groupsBy(steps, depths, keyOf) {
  const groups = new Map();
  for (const step of steps) {
    const depth = depths.get(step.step);
    const key = keyOf(step, depth);
    if (!groups.has(key)) groups.set(key, { key, function: step.function, depth, steps: [] });
    groups.get(key).steps.push(step);
  }
  for (const group of groups.values()) Object.assign(group, sumsOf(group.steps));
  return groups;
}

/** How many steps are where, and the time that they took together. */
function sumsOf(steps) {
  const sums = { done: 0, running: 0, failed: 0, notMade: 0, times: { wait: 0, queue: 0, transfer: 0, run: 0 }, timed: 0, bytes: 0, mapped: 0 };
  for (const step of steps) {
    if (step.state === "failed") sums[step.failed_with === undefined ? "failed" : "notMade"] += 1;
    else if (ENDED.includes(step.state)) sums.done += 1;
    else if (step.state === "running") sums.running += 1;
    sums.times.wait += step.waited_us ?? 0;
    sums.times.queue += step.queued_us ?? 0;
    sums.times.transfer += (step.transfer_in_us ?? 0) + (step.transfer_out_us ?? 0);
    sums.times.run += step.ran_us ?? 0;
    sums.timed += step.ran_us === undefined ? 0 : 1;
    sums.bytes += step.result_bytes ?? 0;
    sums.mapped += step.is_mapped ? 1 : 0;
  }
  return sums;
}

/** From whom to whom, and bytes of the results that were handed over; of a result, once to each step that needs it. */
function edgesOf(steps, of) {
  const edges = new Map();
  const bySteps = new Map(steps.map((step) => [step.step, step]));
  for (const step of steps) {
    for (const need of new Set(step.needs)) {
      const [from, to, needed] = [of.get(need), of.get(step.step), bySteps.get(need)];
      if (from === undefined) continue;
      const key = `${from.key}>${to.key}`;
      if (!edges.has(key)) edges.set(key, { from, to, count: 0, mapped: 0, sent: 0, given: 0, isOpen: true });
      const edge = edges.get(key);
      edge.count += 1;
      // It is handed over when the step begins that needs it.
      if (step.begun_us === undefined || (needed.result_bytes === undefined && !needed.is_given)) continue;
      edge.isOpen = false;
      if (needed.is_given) edge.given += 1;
      else edge[needed.is_mapped ? "mapped" : "sent"] += needed.result_bytes;
    }
  }
  return [...edges.values()];
}

/** When a step was in which part of its time, as far as it has come: `[phase, from, to]`, in µs since the run began. */
export function spansOf(step, now) {
  const spans = [];
  const add = (phase, from, to) => to > from && spans.push([phase, from, to]);
  const ended = step.ended_us ?? now;
  add("wait", step.made_us, step.ready_us ?? ended);
  if (step.ready_us === undefined) return spans;
  const inside = [["transfer", step.transfer_in_us], ["run", step.ran_us], ["transfer", step.transfer_out_us]];
  if (step.ran_us === undefined) {
    // Nobody has said more: it is under way, or no instance came to it.
    add("queue", step.ready_us, Math.min(step.begun_us ?? ended, ended));
    if (["running", "stopped"].includes(step.state) && step.begun_us !== undefined) add("run", step.begun_us, ended);
    return spans;
  }
  let at = step.ready_us + (step.queued_us ?? 0);
  add("queue", step.ready_us, at);
  for (const [phase, us] of inside) {
    add(phase, at, at + (us ?? 0));
    at += us ?? 0;
  }
  return spans;
}

/** How many of some steps were in each part of their time, slot by slot of the run. */
export function overTime(steps, whole, slots) {
  const counts = Object.fromEntries(PHASES.map((phase) => [phase, new Float64Array(slots)]));
  const width = Math.max(whole, 1) / slots;
  for (const step of steps) {
    for (const [phase, from, to] of spansOf(step, whole)) {
      const [first, last] = [Math.min(Math.floor(from / width), slots - 1), Math.min(Math.floor(to / width), slots - 1)];
      for (let slot = first; slot <= last; slot += 1) {
        counts[phase][slot] += (Math.min(to, (slot + 1) * width) - Math.max(from, slot * width)) / width;
      }
    }
  }
  return counts;
}

/** The most of some steps that had begun and not ended at the same time. */
export function mostAtOnce(steps, now) {
  const changes = steps.flatMap((step) => spansOf(step, now).filter(([phase]) => phase === "run").flatMap(([, from, to]) => [[from, 1], [to, -1]]));
  let [running, most] = [0, 0];
  for (const [, change] of changes.sort((a, b) => a[0] - b[0] || a[1] - b[1])) most = Math.max(most, (running += change));
  return most;
}
