// The bar above the job list: states with their counts, engine, node, origin, search, order.

import { SORTS } from "./columns.js";
import { terms } from "./dialog.js";
import { attribute, fill, h, text } from "./dom.js";
import { count } from "./format.js";
import { SEARCH_HELP, STATES } from "./query.js";

const PARTS = [["engine", "Engine"], ["node", "Node"], ["origin", "Origin"]];

/** `changed(part of a query, isTyping)` is told what was chosen. Gives {element, show(query), count(counts), offer(jobs)}. */
export function filters(changed) {
  let query = null;
  const states = STATES.map((state) => {
    const figure = h("span", { class: "chip-count figure" });
    const chip = h("button", { type: "button", class: "chip", "data-state": state, onclick: () => toggle(state) }, state, figure);
    return { state, chip, figure };
  });
  const toggle = (state) => {
    const kept = query.states.filter((one) => one !== state);
    changed({ states: kept.length < query.states.length ? kept : STATES.filter((one) => one === state || kept.includes(one)) });
  };
  const choices = PARTS.map(([part, title]) => {
    const field = h("select", { id: `filter-${part}`, "aria-label": title, onchange: () => changed({ [part]: field.value }) });
    return { part, title, field, known: null };
  });
  const search = h("input", {
    type: "search", id: "search", placeholder: "Search   /", "aria-label": "Search the jobs", autocomplete: "off", spellcheck: "false",
    oninput: () => changed({ q: search.value.trim() }, true),
  });
  const order = h("select", { id: "filter-sort", "aria-label": "Order", class: "narrow-only", onchange: () => changed({ sort: order.value }) },
    SORTS.map(([sort, label]) => h("option", { value: sort }, label)));
  const help = h("details", { class: "search-help" }, h("summary", { "aria-label": "What the search understands" }, "?"), h("div", { class: "sheet" }, terms(SEARCH_HELP)));
  const clear = h("button", { type: "button", class: "quiet", id: "filter-clear", onclick: () => changed({ states: [], engine: "", node: "", origin: "", q: "" }) }, "Clear");
  const element = h("div", { class: "filters", role: "search", "aria-label": "Filter" },
    h("div", { class: "chips", role: "group", "aria-label": "States" }, states.map(({ chip }) => chip)),
    h("div", { class: "search" }, search, help), h("div", { class: "choices" }, choices.map(({ field }) => field), order), clear);

  return {
    element,
    show(now) {
      query = now;
      for (const { state, chip } of states) attribute(chip, "aria-pressed", query.states.includes(state) ? "true" : "false");
      for (const choice of choices) select(choice, query[choice.part]);
      if (search.value.trim() !== query.q) search.value = query.q;
      order.value = query.sort;
      attribute(clear, "data-idle", !(query.states.length || query.engine || query.node || query.origin || query.q));
    },
    /** How many there are of each state among those that fit otherwise; null: not known yet. */
    count(counts) {
      for (const { state, figure } of states) text(figure, counts === null ? "" : count(counts.get(state) ?? 0));
    },
    /** What engines, nodes and origins there are to choose from. */
    offer(jobs) {
      const known = { engine: new Set(), node: new Set(), origin: new Set() };
      for (const record of jobs.values()) for (const [part] of PARTS) if (record[part]) known[part].add(record[part]);
      for (const choice of choices) offer(choice, [...known[choice.part]].sort(), query[choice.part]);
    },
  };
}

/** Put other options into a field, where they differ and it is not being used. */
function offer(choice, names, chosen) {
  if (chosen && !names.includes(chosen)) names.push(chosen);
  const known = names.join("\n");
  if (known === choice.known || document.activeElement === choice.field) return;
  choice.known = known;
  fill(choice.field, h("option", { value: "" }, `Any ${choice.part}`), names.map((name) => h("option", { value: name }, name)));
  choice.field.value = chosen;
}

function select(choice, chosen) {
  if (![...choice.field.options].some((option) => option.value === chosen)) offer(choice, chosen ? [chosen] : [], chosen);
  choice.field.value = chosen;
  attribute(choice.field, "data-set", chosen !== "");
}
