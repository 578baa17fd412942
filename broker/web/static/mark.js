// How every page shows a job's state: an icon of its own shape, and the word, with `~` for a guess and `?` for a doubt.

import { attribute, h, text } from "./dom.js";
import { shownState } from "./format.js";
import { icon, reshape, stateIcon } from "./icons.js";

/** The element; `record` null is a job that is gone. */
export function stateMark(record, doubt = false) {
  return stateMark.paint(h("span", { class: "state" }, icon("gone"), h("span", { class: "state-word" })), record, doubt);
}

/** Show another state in an element that `stateMark` made. */
stateMark.paint = (element, record, doubt = false) => {
  const state = record ? shownState(record, doubt) : "gone";
  if (element.dataset.state === state && element.dataset.icon === (record ? stateIcon(record) : "gone")) return element;
  element.dataset.state = state;
  element.dataset.icon = record ? stateIcon(record) : "gone";
  attribute(element, "data-sure", record && state === record.state ? null : "no");
  attribute(element, "title", meaning(record, state));
  reshape(element.firstChild, element.dataset.icon);
  text(element.lastChild, state);
  return element;
};

function meaning(record, state) {
  if (state.endsWith("~")) return `a sweep's guess, in place of ${record.guessed_from}`;
  if (state.endsWith("?")) return "whoever runs it is silent";
  if (record?.state === "queued" && record.node) return `handed to ${record.node}, not started yet`;
  return null;
}
