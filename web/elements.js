// SPDX-License-Identifier: Apache-2.0
// Elements of pages. What functions say becomes text only, never markup.

/** An element with attributes and children; texts are text. */
export function h(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** The same for pictures. */
export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== undefined && child !== null));
  return element;
}

/** A table. Columns are `[title, isNumber]`; a cell is a text or an element. */
export function table(label, columns, rows) {
  const kind = ([, isNumber]) => (isNumber ? "number" : undefined);
  const cell = (content, index) =>
    content instanceof HTMLTableCellElement ? content : h("td", { class: kind(columns[index]) }, content);
  return h("div", { class: "scroll" },
    h("table", { "aria-label": label },
      h("thead", {}, h("tr", {}, columns.map((column) => h("th", { class: kind(column), scope: "col" }, column[0])))),
      h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map(cell))))));
}

/** Big numbers with their names. */
export function cards(entries) {
  return h("dl", { class: "cards" }, entries.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

/** Microseconds, as people read them. */
export function time(us) {
  if (us < 1000) return `${us} µs`;
  if (us < 1e6) return `${three(us / 1000)} ms`;
  return us < 120e6 ? `${three(us / 1e6)} s` : `${Math.round(us / 60e6)} min`;
}

/** How many in a second. */
export function rate(count, seconds) {
  const perSecond = count / seconds;
  return perSecond === 0 ? "0" : perSecond < 0.1 ? perSecond.toFixed(2) : three(perSecond);
}

/** A count, in groups of three digits. */
export function count(number) {
  return number.toLocaleString("en");
}

/** A share of a whole, if there is one. */
export function share(part, whole) {
  if (whole === 0 || part === 0) return "0 %";
  const percent = (100 * part) / whole;
  return percent < 0.1 ? "< 0.1 %" : `${three(percent)} %`;
}

/** Bytes, in binary units. */
export function bytes(number) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (number >= 1024 && unit < units.length - 1) [number, unit] = [number / 1024, unit + 1];
  return `${unit === 0 ? number : three(number)} ${units[unit]}`;
}

/** The time of day; with the date if it is not today's. */
export function when(ms) {
  const then = new Date(ms);
  const clock = then.toLocaleTimeString("en-GB") + "." + String(then.getMilliseconds()).padStart(3, "0");
  return then.toDateString() === new Date().toDateString() ? clock : `${then.toLocaleDateString("en-CA")} ${clock}`;
}

function three(number) {
  return number >= 100 ? Math.round(number).toLocaleString("en") : number.toPrecision(number >= 10 ? 3 : 2);
}

/** A price with three digits that mean something, however small it is. */
export function money(price) {
  const zeros = price > 0 && price < 1 ? Math.floor(-Math.log10(price)) : 0;
  return price.toFixed(Math.min(zeros + 3, 12));
}
