// How it all stands, in one look: whether the list is true, what waits and for how long, rates, engines, failures.

import { attribute, h, text } from "../dom.js";
import * as format from "../format.js";
import { icon, reshape } from "../icons.js";
import { stateOf, troubledFirst } from "../node.js";
import { failureColumns } from "./failures.js";
import { draw, follow } from "./history.js";
import { bar, heading, keyed, link, mark, panel, slot, sparkline, table, tile } from "./parts.js";
import { truthOf } from "./truth.js";

const STATES = ["queued", "running", "completed", "failed", "cancelled"];
const FAILURES_SHOWN = 5;
const NODES_SHOWN = 8;
const SHAPES = { good: "completed", doubt: "failures", bad: "failed", idle: "gone" };

export function mount(root, { model }) {
  follow(model);
  const parts = [light(), tiles(), states(), engines(), nodes(), failures(), damage()];
  const [truth, figures, byState, byEngine, byNode, errors, damaged] = parts.map(({ element }) => element);
  root.append(heading("Overview"), truth, damaged, figures,
    h("div", { class: "columns" }, h("div", { class: "stack" }, byState, errors), h("div", { class: "stack" }, byEngine, byNode)));
  const paint = () => parts.forEach((part) => part.paint(model));
  paint();
  return { update: (changed) => (changed.overview || changed.nodes || changed.connection || changed.tick) && paint() };
}

/** The light: all else on the page is worth as much as this says. */
function light() {
  const shape = icon("gone");
  const title = h("strong", { class: "figure" });
  const detail = h("span", { class: "dim" });
  const element = h("section", { class: "sheet light", id: "truth", "aria-label": "Audit" }, shape, h("div", null, title, detail));
  const paint = (model) => {
    const said = truthOf(model);
    attribute(element, "data-tone", said.tone);
    reshape(shape, SHAPES[said.tone]);
    text(title, said.title);
    text(detail, said.detail);
  };
  return { element, paint };
}

function tiles() {
  const line = (name, label) => ({ name, line: sparkline(label) });
  const lines = [line("ready", "Waiting"), line("running", "Running"), line("submitted", "Submitted per minute"), line("ended", "Ended per minute")];
  const [waits, runs, comes, goes] = lines.map(({ line }) => line.element);
  const made = {
    ready: tile("Waiting", { href: "/jobs?state=queued", more: waits }),
    running: tile("Running", { href: "/jobs?state=running", more: runs }),
    submitted: tile("Submitted / min", { more: comes }),
    ended: tile("Ended / min", { more: goes }),
    failed: tile("Failed", { href: "/failures" }),
    delayed: tile("Delayed", { href: "/jobs?q=is%3Adelayed" }),
    guess: tile("Guesses ~", { href: "/jobs?q=is%3Aguess" }),
    doubt: tile("Doubtful ?", { href: "/jobs?q=is%3Adoubt" }),
  };
  const element = h("div", { class: "tiles" }, Object.values(made).map((one) => one.element));
  const paint = ({ overview }) => {
    if (!overview) return;
    const { jobs, rates, ready, placed } = overview;
    const { count } = format;
    made.ready.set(count(ready), ready ? `oldest for ${format.span(overview.oldest_ready_ms ?? 0)}` : "nothing waits for a slot");
    made.running.set(count(jobs.running), placed ? `${count(placed)} placed, not started` : "none placed and not started");
    made.submitted.set(count(rates.submitted_per_min), "in the last minute");
    made.ended.set(count(rates.ended_per_min), "in the last minute");
    made.failed.set(format.percent(rates.failed_share), rates.failed_share === null ? "none ended in 5 minutes" : "of what ended in 5 minutes");
    made.delayed.set(count(overview.delayed), "not yet due");
    made.guess.set(count(jobs.guess), "a sweep's word stands", jobs.guess ? "doubt" : "");
    made.doubt.set(count(jobs.doubt), "run, but are silent", jobs.doubt ? "doubt" : "");
    for (const { name, line } of lines) draw(line, name);
  };
  return { element, paint };
}

function states() {
  const parts = bar();
  const list = h("ul", { class: "legend" });
  const element = panel("Jobs by state", h("div", { class: "panel-body" }, parts.element, list));
  const entry = (state) => {
    const figure = h("span", { class: "figure" });
    const line = h("li", null, h("a", { href: `/jobs?state=${state}`, class: "state", "data-state": state }, icon(state), state), figure);
    return { element: line, paint: ({ value }) => text(figure, format.count(value)) };
  };
  const paint = ({ overview }) => {
    const found = STATES.map((state) => ({ state, tone: state, value: overview?.jobs[state] ?? 0 }));
    parts.set(found, 0);
    keyed(list, found, ({ state }) => state, ({ state }) => entry(state));
  };
  return { element, paint };
}

function engines() {
  const number = (head, name) => ({ head, kind: "number", figure: true, text: (one) => format.count(one[name]) });
  const columns = [
    { head: "Engine", kind: "name", paint: (cell, { engine }) => link(cell, `/jobs?engine=${encodeURIComponent(engine)}`, engine) },
    number("Wanted", "wanted"), number("Occupied", "occupied"), number("Slots", "slots"),
    { head: "Load", kind: "wide", paint: paintLoad },
  ];
  const grid = table("Engines", columns, ({ engine }) => engine);
  const element = panel("Engines", grid.element);
  const paint = ({ overview }) => {
    const { wanted = {}, occupied = {}, slots = {} } = overview ?? {};
    const names = [...new Set([wanted, occupied, slots].flatMap(Object.keys))].sort();
    grid.show(names.map((engine) => ({ engine, wanted: wanted[engine] ?? 0, occupied: occupied[engine] ?? 0, slots: slots[engine] ?? 0 })),
      overview ? "No engine is offered, and none is wanted." : "Nothing was heard yet.");
  };
  return { element, paint };
}

function paintLoad(cell, { wanted, occupied, slots }) {
  const made = slot(cell, () => {
    const parts = bar();
    const word = h("span", { class: "load-word figure" });
    return Object.assign(h("div", { class: "load" }, parts.element, word), { parts, word });
  });
  const waiting = Math.max(0, wanted - occupied);
  made.parts.set([{ value: occupied, tone: "running" }, { value: waiting, tone: "doubt" }], slots);
  const short = wanted - slots;
  text(made.word, !slots && wanted ? "no node offers it" : short > 0 ? `${format.count(short)} short` : slots ? `${format.count(Math.max(0, slots - occupied))} free` : "");
  attribute(made.word, "data-tone", short > 0 ? "doubt" : null);
}

/** The fleet in short, what fell silent first. */
function nodes() {
  const columns = [
    { head: "Node", kind: "name", paint: (cell, { node }) => link(cell, `/jobs?node=${encodeURIComponent(node)}`, node) },
    { head: "State", paint: (cell, node) => mark(cell, ...stateOf(node)) },
    { head: "Running", kind: "number", figure: true, text: ({ running, slots }) => `${format.count(running)} of ${format.count(slots)}` },
    { head: "Beat", kind: "time", figure: true, text: ({ beaten_at: at }) => format.ago(at) },
  ];
  const grid = table("Nodes", columns, ({ node }) => node);
  const element = panel("Nodes", grid.element, h("a", { href: "/nodes" }, "all"));
  const paint = ({ nodes: found }) => grid.show(troubledFirst(found ?? []).slice(0, NODES_SHOWN), found ? "No node was heard of." : "Nothing was heard yet.");
  return { element, paint };
}

function failures() {
  const grid = table("Failures", failureColumns, ({ error }) => error);
  const element = panel("Failures", grid.element, h("a", { href: "/failures" }, "all"));
  const paint = ({ overview }) => grid.show((overview?.failures ?? []).slice(0, FAILURES_SHOWN), overview ? "No job is kept that failed." : "Nothing was heard yet.");
  return { element, paint };
}

/** What of all this could not be read. */
function damage() {
  const list = h("ul", null);
  const element = h("section", { class: "sheet light", "data-tone": "bad", "aria-label": "Damage" }, icon("failures"), list);
  const paint = ({ overview }) => {
    const found = overview?.damaged ?? [];
    element.hidden = !found.length;
    keyed(list, found, (line) => line, (line) => ({ element: h("li", null, format.visible(line)), paint: () => undefined }));
  };
  return { element, paint };
}
