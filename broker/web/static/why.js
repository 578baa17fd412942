// Why a job is in its state: what decided it, what would change it, what was given up and refused. The words of `broker why`.

import { fill, h, text } from "./dom.js";
import { ago, begun, count, instant, isLive, visible } from "./format.js";
import { stateMark } from "./mark.js";

/** Paint what `/why` answered into a sheet. */
export function paintWhy(place, why) {
  const { record, deciding, tombstone, given_up: givenUp, untold, refused, next } = why;
  fill(place, h("h2", null, "Why"),
    h("div", { class: "why" },
      record ? decided(record, deciding) : h("p", null, tombstone ? `Removed: all that was created up to ${instant(tombstone)}.` : "Nothing is known of it."),
      h("h3", null, "What would change it"),
      h("ul", { id: "why-next" }, next.map((sentence) => h("li", null, coded(sentence)))),
      givenUp.length || untold ? [h("h3", null, "Attempts that were given up"), h("ul", null, givenUp.map((attempt) => h("li", null, lost(attempt))),
        untold ? h("li", { class: "dim" }, `the log no longer tells of ${untold === 1 ? "attempt 1" : `attempts 1 to ${untold}`}, or not near enough`) : null)] : null,
      refused.length ? [h("h3", null, "Refused, the newest first"), h("ul", { class: "refused" }, refused.map((refusal) => h("li", null, refusalLine(refusal))))] : null));
}

/** A sentence whose commands stand between backticks, as it is read. */
const coded = (sentence) => visible(sentence).split(/`([^`]+)`/).map((part, at) => (at % 2 ? h("code", null, part) : part));

function decided(record, { rule, by, rev, at, reason }) {
  const lines = [
    h("p", { class: "decided" }, stateMark(record, record.suspect), " by ", h("code", { id: "why-rule" }, rule), `, said by ${visible(by) || "nobody named"}, `,
      agoOf(at, `${instant(at)}, rev ${rev}`), "."),
  ];
  if (record.inferred) lines.push(h("p", null, `A sweep's guess, in place of ${record.guessed_from}, at ${instant(record.guessed_at)}.`));
  const said = begun(record.error || reason);
  // A sweep always words it so, also where only the worker fell silent.
  const silent = record.kind === "submitted" && (record.inferred || record.rule === "lost");
  if (said && silent) lines.push(h("p", { class: "said" }, `${visible(said)} (what fell silent: see below)`));
  else if (said && isLive(record)) lines.push(h("p", { class: "said" }, `Try ${record.tries - (record.state === "running")} ended: ${visible(said)}`));
  else if (said) lines.push(h("p", { class: "said" }, visible(said)));
  return lines;
}

/** How long ago; `tickAgo` keeps it true. */
const agoOf = (at, title) => h("span", { title, "data-ago": at }, ago(at));

/** Bring what says how long ago something was up to the clock. */
export function tickAgo(place) {
  for (const said of place.querySelectorAll("[data-ago]")) text(said, ago(Number(said.dataset.ago)));
}

function lost({ attempt, node, worker, at, event, rule, error }) {
  const said = `attempt ${attempt}${node ? ` on ${node}` : ""}`;
  if (event === "finish") return visible(`${said} ended at ${instant(at)}: ${rule}, ${begun(error) || "no error told"}`);
  const silent = event === "requeue" || event === "lost" ? `, its worker${worker ? ` ${worker}` : ""} spoke of it no more` : "";
  return visible(`${said} was given up at ${instant(at)}: ${rule}${silent}`);
}

function refusalLine({ rule, at, count: times, ...known }) {
  const said = Object.entries(known).filter(([, value]) => value).map(([name, value]) => `${name} ${value}`).join(", ");
  return [h("code", null, rule), times > 1 ? ` ×${count(times)}` : null, at ? [" ", agoOf(at, instant(at))] : null, said ? `: ${visible(said)}` : null];
}
