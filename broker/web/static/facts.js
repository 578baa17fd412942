// All that is known of a job, as names and values.

import { attribute, fill, h } from "./dom.js";
import { ago, count, instant, jobPath, span, took, visible } from "./format.js";

/** Paint a record into a list of terms; `retries` are the keys of jobs that were made of it. */
export function paintFacts(place, record, retries) {
  const pairs = facts(record, retries).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const names = pairs.map(([name]) => name).join("\n");
  if (place.dataset.names !== names) {
    place.dataset.names = names;
    fill(place, pairs.map(([name]) => [h("dt", null, name), h("dd", { "data-fact": name })]));
  }
  // What did not change is left alone: somebody may be marking it, or stand on it.
  pairs.forEach(([, value, title], index) => {
    const cell = place.children[2 * index + 1];
    attribute(cell, "title", title);
    if (cell.textContent !== (value.textContent ?? String(value))) fill(cell, value);
  });
}

function facts(record, retries) {
  const ours = record.kind === "submitted";
  const link = (key) => h("a", { href: jobPath(key), class: "mono" }, visible(key));
  return [
    ["kind", ours ? "submitted (our workers run it)" : "reported (its origin runs it)"],
    ["origin", visible(record.origin)],
    ["engine", visible(record.engine)],
    ["run", visible(record.run)],
    ["model", visible(record.model)],
    ["node", visible(record.node)],
    ["worker", visible(record.worker)],
    ["requester", visible(record.requester)],
    ["desired", record.desired === "run" ? null : record.desired],
    ["attempt", ours ? count(record.attempt) : null, "rises whenever one is given up"],
    ["tries", ours ? tries(record) : null],
    ["seq", ours ? null : record.seq || "none: its origin does not number"],
    ["priority", record.priority || null],
    ["timeout", record.timeout ? span(record.timeout) : null],
    time("due", record.due),
    time("handed in", record.created_at),
    time("placed", record.placed_at),
    time("started", record.started_at),
    record.inferred ? time("guessed", record.guessed_at) : time("ended", record.completed_at),
    ["took", took(record) === null ? null : span(took(record))],
    ours ? ["", ""] : time("last seen", record.last_seen),
    ["rule", h("code", null, record.rule)],
    ["rev", h("code", null, record.rev)],
    ["retry of", record.retry_of ? link(record.retry_of) : null],
    ["retried as", retries.length ? h("span", null, retries.map((key) => h("div", null, link(key)))) : null],
  ];
}

function tries({ tries: number, attempts, deaths, at_most_once: once }) {
  const lost = deaths ? `, ${deaths === 1 ? "1 holder was lost" : `${count(deaths)} holders were lost`}` : "";
  return `${count(number)} of ${count(attempts)}${lost}${once ? ", at most once" : ""}`;
}

const time = (name, ms) => [name, ms ? ago(ms) : null, ms ? instant(ms) : null];
