// What several views are made of: panels, figures, tables that are painted in place, bars and lines of what was lately.

import { attribute, fill, h, text } from "../dom.js";
import { span, visible } from "../format.js";
import { icon, reshape } from "../icons.js";

const SVG = "http://www.w3.org/2000/svg";
const held = new WeakMap();
let ids = 0;

/** A part of a page under its own heading. `more` stands beside the heading. */
export function panel(title, content, more = null) {
  const id = `panel-${++ids}`;
  return h("section", { class: "sheet panel", "aria-labelledby": id },
    h("div", { class: "panel-head" }, h("h2", { id }, title), more), content);
}

/** A page's heading with what stands beside it. */
export const heading = (title, ...beside) => h("div", { class: "view-head" }, h("h1", null, title), beside);

/** One figure: `set(value, note, tone)`; tone is good, doubt, bad or empty, and never says what the words do not. */
export function tile(label, { href = null, more = null } = {}) {
  const value = h("span", { class: "tile-value figure" }, "-");
  const note = h("span", { class: "tile-note" });
  const element = h(href ? "a" : "div", { class: "tile", href }, h("span", { class: "tile-label" }, label), value, note, more);
  const set = (said, beside = "", tone = "") => {
    text(value, said);
    text(note, beside);
    attribute(element, "data-tone", tone || null);
  };
  return { element, set };
}

const SHAPES = { good: "completed", doubt: "failures", bad: "failed", idle: "gone" };

/** A word behind a mark of its own shape: `set(tone, word, title)`; tone is good, doubt, bad or idle. */
export function told() {
  const mark = icon("gone");
  const word = h("span", null);
  const element = h("span", { class: "told" }, mark, word);
  const set = (tone, said, title = null) => {
    attribute(element, "data-tone", tone);
    attribute(element, "title", title);
    reshape(mark, SHAPES[tone]);
    text(word, visible(said));
  };
  return { element, set };
}

/**
 * Children of `parent`, one for each of `items`, made once and painted again each time.
 * `make(item)` gives {element, paint(item)}. The order follows the items; the focus stays where it is.
 */
export function keyed(parent, items, keyOf, make) {
  const before = held.get(parent) ?? new Map();
  const after = new Map();
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  let at = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    if (after.has(key)) continue;
    const one = before.get(key) ?? make(item);
    before.delete(key);
    after.set(key, one);
    one.paint(item);
    if (one.element === at) at = at.nextElementSibling;
    else parent.insertBefore(one.element, at);
  }
  for (const one of before.values()) one.element.remove();
  held.set(parent, after);
  if (focused?.isConnected && document.activeElement !== focused) focused.focus({ preventScroll: true });
}

/**
 * A table whose rows are painted in place. `columns` are {head, kind, make, paint(cell, item)}, or {head, kind, text(item)};
 * kind is `number`, `name`, `time`, `wide`, `code` or empty, and what is a `figure` fades while it is not live. On narrow screens each row is a card (without what is `minor` and 0),
 * so the roles are said.
 */
export function table(label, columns, keyOf) {
  const body = h("tbody", { role: "rowgroup" });
  const heads = columns.map(({ head, kind }) => h("th", { scope: "col", role: "columnheader", "data-kind": kind }, head));
  const whole = h("table", { class: "listing", role: "table", "aria-label": label },
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, heads)), body);
  const none = h("p", { class: "empty" });
  const element = h("div", { class: "listing-frame" }, whole, none);
  const make = () => {
    const cells = columns.map(({ head, kind, figure }) => h("td", { role: "cell", class: figure ? "figure" : null, "data-kind": kind, "data-head": head }));
    const paint = (item) => columns.forEach((column, n) => {
      if (column.paint) column.paint(cells[n], item);
      else text(cells[n], visible(String(column.text(item))));
      if (column.minor) attribute(cells[n], "data-quiet", /^[0-]$/.test(cells[n].textContent));
    });
    return { element: h("tr", { role: "row" }, cells), paint };
  };
  const show = (items, empty) => {
    keyed(body, items, keyOf, make);
    whole.hidden = !items.length;
    none.hidden = Boolean(items.length);
    text(none, empty);
  };
  return { element, show };
}

/** What a cell holds, made when it is first painted: `slot(cell, () => element)`. */
export function slot(cell, make) {
  if (!cell.firstChild) fill(cell, make());
  return cell.firstChild;
}

/** A word behind its mark in a cell: `mark(cell, tone, word, title)`. */
export function mark(cell, ...said) {
  slot(cell, () => {
    const one = told();
    return Object.assign(one.element, { show: one.set });
  }).show(...said);
}

/** A link in a cell, moved to what it now is about. */
export function link(cell, href, said) {
  const made = slot(cell, () => h("a", { href }, said));
  attribute(made, "href", href);
  text(made, visible(said));
}

function svg(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

/** A bar of parts: `set([{value, tone}], whole)`. What it says stands in words beside it. */
export function bar() {
  const element = svg("svg", { class: "bar", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" });
  const set = (parts, whole) => {
    const sum = Math.max(whole, parts.reduce((all, { value }) => all + value, 0), 1);
    while (element.childElementCount > parts.length) element.lastChild.remove();
    while (element.childElementCount < parts.length) element.append(svg("rect", { height: 8 }));
    let x = 0;
    parts.forEach(({ value, tone }, n) => {
      const width = (100 * value) / sum;
      attribute(element.children[n], "x", x.toFixed(2));
      attribute(element.children[n], "width", width.toFixed(2));
      attribute(element.children[n], "data-tone", tone);
      x += width;
    });
  };
  return { element, set };
}

const WIDE = 120;
const HIGH = 28;

/** A line of what was lately: `set(points, {from, to, gap})`; points are [ms, number or null], a gap breaks the line. */
export function sparkline(label) {
  const line = svg("path", { class: "spark-line" });
  const area = svg("path", { class: "spark-area" });
  const element = svg("svg", { class: "spark", viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", role: "img" });
  const title = svg("title", {}); // its name, and what is shown where it is pointed at
  element.append(title, area, line);
  const set = (points, { from, to, gap }) => {
    const known = points.filter(([, value]) => value !== null);
    const most = Math.max(1, ...known.map(([, value]) => value));
    const x = (at) => ((WIDE * (at - from)) / (to - from)).toFixed(1);
    const y = (value) => (HIGH - 2 - ((HIGH - 4) * value) / most).toFixed(1);
    let drawn = "";
    let filled = "";
    known.forEach(([at, value], n) => {
      const begins = n === 0 || at - known[n - 1][0] > gap;
      if (begins && n) filled += `L${x(known[n - 1][0])} ${HIGH}Z`;
      drawn += `${begins ? "M" : "L"}${x(at)} ${y(value)}`;
      filled += begins ? `M${x(at)} ${HIGH}L${x(at)} ${y(value)}` : `L${x(at)} ${y(value)}`;
    });
    if (known.length) filled += `L${x(known.at(-1)[0])} ${HIGH}Z`;
    attribute(line, "d", drawn);
    attribute(area, "d", filled);
    const top = Math.max(...known.map(([, value]) => value));
    const lately = `in the last ${span(to - from)} at most ${Math.round(10 * top) / 10}`;
    text(title, `${label}: ${known.length ? lately : "nothing is known yet"}`);
  };
  return { element, set };
}
