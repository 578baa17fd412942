// A table of any length of which only the visible rows exist. Rows are kept by key and reused when they leave.

import { attribute, h, text } from "./dom.js";

const SPARE = 4; // rows beyond each edge, more than a turn of the wheel: each costs a frame as much as one in sight

/**
 * `columns`: [{name, title, sort?, class?, make?() -> element, paint(cell, record)}]; `paintRow(row, record)` sets what belongs to
 * the whole row. `opened(key)` is called where one is opened, `sorted(name)` where a title is pressed, `picked(key,
 * event)` where its box is ticked. Needs `show(keys, read)` to have anything to show; `read(key)` gives a record.
 */
export class Grid {
  constructor({ id, label, columns, paintRow, opened, sorted, picked }) {
    Object.assign(this, { columns, paintRow, opened, picked });
    this.keys = [];
    this.rows = new Map(); // key -> its row, visible ones only
    this.spare = [];
    this.active = null;
    this.heads = columns.map((column) => this.#head(column, sorted));
    this.head = h("div", { role: "row", class: "grid-head", "aria-rowindex": 1 }, this.heads.map(({ cell }) => cell));
    this.space = h("div", { class: "grid-space", role: "rowgroup" });
    this.top = h("div", { class: "grid-top", role: "rowgroup" }, this.head);
    // What scrolls has the focus: a screen reader says so, and every browser scrolls it by the keyboard.
    this.scroller = h("div", { class: "grid-scroll", role: "grid", tabindex: 0, "aria-label": label, "aria-colcount": columns.length, "aria-multiselectable": "true" }, this.top, this.space);
    this.element = h("div", { id, class: "grid" }, this.scroller);
    this.scroller.addEventListener("scroll", () => this.#soon(), { passive: true });
    this.space.addEventListener("pointerdown", (event) => (this.pressed = this.#keyOf(event)));
    this.space.addEventListener("click", (event) => this.#clicked(event));
    this.resizing = new ResizeObserver(() => this.#measure());
    this.resizing.observe(this.scroller);
  }

  close() {
    this.resizing.disconnect();
    cancelAnimationFrame(this.frame);
  }

  #head({ name, title, sort, class: kind }, sorted) {
    const label = sort ? h("button", { type: "button", class: "sorter", onclick: () => sorted(sort) }, title) : title;
    const cell = h("div", { role: "columnheader", class: `cell ${name} ${kind ?? ""}` }, label);
    return { sort, cell };
  }

  /** Mark the column that orders the list; `down` where its own direction is turned. */
  mark(sort, turned) {
    for (const head of this.heads) {
      attribute(head.cell, "aria-sort", head.sort && head.sort === sort ? (turned ? "descending" : "ascending") : null);
    }
  }

  /** Show these keys; `anew`: also where the record is the same. What is looked at stays where it is, but for the list's top. */
  show(keys, read, anew = false) {
    const top = this.scroller.scrollTop;
    const first = Math.floor(top / this.height);
    const anchor = top > 0 ? this.keys[first] : undefined;
    this.keys = keys;
    this.read = read;
    attribute(this.scroller, "aria-rowcount", keys.length + 1);
    const size = `${keys.length * this.height}px`;
    if (this.space.style.height !== size) this.space.style.height = size;
    if (anchor !== undefined && keys[first] !== anchor) {
      const moved = keys.indexOf(anchor);
      if (moved >= 0) this.scroller.scrollTop = top + (moved - first) * this.height;
    }
    this.paint(anew);
  }

  #measure() {
    this.measured = Number.parseFloat(getComputedStyle(this.element).getPropertyValue("--row")) || 30;
    this.room = this.scroller.clientHeight - this.top.offsetHeight;
    this.space.style.height = `${this.keys.length * this.height}px`;
    if (this.read) this.paint();
  }

  get height() {
    return this.measured ?? 30;
  }

  #soon() {
    this.frame ??= requestAnimationFrame(() => this.paint());
  }

  /** Paint the visible rows. A row of the same record is painted `anew` only where asked: ages move, marks change. */
  paint(anew = false) {
    cancelAnimationFrame(this.frame);
    this.frame = null;
    const top = this.scroller.scrollTop;
    const from = Math.max(0, Math.floor(top / this.height) - SPARE);
    const to = Math.min(this.keys.length, Math.ceil((top + (this.room ?? 800)) / this.height) + SPARE);
    const wanted = new Set(this.keys.slice(from, to));
    for (const [key, row] of this.rows) {
      if (wanted.has(key)) continue;
      this.rows.delete(key);
      this.spare.push(row);
    }
    for (let at = from; at < to; at++) this.#paintRow(this.keys[at], at, anew);
    for (const row of this.spare.splice(0)) row.element.remove();
    const active = this.rows.get(this.active);
    attribute(this.scroller, "aria-activedescendant", active ? active.element.id : null);
  }

  #paintRow(key, at, anew) {
    let row = this.rows.get(key);
    if (!row) {
      row = this.spare.pop() ?? this.#make();
      this.rows.set(key, row);
      row.element.dataset.key = key;
    }
    const { element, cells } = row;
    if (row.at !== at) {
      row.at = at;
      element.style.transform = `translateY(${at * this.height}px)`;
      element.setAttribute("aria-rowindex", at + 2);
    } else if (row.height !== this.height) element.style.transform = `translateY(${at * this.height}px)`;
    row.height = this.height;
    attribute(element, "data-active", key === this.active);
    const record = this.read(key);
    if (record === row.record && !anew) return;
    row.record = record;
    this.columns.forEach((column, index) => column.paint(cells[index], record));
    this.paintRow(element, record);
  }

  #make() {
    const cells = this.columns.map((column) => h("div", { role: "gridcell", class: `cell ${column.name} ${column.class ?? ""}` }, column.make?.()));
    const element = h("div", { role: "row", class: "grid-row", id: `row-${(this.made = (this.made ?? 0) + 1)}` }, cells);
    this.space.append(element);
    return { element, cells };
  }

  #keyOf(event) {
    return event.target.closest(".grid-row")?.dataset.key;
  }

  /** What was pressed is what is meant, also where the rows moved before it was let go. */
  #clicked(event) {
    const key = (event.detail > 0 && this.pressed) || this.#keyOf(event);
    this.pressed = null;
    if (key === undefined) return;
    this.activate(key, { scroll: false });
    if (event.target.matches("input")) this.picked(key, event);
    else if (event.ctrlKey || event.metaKey) return;
    else if (!getSelection().toString()) {
      event.preventDefault();
      this.opened(key);
    }
  }

  /** Make a row the active one. */
  activate(key, { scroll = true } = {}) {
    this.active = key;
    const at = scroll ? this.keys.indexOf(key) : -1;
    if (at >= 0) {
      const [top, bottom] = [at * this.height, (at + 1) * this.height];
      if (top < this.scroller.scrollTop) this.scroller.scrollTop = top;
      else if (bottom > this.scroller.scrollTop + this.room) this.scroller.scrollTop = bottom - this.room;
    }
    this.paint();
  }

  /** Move the active row by so many; where none is active, as if from just before what is in sight. */
  move(by) {
    if (!this.keys.length) return;
    this.scroller.focus({ preventScroll: true });
    const at = this.keys.indexOf(this.active);
    const from = at < 0 ? Math.floor(this.scroller.scrollTop / this.height) - Math.sign(by) : at;
    this.activate(this.keys[Math.min(this.keys.length - 1, Math.max(0, from + by))]);
  }

  /** Rows that fit on the screen. */
  get page() {
    return Math.max(1, Math.floor((this.room ?? 0) / this.height) - 1);
  }
}

/** A cell of text whose whole is told on hover. */
export function say(cell, said, title = null) {
  text(cell, said);
  attribute(cell, "title", title);
}
