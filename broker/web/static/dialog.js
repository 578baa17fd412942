// Questions and remarks: one dialog at a time, and lines that go away by themselves.

import { fill, h } from "./dom.js";

const TOAST_MS = 6_000;

/**
 * Ask before something is done. `body` is text or elements, `options` are [{name, label, checked}] to tick.
 * Gives null where it was refused, else {name: ticked} of the options.
 */
export function ask({ title, body, verb, danger = false, options = [] }) {
  const boxes = options.map(({ name, label, checked }) => {
    const box = h("input", { type: "checkbox", name, checked });
    return { name, box, line: h("label", { class: "option" }, box, label) };
  });
  const yes = h("button", { type: "submit", value: "yes", class: danger ? "danger" : "primary", id: "dialog-yes" }, verb);
  const no = h("button", { type: "submit", value: "no", id: "dialog-no", autofocus: true, formnovalidate: true }, "Keep as it is");
  const form = h("form", { method: "dialog" },
    h("h2", { id: "dialog-title" }, title),
    h("div", { class: "dialog-body" }, body, boxes.map(({ line }) => line)),
    h("div", { class: "dialog-buttons" }, no, yes));
  return new Promise((settle) => {
    const dialog = open(form, () => {
      settle(dialog.returnValue === "yes" ? Object.fromEntries(boxes.map(({ name, box }) => [name, box.checked])) : null);
    });
  });
}

/** Show something until it is closed. */
export function tell(title, body) {
  open(h("form", { method: "dialog" }, h("h2", { id: "dialog-title" }, title), h("div", { class: "dialog-body" }, body),
    h("div", { class: "dialog-buttons" }, h("button", { type: "submit", autofocus: true }, "Close"))));
}

function open(content, closed) {
  const before = document.activeElement;
  const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, content);
  dialog.addEventListener("close", () => {
    dialog.remove();
    // It closes a moment after the key that closed it: somebody may have gone elsewhere by then.
    if (before?.isConnected && document.activeElement === document.body) before.focus({ preventScroll: true });
    closed?.();
  });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** A line about what was done, or (bad) what went wrong; it stays while it is pointed at. Its time begins when it is painted. */
export function toast(said, { bad = false } = {}) {
  const place = document.getElementById("toasts");
  const line = h("div", { class: "toast", "data-bad": bad }, h("span", null, said));
  const close = h("button", { type: "button", class: "quiet", "aria-label": "Close", onclick: () => line.remove() }, "×");
  line.append(close);
  place.append(line);
  const leave = () => (line.matches(":hover, :focus-within") ? setTimeout(leave, TOAST_MS) : line.remove());
  requestAnimationFrame(() => setTimeout(leave, bad ? 2 * TOAST_MS : TOAST_MS));
}

/** A list of `[name, value]` as terms. */
export const terms = (pairs) => fill(h("dl", { class: "terms" }), pairs.map(([name, value]) => [h("dt", null, name), h("dd", null, value)]));
