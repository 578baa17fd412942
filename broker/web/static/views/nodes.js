// The fleet: each node with its slots, what its workers run against what the records say is in flight there.

import { attribute, fill, h, text } from "../dom.js";
import * as format from "../format.js";
import { icon } from "../icons.js";
import { isTroubled, stateOf, troubledFirst } from "../node.js";
import { pathOf } from "../query.js";
import { act, inFlight } from "./fleet.js";
import { heading, keyed, link, told } from "./parts.js";

export function mount(root, context) {
  const { model } = context;
  const sum = h("span", { class: "dim" });
  const cards = h("div", { class: "cards" });
  const none = h("p", { class: "empty" });
  root.append(heading("Nodes", sum), cards, none);
  const paint = () => {
    const nodes = troubledFirst(model.nodes ?? []);
    const flights = inFlight(model.jobs);
    keyed(cards, nodes.map((node) => ({ node, flight: flights.get(node.node) })), ({ node }) => node.node, () => card(context));
    const up = nodes.filter((node) => !node.suspect && !node.flag);
    const of = (name) => format.count(nodes.reduce((all, node) => all + node[name], 0));
    text(sum, model.nodes ? `${up.length} of ${nodes.length} up, ${of("running")} of ${of("slots")} slots run` : "");
    none.hidden = Boolean(nodes.length);
    text(none, model.nodes ? "No node was heard of. broker worker starts one." : "Nothing was heard yet.");
  };
  paint();
  return { update: (changed) => (changed.nodes || changed.tick) && paint() };
}

function card(context) {
  const name = h("h2", null);
  const state = told();
  const beat = h("span", { class: "figure" });
  const facts = h("p", { class: "dim facts" });
  const engines = h("div", { class: "engines" });
  const flightLink = h("span", null);
  const flightRest = h("span", null);
  const flight = h("p", { class: "dim facts figure" }, flightLink, flightRest);
  const buttons = h("div", { class: "card-buttons" });
  const element = h("article", { class: "sheet card" },
    h("div", { class: "card-head" }, icon("nodes"), name, state.element, h("span", { class: "beat dim" }, "beat ", beat)),
    engines, flight, facts, buttons);
  const paint = ({ node, flight: found }) => {
    attribute(element, "data-node", node.node);
    attribute(element, "data-suspect", isTroubled(node) ? "yes" : null);
    attribute(element, "aria-label", `Node ${node.node}`);
    text(name, format.visible(node.node));
    state.set(...stateOf(node));
    text(beat, format.ago(node.beaten_at));
    attribute(beat, "title", format.instant(node.beaten_at) || null);
    keyed(engines, byEngine(node.workers), ({ engine }) => engine, () => engineLine());
    const [number, rest] = flightOf(found, node);
    link(flightLink, pathOf({ states: ["queued", "running"], node: node.node }), number);
    text(flightRest, rest);
    const said = [node.pressure ? `pressure ${format.count(node.pressure)}` : "", node.models.length ? `models ${node.models.join(", ")}` : ""];
    text(facts, format.visible(said.filter(Boolean).join("; ")));
    facts.hidden = !facts.textContent;
    paintButtons(buttons, node, context);
  };
  return { element, paint };
}

/** What the records say is there, held against the workers' own word: [the number, what it is made of]. */
function flightOf(found = { placed: 0, running: 0, reported: 0 }, { running, suspect }) {
  const { placed, reported } = found;
  const parts = [`: ${format.count(found.running)} started, ${format.count(placed)} placed`];
  if (!suspect) parts.push(`workers run ${format.count(running)}`);
  if (reported) parts.push(`${format.count(reported)} reported`);
  return [`in flight ${format.count(found.running + placed)}`, parts.join("; ")];
}

function byEngine(workers) {
  const found = new Map();
  for (const worker of workers) {
    if (!found.has(worker.engine)) found.set(worker.engine, []);
    found.get(worker.engine).push(worker);
  }
  return [...found].sort(([a], [b]) => (a < b ? -1 : 1)).map(([engine, all]) => ({ engine, workers: all }));
}

function engineLine() {
  const name = h("span", { class: "engine-name" });
  const slots = h("ul", { class: "slots" });
  const figure = h("span", { class: "figure engine-figure" });
  const element = h("div", { class: "engine" }, name, slots, figure);
  const paint = ({ engine, workers }) => {
    const fresh = workers.filter((worker) => !worker.suspect);
    const busy = fresh.filter((worker) => worker.job).length;
    const silent = workers.length - fresh.length;
    text(name, format.visible(engine));
    text(figure, [fresh.length || !silent ? `${busy} of ${fresh.length} run` : "", silent ? `${silent} silent ?` : ""].filter(Boolean).join(", "));
    attribute(slots, "aria-label", `Slots of ${engine}`);
    keyed(slots, workers, (worker) => worker.name, () => slotMark());
  };
  return { element, paint };
}

/** One worker, that is one slot: full, empty, or silent. A full one leads to its job. */
function slotMark() {
  const element = h("li", null);
  let shown = null;
  const paint = (worker) => {
    const { name, job, suspect } = worker;
    const now = JSON.stringify([name, job, suspect]);
    if (now === shown) return;
    shown = now;
    const said = format.visible(`${name}: ${suspect ? "silent ?" : job ? `runs ${job}` : "free"}`);
    const look = { class: "slot", "data-slot": suspect ? "silent" : job ? "busy" : "free", title: said };
    const mark = suspect ? "?" : "";
    fill(element, job
      ? h("a", { ...look, href: format.jobPath(job), "aria-label": said }, mark)
      : h("span", { ...look, role: "img", "aria-label": said }, mark));
  };
  return { element, paint };
}

function paintButtons(place, node, context) {
  const verbs = [...(node.flag ? ["resume"] : []), ...(node.flag === "drained" ? [] : ["drain"]), ...(node.flag === "dead" ? [] : ["dead"]), "remove"];
  if (place.dataset.verbs === verbs.join()) return;
  const focused = place.contains(document.activeElement);
  place.dataset.verbs = verbs.join();
  const words = { resume: "Resume", drain: "Drain", dead: "Mark dead", remove: "Remove" };
  fill(place, verbs.map((verb) => h("button", {
    type: "button", "data-verb": verb, "aria-label": `${words[verb]} ${node.node}`, onclick: () => act(verb, node.node, context),
  }, words[verb])));
  if (focused) place.firstElementChild.focus();
}
