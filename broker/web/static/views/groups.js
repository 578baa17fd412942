// Who subscribes to the logs: who reads, how far behind, and what was parked with which reason.

import { attribute, h, text } from "../dom.js";
import * as format from "../format.js";
import { heading, link, mark, panel, slot, table } from "./parts.js";

const UNKNOWN = "?";

export function mount(root, context) {
  const { model } = context;
  const columns = [
    { head: "Group", kind: "name", text: ({ group }) => group },
    { head: "Origin", paint: paintOrigin },
    { head: "Owner", paint: paintOwner },
    { head: "Last look", kind: "time", text: ({ looked_at: at }) => (at ? format.ago(at) : UNKNOWN) },
    { head: "Lag", kind: "number", paint: paintLag },
    { head: "Behind", kind: "number", text: (one) => (one.origin ? (one.lag_ms === null ? UNKNOWN : format.span(one.lag_ms)) : "-") },
    { head: "Unacked", kind: "number", minor: true, text: ({ pending }) => (pending === null ? UNKNOWN : format.count(pending)) },
    { head: "Tries", kind: "number", minor: true, text: ({ tries }) => format.count(tries) },
    { head: "Parked", kind: "number", paint: paintParked },
    { head: "Evicted", kind: "number", minor: true, text: ({ evicted }) => format.count(evicted) },
    { head: "Gaps", kind: "number", minor: true, text: ({ gaps }) => format.count(gaps) },
  ];
  const grid = table("Groups", columns, (one) => `${one.group} ${one.origin ?? ""}`);
  const sum = h("span", { class: "dim" });
  const parked = parkedPanel(context);
  root.append(heading("Groups", sum), panel("By group and origin", grid.element), parked.element);
  const paint = () => {
    const groups = model.groups ?? [];
    const names = new Set(groups.map(({ group }) => group));
    const late = groups.filter((one) => one.gone || one.lag_entries === null || one.lag_entries > 0);
    text(sum, model.groups ? `${format.counted(names.size, "group")}${late.length ? `, ${late.length} not at the end of ${late.length === 1 ? "its" : "their"} log` : names.size ? ", all at the end of their logs" : ""}` : "");
    grid.show(groups, model.groups ? "No group reads the logs. Broker.subscribe makes one." : "Nothing was heard yet.");
    parked.follow(groups);
  };
  const located = ({ search }) => parked.show(new URLSearchParams(search).get("parked"));
  paint();
  located(location);
  return { update: (changed) => (changed.groups || changed.tick) && paint(), located, unmount: parked.end };
}

function paintOrigin(cell, { origin }) {
  if (origin) link(cell, `/jobs?origin=${encodeURIComponent(origin)}`, origin);
  else text(cell, "-");
}

function paintOwner(cell, { owner, live }) {
  if (!owner) mark(cell, "idle", "nobody", "nobody reads here");
  else mark(cell, live ? "good" : "doubt", `${owner}${live ? "" : "?"}`, live ? "its lease stands" : "its lease lapsed");
}

function paintLag(cell, one) {
  const said = !one.origin ? "-" : one.lag_entries === null ? UNKNOWN : format.count(one.lag_entries);
  text(slot(cell, () => h("span", { class: "figure" })), said);
  attribute(cell, "data-tone", one.gone ? "bad" : one.lag_entries ? "doubt" : null);
  if (cell.children.length === 1) cell.append(h("span", { class: "cell-note" }));
  text(cell.lastChild, one.gone ? format.visible(`lost its place: ${one.gone}`) : "");
}

function paintParked(cell, { group, parked, replaying }) {
  const made = slot(cell, () => h("span", null));
  if (!parked) return text(made, "0");
  link(made, `/groups?parked=${encodeURIComponent(group)}`, format.count(parked));
  attribute(made.firstChild, "aria-label", `${format.count(parked)} parked by ${group}${replaying ? `, ${replaying} to be handled again` : ""}`);
}

/** What one group has parked, asked for when it is looked at, and again when their number changes. */
function parkedPanel({ api, navigate }) {
  const columns = [
    { head: "Entry", kind: "wide", paint: paintEntry },
    { head: "Parked", kind: "time", text: ({ at }) => format.ago(at) },
    { head: "Tries", kind: "number", minor: true, text: ({ tries }) => format.count(tries) },
    { head: "Reason", kind: "wide", text: ({ reason }) => reason || "no reason was told" },
  ];
  const grid = table("Parked entries", columns, (one) => `${one.origin}/${one.id}`);
  const title = h("span", null);
  const close = h("button", { type: "button", class: "quiet", onclick: () => navigate("/groups") }, "Close");
  const element = panel([title], grid.element, close);
  element.hidden = true;
  let group = null;
  let count = null;
  let asking = null;
  const ask = async () => {
    asking?.abort();
    const mine = (asking = new AbortController());
    try {
      const found = await api.get(`/v1/groups/${encodeURIComponent(group)}/parked`, { signal: mine.signal });
      if (mine === asking) grid.show(found, `${group} has parked nothing.`);
    } catch (error) {
      if (error.name === "AbortError" || mine !== asking) return;
      if (!(error instanceof api.Problem)) throw error;
      grid.show([], error.message);
    }
  };
  // It stands below all groups: on a small screen out of sight of who opens it. What was found may be longer than what was asked.
  const see = () => element.scrollIntoView({ block: "nearest", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "instant" : "smooth" });
  const show = async (name) => {
    if (name === group) return;
    group = name;
    element.hidden = !name;
    text(title, format.visible(`Parked by ${name}`));
    grid.show([], "Asking.");
    if (!name) return asking?.abort();
    see();
    await ask();
    if (name === group) see();
  };
  const follow = (groups) => {
    const now = groups.filter((one) => one.group === group).reduce((all, one) => all + one.parked, 0);
    if (group && count !== null && now !== count) ask();
    count = now;
  };
  return { element, show, follow, end: () => asking?.abort() };
}

const fieldsOf = (fields) => Object.entries(fields ?? {}).map((pair) => pair.join("=")).join(" ").slice(0, 200);

function paintEntry(cell, one) {
  const { entry, fields, origin, rev } = one;
  if (entry?.record) link(slot(cell, () => h("span", null)), format.jobPath(entry.key), entry.key);
  else text(slot(cell, () => h("span", null)), format.visible(entry?.key ?? fieldsOf(fields)));
  if (cell.children.length === 1) cell.append(h("span", { class: "cell-note" }));
  text(cell.lastChild, `${entry ? `${entry.rule} ` : "cannot be read as an entry "}at ${origin}, ${rev || one.id}`);
}
