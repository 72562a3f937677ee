// SPDX-License-Identifier: Apache-2.0
// The graph of a run as a picture: groups of steps in layers, from left to right, and what
// was handed over between them.

import { bytes, count, h, svg, time } from "./elements.js";

const NODE = { width: 184, height: 62 };
const GAP = { across: 84, down: 22 };
const MARGIN = 14;
/** Between lines below groups, and how many have a place of their own. */
const [LANE, LANES] = [21, 6];
/** How small a long graph may get. */
const SMALLEST = 0.62;
/** Steps of an opened group that are drawn, and in how many columns. */
const DOTS = { max: 240, columns: 12, size: 12 };
/** Labels of more edges than this would only hide each other; their titles tell the same. */
const LABELS_MAX = 30;
/** Edges that are drawn, those with the most bytes first. */
const EDGES_MAX = 400;

/** The picture. `hrefOf` gives the address at which a group is opened, or closed again. */
export function graphPicture({ groups, edges }, open, hrefOf) {
  const places = placed(groups, edges, open);
  const shown = edges.toSorted((a, b) => total(b) - total(a)).slice(0, EDGES_MAX);
  const lanes = lanesOf(shown, places);
  const hasLoop = [...lanes.keys()].some(({ from, to }) => places.get(to).x <= places.get(from).x);
  const right = Math.max(...[...places.values()].map(({ x, width }) => x + width)) + (hasLoop ? GAP.across / 2 : MARGIN);
  const bottom = Math.max(...[...places.values()].map(({ y, height }) => y + height), ...lanes.values()) + MARGIN;
  const drawn = { places, lanes };
  const picture = svg("svg", { viewBox: `0 0 ${right} ${bottom}`, class: "graph", role: "group", "aria-label": "Graph of steps" },
    shown.map((edge) => line(edge, drawn)),
    shown.length > LABELS_MAX ? [] : shown.map((edge) => label(edge, drawn)),
    groups.map((group) => node(group, places.get(group), group.key === open, hrefOf(group))));
  // A short graph is not blown up, and a long one is scrolled before it is too small to be read.
  picture.style.width = `${right}px`;
  picture.style.minWidth = `${right * SMALLEST}px`;
  return h("div", { class: "scroll card" }, picture);
}

/** What the kinds of lines stand for. */
export function graphKeys() {
  return h("p", { class: "keys" },
    h("span", { class: "edge mapped" }, "mapped, or given away"), h("span", { class: "edge sent" }, "sent"), h("span", { class: "edge open" }, "not yet handed over"));
}

const total = ({ mapped, sent }) => mapped + sent;

/** Where each group is: its layer is its depth, and it is near to what it needs. */
function placed(groups, edges, open) {
  const layers = [];
  const depths = [...new Set(groups.map(({ depth }) => depth))].toSorted((a, b) => a - b);
  for (const depth of depths) layers.push(groups.filter((group) => group.depth === depth));
  const order = new Map(groups.map((group, index) => [group, index]));
  const places = new Map();
  let x = MARGIN;
  for (const layer of layers) {
    const middleOf = (group) => {
      const needed = edges.filter(({ from, to }) => to === group && places.has(from)).map(({ from }) => places.get(from).y);
      return needed.length === 0 ? order.get(group) : needed.reduce((sum, y) => sum + y, 0) / needed.length;
    };
    const middles = new Map(layer.map((group) => [group, middleOf(group)]));
    layer.sort((a, b) => middles.get(a) - middles.get(b) || order.get(a) - order.get(b));
    let y = MARGIN;
    for (const group of layer) {
      const height = NODE.height + (group.key === open ? dotsHeight(group) : 0);
      places.set(group, { x, y, width: NODE.width, height });
      y += height + GAP.down;
    }
    x += NODE.width + GAP.across;
  }
  center(layers, places);
  return places;
}

/** Layers that are lower than the highest one stand in its middle. */
function center(layers, places) {
  const endOf = (layer) => Math.max(...layer.map((group) => places.get(group).y + places.get(group).height));
  const highest = Math.max(...layers.map(endOf));
  for (const layer of layers) {
    const down = (highest - endOf(layer)) / 2;
    for (const group of layer) places.get(group).y += down;
  }
}

function dotsHeight({ steps }) {
  return Math.ceil(Math.min(steps.length, DOTS.max) / DOTS.columns) * DOTS.size + 8 + (steps.length > DOTS.max ? 14 : 0);
}

const kindOf = ({ mapped, sent, given, isOpen }) => (isOpen ? "open" : (mapped > 0 || given > 0) && mapped >= sent ? "mapped" : "sent");

function titleOf({ from, to, count: times, mapped, sent, given, isOpen }) {
  const isSent = sent > 0 || (mapped === 0 && given === 0);
  const parts = [given > 0 ? `${count(given)} given away` : "", mapped > 0 ? `${bytes(mapped)} mapped` : "", isSent ? `${bytes(sent)} sent` : ""].filter(Boolean);
  return `${from.function} to ${to.function}, ${count(times)} times: ${isOpen ? "not yet handed over" : parts.join(", ")}`;
}

/** From the right of one to the left of the other; around what is between them, or where that is behind. */
function line(edge, { places, lanes }) {
  const [from, to] = [places.get(edge.from), places.get(edge.to)];
  const [x1, y1] = [from.x + from.width, from.y + NODE.height / 2];
  const [x2, y2] = [to.x, to.y + NODE.height / 2];
  const [lane, bend] = [lanes.get(edge), GAP.across / 2];
  const direct = `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
  const ahead = `M${x1} ${y1}C${x1 + bend} ${y1} ${x1 + bend / 2} ${lane} ${x1 + 2 * bend} ${lane}H${x2 - 2 * bend}C${x2 - bend / 2} ${lane} ${x2 - bend} ${y2} ${x2} ${y2}`;
  const back = `M${x1} ${y1}C${x1 + bend} ${y1} ${x1 + bend} ${lane} ${x1} ${lane}H${x2}C${x2 - bend} ${lane} ${x2 - bend} ${y2} ${x2} ${y2}`;
  const path = lane === undefined ? direct : x2 > x1 ? ahead : back;
  const width = total(edge) > 0 ? Math.min(1 + Math.log10(total(edge)) / 3, 4).toFixed(1) : 1;
  return svg("path", { class: `edge ${kindOf(edge)}`, d: path, "stroke-width": width }, svg("title", {}, titleOf(edge)));
}

/** Lines that would go through other groups go below all that is between their ends. */
function lanesOf(edges, places) {
  const all = [...places.values()];
  const lanes = new Map();
  for (const edge of edges) {
    const [from, to] = [places.get(edge.from), places.get(edge.to)];
    if (to.x === from.x + NODE.width + GAP.across) continue;
    const [left, right] = [Math.min(from.x, to.x), Math.max(from.x, to.x)];
    const between = all.filter(({ x }) => x >= left && x <= right);
    lanes.set(edge, Math.max(...between.map(({ y, height }) => y + height)) + LANE * (1 + (lanes.size % LANES)));
  }
  return lanes;
}

function label(edge, { places, lanes }) {
  const [from, to, lane] = [places.get(edge.from), places.get(edge.to), lanes.get(edge)];
  if (edge.isOpen || total(edge) === 0) return undefined;
  const x = (from.x + from.width + to.x) / 2;
  const y = (lane ?? (from.y + to.y + NODE.height) / 2) - 5;
  return svg("text", { x, y, "text-anchor": "middle", class: "halo" }, bytes(total(edge)));
}

/** A group: its function, how many steps it has, how far they are, and what one takes. */
function node(group, { x, y, width, height }, isOpen, href) {
  const { steps, done, running, failed, notMade, timed, times } = group;
  const all = steps.length;
  const state = failed > 0 ? "failed" : notMade > 0 ? "lost" : running > 0 ? "running" : done === all ? "done" : "waiting";
  const each = timed > 0 ? `${time(Math.round((times.run + times.transfer) / timed))}${timed > 1 ? " each" : ""}` : "";
  const so = failed > 0 ? `${count(failed)} failed` : notMade > 0 ? `${count(notMade)} not made` : running > 0 ? `${count(running)} running` : done === all ? "done" : `${count(done)} of ${count(all)}`;
  const name = group.function.split(".").at(-1);
  const words = `${group.function}, ${all} steps, ${done} done, ${failed} failed, ${notMade} not made because of others${each && `, ${each}`}; ${isOpen ? "hide" : "show"} its steps`;
  const bar = (from, part, kind) => part > 0 && svg("rect", { class: kind, x: x + 1 + ((width - 2) * from) / all, y: y + NODE.height - 6, width: ((width - 2) * part) / all, height: 5 });
  return svg("a", { href, id: `group-${group.key}`, class: `node ${state}`, "aria-label": words, "aria-expanded": String(isOpen) },
    svg("title", {}, group.function),
    svg("rect", { class: "box", x, y, width, height, rx: 7 }),
    svg("text", { class: "name", x: x + 10, y: y + 21 }, shortened(name, all > 1 ? 13 : 18)),
    all > 1 ? svg("text", { class: "times", x: x + width - 10, y: y + 21, "text-anchor": "end" }, `×${count(all)}`) : undefined,
    svg("text", { x: x + 10, y: y + 41, class: `so ${state}` }, so),
    svg("text", { x: x + width - 10, y: y + 41, "text-anchor": "end" }, each),
    [bar(0, done, "ok"), bar(done, failed, "failed"), bar(done + failed, running, "runs")].filter(Boolean),
    isOpen ? dots(group, x, y + NODE.height) : []);
}

function shortened(name, most) {
  return name.length > most ? `${name.slice(0, most - 1)}…` : name;
}

/** Each step of an opened group. */
function dots({ steps }, x, y) {
  // If not all are seen, those are that failed.
  const order = steps.length > DOTS.max ? steps.toSorted((a, b) => Number(b.state === "failed") - Number(a.state === "failed")) : steps;
  const shown = order.slice(0, DOTS.max).map((step, index) => {
    const kind = { done: "ok", remembered: "ok", keeping: "ok", failed: step.failed_with === undefined ? "failed" : "lost", running: "runs" }[step.state] ?? "waits";
    const [column, row] = [index % DOTS.columns, Math.floor(index / DOTS.columns)];
    return svg("rect", { class: kind, x: x + 12 + column * DOTS.size, y: y + 4 + row * DOTS.size, width: DOTS.size - 3, height: DOTS.size - 3, rx: 2 },
      svg("title", {}, `step ${step.step}: ${step.state}${step.ran_us === undefined ? "" : `, ran ${time(step.ran_us)}`}`));
  });
  const rest = steps.length - shown.length;
  const rows = Math.ceil(shown.length / DOTS.columns);
  return rest > 0 ? [...shown, svg("text", { x: x + 12, y: y + 14 + rows * DOTS.size }, `and ${count(rest)} more`)] : shown;
}
