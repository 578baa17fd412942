// The keyboard: what acts on every page, then what the shown view says of its own keys.

import { tell } from "./dialog.js";
import { h, isTyping } from "./dom.js";

const GO_MS = 1_200;

/** `keys()` gives the shown view's: {key: [what it does, function]}. */
export function keyboard({ views, navigate, keys, theme }) {
  let goUntil = 0;
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (document.querySelector("dialog[open]")) return;
    if (isTyping()) {
      if (event.key === "Escape") document.activeElement.blur();
      return;
    }
    const going = performance.now() < goUntil;
    goUntil = 0;
    const act = going ? goTo(event.key) : (keys()[event.key]?.[1] ?? ours[event.key]?.[1]);
    if (!act || (event.key === "Enter" && document.activeElement?.matches("a, button, summary, input"))) return;
    event.preventDefault();
    act();
  });

  const goTo = (key) => {
    const view = views.find((one) => one.key === key);
    return view && (() => navigate(view.path));
  };
  const ours = {
    g: ["then a letter: go to a page", () => (goUntil = performance.now() + GO_MS)],
    "/": ["search the jobs", () => search(navigate)],
    t: ["dark, light, or as the system", theme],
    "?": ["this help", () => help(views, keys(), ours)],
  };
}

function search(navigate) {
  const field = document.getElementById("search");
  if (field) {
    field.focus();
    field.select();
  } else navigate("/jobs#search");
}

const SHOWN = { " ": "Space", ArrowDown: "↓", ArrowUp: "↑", Escape: "Esc" };

function help(views, own, ours) {
  const lines = (pairs) => h("dl", { class: "terms keys" }, pairs.map(([key, does]) => [
    h("dt", null, key.split(" then ").map((one) => h("kbd", null, SHOWN[one] ?? one))), h("dd", null, does)]));
  const table = (keys) => lines(Object.entries(keys).filter(([, said]) => said[0]).map(([key, [does]]) => [key, does]));
  tell("Keys", [
    Object.keys(own).length ? [h("h3", null, "On this page"), table(own)] : null,
    h("h3", null, "Everywhere"), table(ours),
    lines(views.filter((view) => view.key).map((view) => [`g then ${view.key}`, view.title])),
  ]);
}

/** The help, for a button. */
export const pressHelp = () => dispatchEvent(new KeyboardEvent("keydown", { key: "?" }));
