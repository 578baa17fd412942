// Where it is all kept: Redis and its settings, who leads, each origin's log, and what audits found.

import { attribute, h, text } from "../dom.js";
import * as format from "../format.js";
import { draw, follow } from "./history.js";
import { bar, heading, keyed, mark, panel, slot, sparkline, table, told } from "./parts.js";

const MEMORY_SHARE_MAX = 0.8;
const CLOCK_MS_MAX = 500;

export function mount(root, { model }) {
  follow(model);
  const parts = [redis(), leaders(), logs(), audits()];
  const [server, led, kept, audited] = parts.map(({ element }) => element);
  root.append(heading("Streams"), h("div", { class: "columns" }, server, h("div", { class: "stack" }, led, audited)), kept);
  const paint = () => parts.forEach((part) => part.paint(model.overview));
  paint();
  return { update: (changed) => (changed.overview || changed.tick) && paint() };
}

/** Terms whose values are a chip (judged) or plain words. */
function judged(list, found) {
  keyed(list, found, ([name]) => name, ([name]) => {
    const one = told();
    const element = h("div", { class: "term" }, h("dt", null, name), h("dd", null, one.element));
    return { element, paint: ([, tone, said, title]) => one.set(tone, said, title) };
  });
}

function redis() {
  const list = h("dl", { class: "judged" });
  const memory = bar();
  const answers = sparkline("Answer time in ms");
  const none = h("p", { class: "empty" }, "Nothing was heard yet.");
  const limit = h("div", null, h("h3", null, "Memory"), memory.element);
  const body = h("div", { class: "panel-body" }, list, limit, h("h3", null, "Answer time"), answers.element);
  const element = panel("Redis", [none, body]);
  const paint = (overview) => {
    none.hidden = Boolean(overview);
    body.hidden = !overview;
    if (!overview) return;
    const one = overview.redis;
    judged(list, judge(one));
    memory.set([{ value: one.used, tone: one.used > MEMORY_SHARE_MAX * one.used_max ? "doubt" : "running" }], one.used_max);
    limit.hidden = !one.used_max;
    draw(answers, "answer");
  };
  return { element, paint };
}

/** [name, tone, words, title] of what matters about the server, in the words of its settings. */
function judge(one) {
  const share = one.used_max ? one.used / one.used_max : null;
  const used = `${format.bytes(one.used)} of ${one.used_max ? `${format.bytes(one.used_max)} (${format.percent(share)})` : "no limit"}`;
  const keeps = one.aof ? (one.aof_ok ? ["good", "on"] : ["bad", "on, but its last write failed"]) : ["bad", "off: what it took is lost with it"];
  const syncs = { always: "good", everysec: "good", no: "doubt" };
  const skew = Math.abs(one.clock_ahead_ms);
  return [
    ["Server", one.role === "master" ? "good" : "bad", `${one.name} ${one.version}, ${one.role}`, null],
    ["Memory used", share !== null && share > MEMORY_SHARE_MAX ? "doubt" : "good", used, null],
    ["maxmemory-policy", one.policy === "noeviction" ? "good" : one.policy === "unknown" ? "doubt" : "bad", one.policy, "noeviction: jobs are never thrown away"],
    ["appendonly", ...keeps, null],
    ["appendfsync", one.aof ? (syncs[one.fsync] ?? "doubt") : "idle", one.fsync, "everysec: a power cut may take the last second"],
    ["Answers in", one.answer_ms > 10 ? "doubt" : "good", one.answer_ms < 0.1 ? "less than 0.1 ms" : `${one.answer_ms.toFixed(1)} ms`, null],
    ["Clock", skew > CLOCK_MS_MAX ? "doubt" : "good", skew < 10 ? "as ours" : `${format.span(skew)} ${one.clock_ahead_ms > 0 ? "ahead of" : "behind"} ours`, null],
    ["Reached at", one.host && !one.login ? "doubt" : "good", one.host ? `${one.host}${one.login ? ", with a login" : ", without a login"}` : "this machine only", null],
  ];
}

function leaders() {
  const columns = [
    { head: "Role", text: ({ role }) => role },
    { head: "Leader", paint: (cell, { held }) => mark(cell, held ? "good" : "doubt", held ? "leads" : "nobody") },
    { head: "Term", kind: "number", text: ({ term }) => (term ? String(term) : "-") },
  ];
  const grid = table("Leaders", columns, ({ role }) => role);
  const paint = (overview) => {
    const found = Object.entries(overview?.leaders ?? {}).map(([role, said]) => ({ role, ...said }));
    grid.show(found, overview ? "No role was ever led: broker serve runs them." : "Nothing was heard yet.");
  };
  return { element: panel("Leaders", grid.element), paint };
}

const at = (rev) => Number(String(rev ?? "").split("-")[0]);

function logs() {
  const number = (head, name, said = format.count) => ({ head, kind: "number", minor: name !== "log", text: (one) => said(one[name]) });
  const instant = (head, name) => ({ head, kind: "number", paint: (cell, one) => {
    const made = slot(cell, () => h("span", { class: "figure" }));
    text(made, at(one[name]) ? format.ago(at(one[name])) : one[name] === null ? "?" : "-");
    attribute(made, "title", one[name] ? `${one[name]}, ${format.instant(at(one[name]))}` : null);
  } });
  const columns = [
    { head: "Origin", kind: "name", paint: paintOrigin },
    number("Entries", "log"), number("About", "bytes", format.bytes), number("Trimmed", "trimmed"),
    instant("Newest", "last_rev"), instant("Floor", "floor"),
    { head: "Epoch", kind: "code", text: ({ epoch }) => epoch ?? "?" },
    number("Live", "live"), number("Ended", "done"), number("Ready", "ready"), number("Delayed", "delayed"),
  ];
  const grid = table("Logs", columns, ({ origin }) => origin);
  const paint = (overview) => grid.show(overview?.origins ?? [], overview ? "No origin was heard of." : "Nothing was heard yet.");
  return { element: panel("Logs by origin", grid.element), paint };
}

function paintOrigin(cell, { origin, damage }) {
  const made = slot(cell, () => h("a", null));
  attribute(made, "href", `/jobs?origin=${encodeURIComponent(origin)}`);
  text(made, format.visible(origin));
  if (cell.children.length === 1) cell.append(h("span", { class: "cell-note", "data-tone": "bad" }));
  text(cell.lastChild, format.visible(damage ?? ""));
}

const GAUGES = ["ghosts", "missing", "stuck", "drift", "unread", "repaired"];

function audits() {
  const columns = [
    { head: "Audit", text: ({ name }) => name },
    { head: "Newest round", kind: "number", text: ({ now }) => format.count(now) },
    { head: "All rounds", kind: "number", text: ({ all }) => (all === undefined ? "-" : format.count(all)) },
  ];
  const grid = table("What audits found", columns, ({ name }) => name);
  const when = h("span", { class: "dim" });
  const paint = (overview) => {
    const audit = overview?.audit;
    text(when, audit?.at ? `${format.ago(audit.at)}, in ${format.span(audit.took_ms)}` : "");
    const found = audit?.at ? GAUGES.map((name) => ({ name, now: audit[name], all: audit[`${name}_total`] })) : [];
    grid.show(found, overview ? "No audit yet." : "Nothing was heard yet.");
  };
  return { element: panel("Audits", grid.element, when), paint };
}
