// SPDX-License-Identifier: Apache-2.0
// Small pictures of what became of requests, slot by slot.

import { h, rate, svg, time } from "./elements.js";

const WIDTH = 440;
const HEIGHT = 120;
const LEFT = 46;
const BOTTOM = 16;

/** Requests of each slot, `[all, failed]`, as bars without words. */
export function spark(slots, label) {
  const most = Math.max(1, ...slots.map(([requests]) => requests));
  const width = 120 / Math.max(slots.length, 1);
  const bars = slots.map(([requests, failures], index) => {
    const [all, failed] = [(24 * requests) / most, (24 * failures) / most];
    return [
      svg("rect", { class: "ok", x: index * width, y: 24 - all, width: width * 0.8, height: all - failed }),
      svg("rect", { class: "failed", x: index * width, y: 24 - failed, width: width * 0.8, height: failed }),
    ];
  });
  return svg("svg", { viewBox: "0 0 120 24", role: "img", "aria-label": label, preserveAspectRatio: "none" }, bars.flat());
}

/** Requests a second, those that failed in their own colour. */
export function requestsChart({ slots, slot_s: seconds }) {
  const most = Math.max(...slots.map((slot) => slot.requests), 1);
  const y = (requests) => (HEIGHT - BOTTOM) * (1 - requests / most);
  const width = (WIDTH - LEFT) / Math.max(slots.length, 1);
  const bars = slots.map((slot, index) => {
    const x = LEFT + index * width;
    const good = slot.requests - slot.failures;
    const title = `${rate(slot.requests, seconds)} a second, ${slot.failures} failed`;
    return svg("g", {},
      svg("title", {}, title),
      svg("rect", { x, y: 0, width, height: HEIGHT - BOTTOM, fill: "transparent" }),
      svg("rect", { class: "ok", x, y: y(slot.requests), width: width * 0.8, height: y(0) - y(good) }),
      svg("rect", { class: "failed", x, y: y(slot.failures), width: width * 0.8, height: y(0) - y(slot.failures) }));
  });
  return figure("requests a second", [["ok", "answered"], ["failed", "failed"]], slots.length * seconds,
    [[0, rate(most, seconds)], [y(0), "0"]], bars);
}

/** How long requests took: half of them, and all but one in a hundred; logarithmic. */
export function latencyChart({ slots, slot_s: seconds }) {
  const busy = slots.filter((slot) => slot.requests > 0);
  const low = Math.log10(Math.max(1, Math.min(...busy.map((slot) => slot.p50_us), 1e3)));
  const high = Math.max(low + 0.5, Math.log10(Math.max(...busy.map((slot) => slot.p99_us), 1)));
  const y = (us) => (HEIGHT - BOTTOM) * (1 - (Math.log10(Math.max(us, 1)) - low) / (high - low));
  const x = (index) => LEFT + ((index + 0.5) * (WIDTH - LEFT)) / Math.max(slots.length, 1);
  const line = (name, member) => {
    let pen = "M";
    const path = slots.map((slot, index) => {
      if (slot.requests === 0) return ((pen = "M"), "");
      const step = `${pen}${x(index).toFixed(1)} ${y(slot[member]).toFixed(1)}`;
      // A lone point would be a path without length, which draws nothing.
      const dot = pen === "M" ? "h.1" : "";
      pen = "L";
      return step + dot;
    });
    return svg("path", { class: name, d: path.join(""), "stroke-linecap": "round" });
  };
  const titles = slots.map((slot, index) => svg("g", {},
    svg("title", {}, slot.requests ? `p50 ${time(slot.p50_us)}, p99 ${time(slot.p99_us)}` : "no requests"),
    svg("rect", { x: x(index) - 3, y: 0, width: 6, height: HEIGHT - BOTTOM, fill: "transparent" })));
  const marks = [high, low].map((power) => [y(10 ** power), time(Math.round(10 ** power))]);
  return figure("latency", [["half", "p50"], ["tail", "p99"]], slots.length * seconds, busy.length ? marks : [],
    [line("tail", "p99_us"), line("half", "p50_us"), ...titles]);
}

/** A chart with its caption, axes, and words beside them. */
function figure(caption, keys, seconds, marks, content) {
  const ground = HEIGHT - BOTTOM;
  const axes = svg("path", { class: "axis", d: `M${LEFT} 0V${ground}H${WIDTH}`, fill: "none" });
  const words = marks.map(([y, text]) => svg("text", { x: LEFT - 5, y: y + (y < 5 ? 8 : 0), "text-anchor": "end" }, text));
  const start = svg("text", { x: LEFT, y: HEIGHT - 3 }, seconds > 0 ? `${seconds} s ago` : "");
  const end = svg("text", { x: WIDTH, y: HEIGHT - 3, "text-anchor": "end" }, "now");
  return h("figure", {},
    h("figcaption", {}, h("span", {}, caption), keys.map(([name, text]) => h("span", { class: `key ${name}` }, text))),
    svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": caption }, axes, content, words, start, end));
}
