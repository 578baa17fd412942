// What stands around every view: the pages, how fresh it all is, the theme.

import { post } from "./api.js";
import { toast } from "./dialog.js";
import { attribute, fill, h, text } from "./dom.js";
import * as format from "./format.js";
import { icon } from "./icons.js";
import { pressHelp } from "./keys.js";
import { isTroubled } from "./node.js";

const THEMES = ["system", "dark", "light"];
const WORDS = { connecting: "connecting", live: "live", quiet: "silent", troubled: "not live", offline: "not live", paused: "paused", login: "login needed" };

/** Builds it; gives {update(changed), shown(view), theme()}. */
export function shell({ views, model }) {
  const pages = views.filter((view) => view.key).map((view) => {
    const figure = h("span", { class: "nav-figure figure" });
    const link = h("a", { href: view.path, "data-page": view.name, title: `${view.title} (g ${view.key})` },
      icon(view.name), h("span", { class: "nav-word" }, view.title), figure);
    return { view, link, figure };
  });
  document.getElementById("nav").append(...pages.map(({ link }) => link));
  const themeWord = h("span", { class: "button-word" });
  const theme = () => setTheme(THEMES[(THEMES.indexOf(themeNow()) + 1) % THEMES.length], themeWord);
  document.getElementById("shell-buttons").append(
    h("button", { type: "button", class: "quiet", id: "theme", title: "Theme (t)", onclick: theme }, icon("theme"), themeWord),
    h("button", { type: "button", class: "quiet", id: "help", title: "Keys (?)", onclick: pressHelp }, icon("help"), h("span", { class: "button-word" }, "Keys")));
  if (hasLogin()) {
    document.getElementById("shell-buttons").append(
      h("button", { type: "button", class: "quiet", id: "logout", title: "Log out", onclick: logOut }, icon("logout"), h("span", { class: "button-word" }, "Log out")));
  }
  text(themeWord, `Theme: ${themeNow()}`);
  const freshness = freshnessOf(model);
  freshness();
  return {
    theme,
    shown(view) {
      const name = view?.parent ?? view?.name;
      for (const page of pages) attribute(page.link, "aria-current", page.view.name === name ? "page" : null);
    },
    update(changed) {
      if (changed.connection || changed.tick) freshness();
      if (changed.overview || changed.nodes || changed.tick) figures(pages, model);
    },
  };
}

/** Whether this browser logged in: its cookie is not ours to see. */
function hasLogin() {
  try {
    return localStorage.getItem("login") !== null;
  } catch {
    return false;
  }
}

async function logOut() {
  try {
    await post("/logout");
    localStorage.removeItem("login");
    location.assign("/login");
  } catch (failed) {
    toast(failed.message, { bad: true });
  }
}

const themeNow = () => document.documentElement.dataset.theme ?? "system";

function setTheme(name, word) {
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  text(word, `Theme: ${name}`);
  try {
    if (name === "system") localStorage.removeItem("theme");
    else localStorage.setItem("theme", name);
  } catch {
    // Forbidden storage: it holds until the page is left.
  }
}

/** What stands beside the pages' names: jobs that are not ended, nodes that beat, and of how many where some fell silent. */
function figures(pages, model) {
  const { overview, nodes } = model;
  const jobs = overview?.jobs;
  const up = nodes?.filter((node) => !node.suspect).length;
  const silent = nodes?.filter(isTroubled).length;
  const said = {
    jobs: jobs && format.count((jobs.queued ?? 0) + (jobs.running ?? 0)),
    nodes: nodes && (silent ? `${format.count(up)} of ${format.count(up + silent)}` : format.count(up)),
  };
  for (const { view, figure } of pages) {
    text(figure, said[view.name]);
    attribute(figure, "data-tone", view.name === "nodes" && silent ? "doubt" : null);
  }
}

/** Paints the connection's state, and the banner where what is shown is not what is. */
function freshnessOf(model) {
  const place = document.getElementById("connection");
  const banner = document.getElementById("banner");
  const line = h("span", { id: "banner-text" });
  const again = h("button", { type: "button", onclick: () => model.retry() }, "Try now");
  fill(banner, line, again);
  return () => {
    const { connection } = model;
    const lists = connection.name === "live" && (model.listedAt === null || model.listTrouble !== null);
    attribute(document.documentElement, "data-live", model.live ? "yes" : "no");
    attribute(place, "data-state", lists ? "listing" : connection.name);
    text(place, lists ? (model.listedAt === null ? "listing" : "listing anew") : (WORDS[connection.name] ?? connection.name));
    attribute(place, "title", `${model.drift} jobs drifted unexplained since this page was opened`);
    const said = trouble(model);
    banner.hidden = !said;
    text(line, said);
    again.hidden = ["quiet", "troubled"].includes(connection.name);
  };
}

function trouble({ connection, listTrouble, listedAt, liveAt }) {
  const since = connection.since ? `Not live since ${format.clock(connection.since)} (${span(connection.since)})` : "Not live yet";
  if (connection.name === "offline") {
    const left = Math.max(0, Math.ceil((connection.retryAt - Date.now()) / 1000));
    return `${since}: ${connection.why}. ${left ? `Trying again in ${left} s.` : "Trying now."}`;
  }
  if (connection.name === "troubled") return `${since}: ${connection.why}.`;
  if (connection.name === "quiet") return `${since}: the server, or its Redis, tells nothing.`;
  if (connection.name === "paused") return `${since}: paused while the page was hidden.`;
  if (listTrouble && listedAt) return `The list shown is that of ${format.clock(liveAt ?? listedAt)}: ${listTrouble}.`;
  if (listTrouble) return `The jobs could not be listed: ${listTrouble}.`;
  return "";
}

const span = (ms) => `${format.span(Date.now() - ms)} ago`;
