// The columns of the job list, and how a row is painted.

import { attribute, h, text } from "./dom.js";
import { age, ago, count, errorOf, instant, jobPath, shownState, span, took, visible } from "./format.js";
import { say } from "./grid.js";
import { stateMark } from "./mark.js";

/** What the list can be ordered by: [sort, label]. */
export const SORTS = [["", "Newest"], ["-created", "Oldest"], ["state", "State"], ["ended", "Last ended"], ["took", "Longest"], ["node", "Node"], ["key", "Key"], ["error", "Error"], ["tries", "Most tries"]];

/** `doubt(key)` and `chosen(key)` are asked at each painting. */
export const columns = ({ doubt, chosen }) => [
  {
    name: "c-box",
    title: h("span", { class: "sr" }, "Chosen"),
    make: () => h("input", { type: "checkbox", tabindex: -1, "aria-label": "Choose" }),
    paint: (cell, record) => {
      const ticked = chosen(record.key);
      if (cell.firstChild.checked !== ticked) cell.firstChild.checked = ticked;
    },
  },
  {
    name: "c-state",
    title: "State",
    sort: "state",
    make: () => stateMark(null),
    paint: (cell, record) => stateMark.paint(cell.firstChild, record, doubt(record.key)),
  },
  {
    name: "c-key",
    title: "Key",
    sort: "key",
    class: "mono",
    make: () => h("a", { tabindex: -1, class: "key" }, h("bdi", { class: "key-lead" }), h("bdi", { class: "key-id" })),
    paint: ({ firstChild: link }, { key }) => {
      if (link.title === key) return;
      const cut = key.lastIndexOf("/") + 1;
      attribute(link, "href", jobPath(key));
      link.title = key;
      text(link.firstChild, visible(key.slice(0, cut)));
      text(link.lastChild, visible(key.slice(cut)));
    },
  },
  { name: "c-node", title: "Node", sort: "node", paint: (cell, { node }) => say(cell, visible(node)) },
  {
    name: "c-age",
    title: "Age",
    sort: "created",
    class: "number",
    paint: (cell, { created_at: at }) => say(cell, age(at), `handed in ${instant(at)}`),
  },
  { name: "c-took", title: "Took", sort: "took", class: "number", paint: paintTook },
  {
    name: "c-tries",
    title: "Tries",
    sort: "tries",
    class: "number",
    paint: (cell, record) => say(cell, record.kind === "submitted" ? `${count(record.tries)}/${count(record.attempts)}` : "", record.kind === "submitted" ? null : "reported: its origin runs it"),
  },
  { name: "c-model", title: "Model", sort: "model", paint: (cell, { model }) => say(cell, visible(model), model || null) },
  {
    name: "c-error",
    title: "Error",
    sort: "error",
    paint: (cell, record) => {
      const said = errorOf(record);
      say(cell, visible(said), said || null);
    },
  },
];

function paintTook(cell, record) {
  const ms = took(record);
  const said = ms === null ? "" : record.completed_at || ms >= 10_000 ? span(ms) : `${Math.floor(Math.max(0, ms) / 1000)}s`;
  const ended = record.completed_at ? `, ended ${instant(record.completed_at)} (${ago(record.completed_at)})` : "";
  say(cell, said, record.started_at ? `started ${instant(record.started_at)}${ended}` : null);
}

/** What belongs to a whole row. */
export const rowPainter = ({ doubt, chosen }) => (row, record) => {
  const state = shownState(record, doubt(record.key));
  if (row.dataset.state !== state) row.dataset.state = state;
  const ticked = chosen(record.key);
  attribute(row, "aria-selected", ticked ? "true" : "false");
  attribute(row, "data-desired", record.desired !== "run" && !record.completed_at ? record.desired : null);
};
