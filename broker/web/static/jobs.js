// The job list: what fits the address, in its order, kept so while jobs change.

import { columns, rowPainter } from "./columns.js";
import { toast } from "./dialog.js";
import { fill, h, text } from "./dom.js";
import { count, counted, jobPath } from "./format.js";
import { filters } from "./filters.js";
import { Grid } from "./grid.js";
import { comparer, fitter, movesByItself, pathOf, readQuery } from "./query.js";
import { Rows, Tally } from "./rows.js";
import { possible, wish } from "./wish.js";

const COUNT_MS = 400;

/** Where each list of this visit was left: address -> {top, active}. */
const left = new Map();

export function mount(root, { model, navigate }) {
  let query = readQuery(location.search);
  let rows = new Rows(fitter(query), comparer(query.sort));
  let tally = new Tally(fitter(query, true));
  const chosen = new Set();
  const asks = { doubt: (key) => model.doubt.has(key), chosen: (key) => chosen.has(key) };
  const read = (key) => model.jobs.get(key);

  const grid = new Grid({
    id: "jobs-list",
    label: "Jobs",
    columns: columns(asks),
    paintRow: rowPainter(asks),
    opened: (key) => navigate(jobPath(key)),
    sorted: (sort) => go({ sort: turned(query.sort, sort) }),
    picked: (key, event) => pick(key, event.shiftKey),
  });
  const bar = filters((part, isTyping) => go(part, isTyping));
  const total = h("span", { id: "jobs-count", class: "figure" });
  const note = h("p", { class: "note", id: "jobs-note", hidden: true });
  const bulk = h("div", { class: "bulk", role: "group", "aria-label": "Chosen jobs" });
  const none = h("div", { class: "empty", hidden: true });
  root.append(
    h("div", { class: "view-head" }, h("h1", null, "Jobs"), total, h("span", { class: "spacer" }), bulk),
    bar.element, note, grid.element, none);
  root.classList.add("jobs-view");

  function go(part, isTyping = false) {
    navigate(pathOf({ ...query, ...part }), { replace: isTyping });
  }

  function located() {
    keep();
    query = readQuery(location.search);
    rows = new Rows(fitter(query), comparer(query.sort));
    tally = new Tally(fitter(query, true));
    grid.scroller.scrollTop = 0;
    bar.show(query);
    grid.mark(query.sort.replace(/^-/, "") || "created", query.sort.startsWith("-"));
    relist();
    recount();
    reach();
  }

  /** Where not every job is held, those that the address names are asked for. Null: not yet, or nothing narrows it down. */
  let reached = null;
  let reaching = null; // the newest asking that is on its way
  async function reach() {
    const asked = {};
    reached = reaching = null;
    if (model.listedAt === null || model.whole || !(query.states.length || query.engine || query.node || query.origin)) return;
    reaching = asked;
    shown();
    try {
      const found = await model.reach(query);
      if (asked === reaching) reached = found;
    } catch (failed) {
      toast(failed.message, { bad: true });
    }
    if (asked !== reaching) return;
    reaching = null;
    shown();
  }

  /** Whether all that fits is here, as far as it is looked at: until then only those are held that changed meanwhile. */
  const arrived = () => model.listedAt !== null && reaching === null;

  /** Build the list anew. */
  function relist() {
    rows.reset(model.jobs, model.doubt);
    tally.reset(model.jobs, model.doubt);
    for (const key of chosen) if (!model.jobs.has(key)) chosen.delete(key);
    shown(true);
  }

  function shown(anew = false) {
    grid.show(rows.keys, read, anew);
    bar.count(arrived() ? tally.counts : null);
    const number = rows.keys.length;
    const all = model.whole ? model.jobs.size : Math.max(model.total, model.jobs.size);
    text(total, !arrived() ? "" : number === all ? counted(number, "job") : `${count(number)} of ${counted(all, "job")}`);
    const part = !arrived() && number > 0;
    note.hidden = !part && (!arrived() || model.whole || (reached !== null && reached <= model.most));
    if (part) text(note, model.listedAt === null && model.listTrouble ? "The jobs could not be listed: shown is only what changed since." : "Listing the jobs: shown is only a part of them.");
    else if (!note.hidden) text(note, `Only the newest ${count(model.most)} of about ${counted(reached ?? model.total, "job")} are looked at: a state, an engine, a node or an origin narrows it down.`);
    none.hidden = number > 0;
    if (!none.hidden) empty();
    offer();
  }

  function empty() {
    const unlisted = !arrived();
    const said = unlisted ? (model.listedAt === null && model.listTrouble ? "The jobs could not be listed" : "Listing the jobs") : model.jobs.size ? "No job fits" : "No jobs yet";
    if (none.firstChild?.textContent === said) return;
    const hint = unlisted ? null : model.jobs.size
      ? h("button", { type: "button", onclick: () => go({ states: [], engine: "", node: "", origin: "", q: "" }) }, "Show all")
      : h("p", null, "Hand one in: ", h("code", null, "broker submit ENGINE '{...}'"));
    fill(none, h("h2", null, said), hint);
  }

  /** What can be done with those that are chosen. */
  function offer() {
    const found = [...chosen].map(read).filter(Boolean);
    const said = JSON.stringify([found.length, possible(found), rows.keys.length > 0, found.length < rows.keys.length, arrived()]);
    if (bulk.dataset.said === said) return;
    bulk.dataset.said = said;
    const all = h("button", { type: "button", class: "quiet", id: "choose-all", onclick: () => chooseAll() }, "Choose all that fit");
    if (!arrived()) return void fill(bulk, rows.keys.length ? h("span", { id: "choose-wait", class: "dim" }, "To be chosen from once the list is whole") : null);
    if (!found.length) return void fill(bulk, rows.keys.length ? all : null);
    fill(bulk, h("span", { id: "chosen-count" }, `${count(found.length)} chosen`),
      possible(found).map(([name, verb]) => h("button", { type: "button", id: `bulk-${name}`, onclick: () => act(name) }, verb)),
      found.length < rows.keys.length ? all : null,
      h("button", { type: "button", class: "quiet", id: "choose-none", onclick: () => choose([]) }, "None"));
  }

  /** What is done to a list means all of it: nothing is chosen from a part. Says so where it is refused. */
  function isWhole() {
    if (!arrived()) toast("The list is not whole yet: nothing is chosen, and nothing is done.", { bad: true });
    return arrived();
  }

  function choose(keys) {
    chosen.clear();
    for (const key of keys) chosen.add(key);
    grid.paint(true);
    offer();
  }
  const chooseAll = () => isWhole() && choose(rows.keys);

  let lastPicked = null;
  function pick(key, toHere) {
    if (!isWhole()) return grid.paint(true);
    const [from, to] = [rows.keys.indexOf(lastPicked), rows.keys.indexOf(key)].sort((a, b) => a - b);
    if (toHere && from >= 0) for (const one of rows.keys.slice(from, to + 1)) chosen.add(one);
    else if (!chosen.delete(key)) chosen.add(key);
    lastPicked = key;
    grid.paint(true);
    offer();
  }

  async function act(name) {
    if (!isWhole()) return;
    const keys = chosen.size ? [...chosen] : [grid.active];
    const found = keys.map(read).filter(Boolean);
    if (found.length && (await wish(name, found, model))) choose([]);
  }

  let counting = null;
  function recount() {
    clearTimeout(counting);
    counting = null;
    bar.offer(model.jobs);
  }

  function update(changed) {
    if (changed.jobs && changed.keys === null) {
      relist();
      recount();
      reach();
    } else if (changed.jobs) {
      rows.update(model.jobs, model.doubt, changed.keys);
      tally.update(model.jobs, model.doubt, changed.keys);
      for (const key of changed.keys) if (!model.jobs.has(key)) chosen.delete(key);
      shown(changed.doubt || changed.tick);
    } else if (changed.tick && movesByItself(query)) relist();
    else if (changed.tick) grid.paint(true);
    if (changed.connection) shown();
    if (changed.jobs) counting ??= setTimeout(recount, COUNT_MS);
  }

  function keep() {
    left.set(pathOf(query), { top: grid.scroller.scrollTop, active: grid.active });
  }

  const step = (by) => () => grid.move(by);
  const keys = {
    j: ["next job", step(1)],
    k: ["job before", step(-1)],
    ArrowDown: ["", step(1)],
    ArrowUp: ["", step(-1)],
    PageDown: ["", () => grid.move(grid.page)],
    PageUp: ["", () => grid.move(-grid.page)],
    Home: ["", () => grid.move(-rows.keys.length)],
    End: ["", () => grid.move(rows.keys.length)],
    Enter: ["open it", () => grid.active && navigate(jobPath(grid.active))],
    x: ["choose it, or not", () => grid.active && pick(grid.active, false)],
    a: ["choose all that fit", chooseAll],
    c: ["cancel what is chosen, or the active job", () => act("cancel")],
    r: ["retry", () => act("retry")],
    d: ["remove", () => act("remove")],
    Escape: ["choose none", () => choose([])],
  };

  const before = left.get(pathOf(query));
  located();
  if (before) {
    grid.scroller.scrollTop = before.top;
    grid.activate(before.active, { scroll: false });
  }
  if (location.hash === "#search") {
    history.replaceState(history.state, "", location.pathname + location.search);
    requestAnimationFrame(() => document.getElementById("search")?.focus());
  }
  return {
    update,
    located,
    keys,
    unmount() {
      keep();
      clearTimeout(counting);
      grid.close();
    },
  };
}

/** A title pressed once orders by it, pressed again the other way round. */
function turned(now, sort) {
  const plain = sort === "created" ? "" : sort;
  if (now !== plain) return plain;
  return `-${sort}`;
}
