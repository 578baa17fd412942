// What happened to one job, oldest first: the entries of its log, and greyed among them what was refused, by which rule.

import { fill, h } from "./dom.js";
import { begun, count, dayOf, instant, now, timeOf, visible } from "./format.js";
import { stateMark } from "./mark.js";

/** Paint `{entries, refused, whole}` into a sheet. */
export function paintTimeline(place, { entries, refused, whole }) {
  const lines = [
    ...entries.map((entry) => ({ at: entry.at, entry })),
    ...refused.map((refusal) => ({ at: refusal.at, refusal })),
  ].sort((a, b) => a.at - b.at);
  const rows = lines.map((line, index) => {
    const cell = when(line.at, index ? lines[index - 1].at : null);
    return line.entry ? entryRow(line.entry, cell, before(entries, line.entry)) : refusalRow(line.refusal, cell);
  });
  const table = h("table", { class: "timeline" },
    h("thead", null, h("tr", null, ["When, UTC", "State", "Rule", "Node", "Seq", "Attempt", "By"].map((title) => h("th", { scope: "col", class: title === "Seq" || title === "Attempt" ? "number" : null }, title)))),
    h("tbody", null, rows));
  fill(place, h("h2", null, "Timeline"),
    whole ? null : h("p", { class: "sheet-note" }, "Older entries are no longer in the log, or not near enough to be shown."),
    rows.length ? h("div", { class: "scroll-x", tabindex: 0, role: "group", "aria-label": "Timeline" }, table) : h("p", { class: "sheet-note" }, "The log tells nothing of it any more."));
}

const before = (entries, entry) => entries[entries.indexOf(entry) - 1]?.record ?? null;

function entryRow(entry, whenCell, old) {
  const { record } = entry;
  const told = record ?? {};
  const raised = record && old && told.attempt > old.attempt && old.attempt > 0;
  const said = [told.reason !== old?.reason && told.reason, told.error !== old?.error && begun(told.error)].filter(Boolean).join(": ");
  return [
    h("tr", { "data-rule": entry.rule, "data-rev": entry.rev },
      whenCell,
      h("td", null, stateMark(record)),
      h("td", null, h("code", null, entry.rule)),
      h("td", null, visible(told.node ?? "")),
      h("td", { class: "number" }, told.seq || ""),
      h("td", { class: "number", "data-raised": raised ? "yes" : null }, told.attempt || ""),
      by(entry.by)),
    saidRow(said),
  ];
}

function refusalRow({ rule, event, state, node, seq, attempt, by: who, count: times }, whenCell) {
  return h("tr", { class: "refused", "data-rule": rule, "data-refused": "yes" },
    whenCell,
    h("td", null, `refused: ${visible([event, state].filter(Boolean).join(" "))}`),
    h("td", null, h("code", null, rule), times > 1 ? ` ×${count(times)}` : null),
    h("td", null, visible(node)),
    h("td", { class: "number" }, seq || ""),
    h("td", { class: "number" }, attempt || ""),
    by(who));
}

const by = (who) => h("td", { class: "dim by", title: who || null }, visible(who));
const saidRow = (said) => said && h("tr", { class: "said-row" }, h("td", null), h("td", { colspan: 6, class: "said" }, visible(said)));

/** When a line was, and how long after the one before (null: it is the first). The day is told where it is another one. */
function when(at, last) {
  if (!at) return h("td", null, "");
  const day = dayOf(at) === dayOf(last || now()) ? "" : `${dayOf(at)} `;
  return h("td", { class: "when", title: instant(at) }, h("time", { datetime: new Date(at).toISOString() }, day + timeOf(at)),
    last === null ? null : h("span", { class: "since" }, gap(at - last)));
}

/** How long after the line before. */
function gap(ms) {
  if (ms < 1_000) return `+${ms}ms`;
  if (ms < 100_000) return `+${(ms / 1000).toFixed(1)}s`;
  return ms < 5_400_000 ? `+${Math.round(ms / 60_000)}m` : `+${Math.round(ms / 3_600_000)}h`;
}
