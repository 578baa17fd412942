// What a user wishes for jobs: cancel, retry, remove. Counted and asked about first, said in chunks, told as it ends.

import { jobRoute, post } from "./api.js";
import { ask, toast } from "./dialog.js";
import { h, text } from "./dom.js";
import { count, counted, hasEnded, jobPath, visible } from "./format.js";
import { compareRevs } from "./model.js";
import { countStates } from "./query.js";

const CHUNK = 500;
const SHOWN = 5;
const LOOK_MS = 50;
const LOOKS_MAX = 100; // so often it is looked whether the stream has told what the answers came to

/** What a rule means to who asked: the command line's words. */
const SAID = {
  desired: "cancelled or asked to stop",
  no_change: "asked before",
  removed: "removed",
  remove_requested: "asked to stop; removed when ended",
  seen: "removed before",
  submitted: "handed in again",
  too_late: "it has ended already",
  not_ours: "it is reported: only its origin can do that",
  not_terminal: "it has not ended",
  expired: "its payload is gone",
  older_generation: "a newer job of this identity is there",
  unknown: "no such job is known",
  tombstoned: "it was removed",
};
const named = (rule) => (SAID[rule] ? `${SAID[rule]} (${rule})` : rule);

const VERBS = {
  cancel: { verb: "Cancel", doing: "Cancelling", danger: true, fits: (record) => !hasEnded(record), left: "ended already" },
  retry: { verb: "Retry", doing: "Retrying", danger: false, fits: (record) => record.kind === "submitted" && hasEnded(record), left: "not ended, or not ours to run" },
  remove: { verb: "Remove", doing: "Removing", danger: true, fits: () => true, left: "" },
};

/** What may be wished for these records: [name, label]. */
export const possible = (records) => Object.entries(VERBS).filter(([, { fits }]) => records.some(fits)).map(([name, { verb }]) => [name, verb]);

/**
 * Ask, then do it to each of `records` that it can be done to. Gives the outcomes, or null where nothing was done.
 * `model` is read for what else is known: which were retried before, and what became of those that were asked to stop.
 */
export async function wish(name, records, model) {
  const { verb, danger, fits, left } = VERBS[name];
  const again = name === "retry" ? retriedBefore(records, model) : new Set();
  const can = records.filter(fits);
  const meant = can.filter((record) => !again.has(record.key));
  if (!can.length) {
    toast(`Nothing to ${name}: ${left}.`, { bad: true });
    return null;
  }
  const running = can.filter((record) => record.kind === "submitted" && (record.state === "running" || record.inferred)).length;
  const options = [];
  if (name !== "retry" && running) {
    options.push({ name: "force", label: `At once: do not wait for ${can.length === 1 ? "its worker" : `the workers of ${count(running)}`}; what still runs is fenced off` });
  }
  if (again.size && meant.length) options.push({ name: "again", label: `Also ${count(again.size)} that were retried before` });
  const first = meant.length ? meant : can;
  const said = await ask({
    title: `${verb} ${first.length === 1 ? visible(first[0].key) : counted(first.length, "job")}?`,
    body: preview(name, first, { model, leftOut: records.length - can.length, left, again: meant.length ? 0 : again.size }),
    verb: first.length === 1 ? `${verb} it` : `${verb} ${counted(first.length, "job")}`,
    danger,
    options,
  });
  if (said === null) return null;
  return say(name, said.again ? can : first, said.force ?? false, model);
}

function retriedBefore(records, model) {
  const origins = new Set();
  for (const record of model.jobs.values()) if (record.retry_of) origins.add(record.retry_of);
  return new Set(records.filter((record) => origins.has(record.key)).map((record) => record.key));
}

function preview(name, records, { model, leftOut, left, again }) {
  const states = countStates(records, model.doubt).map(([state, number]) => `${count(number)} ${state}`).join(", ");
  const names = records.length > 1 ? h("ul", { class: "names mono" }, records.slice(0, SHOWN).map((record) => h("li", null, visible(record.key)))) : null;
  const more = records.length > SHOWN ? h("p", { class: "dim" }, `and ${count(records.length - SHOWN)} more`) : null;
  const meaning = {
    cancel: "What waits ends at once; what runs is told to stop.",
    retry: "Each becomes a new job with the same payload and options.",
    remove: "Off the list for good: late events do not bring it back. What runs is told to stop first.",
  }[name];
  return [
    h("p", { id: "preview-count" }, states),
    names, more,
    h("p", null, meaning),
    again ? h("p", null, records.length === 1 ? "It was retried before." : "They were all retried before.") : null,
    leftOut ? h("p", { class: "dim" }, `Left out: ${count(leftOut)} (${left}).`) : null,
    model.live ? null : h("p", { class: "warning" }, "What is shown is not live: it may have changed since."),
  ];
}

async function say(name, records, force, model) {
  const body = force ? { force } : {};
  const outcomes = [];
  const progress = progressOf(name, records);
  try {
    if (records.length === 1) outcomes.push(await one(name, records[0].key, body));
    else {
      for (let at = 0; at < records.length && !progress.stopped; at += CHUNK) {
        const keys = records.slice(at, at + CHUNK).map((record) => record.key);
        outcomes.push(...(await post(`/v1/jobs/${name}`, { keys, ...body })));
        progress.at(outcomes.length);
      }
    }
    await caughtUp(outcomes, model);
    const refused = outcomes.some(({ outcome }) => outcome !== "applied" && outcome !== "duplicate");
    const stopped = outcomes.length < records.length ? `Stopped after ${count(outcomes.length)} of ${count(records.length)}: ` : "";
    const made = outcomes.length === 1 ? outcomes[0].new_key : "";
    toast([stopped + summary(outcomes, model), made ? [": ", h("a", { href: jobPath(made) }, visible(made))] : null], { bad: refused });
  } catch (failed) {
    const done = outcomes.length ? ` Before that: ${summary(outcomes, model)}.` : "";
    toast(`${failed.message}.${done}`, { bad: true });
  } finally {
    progress.close();
  }
  return outcomes;
}

/** A refusal of one job is an answer like those of many. */
async function one(name, key, body) {
  try {
    return await post(jobRoute(key, name), body);
  } catch (refused) {
    if (refused.status !== 409) throw refused;
    return { key, outcome: "refused", rule: refused.rule, rev: "" };
  }
}

/** What the answer to a wish alone does not say: whether the job ended by it. The stream does, once it has come to the answer's rev. */
function told({ key, rule, rev }, model) {
  const record = model.jobs.get(key);
  return rule !== "desired" || !record || compareRevs(record.rev, rev) >= 0;
}

/** Wait for the stream to tell what these came to, but not for long. */
async function caughtUp(outcomes, model) {
  // Looks are counted, and no time: a page that stood still is yet to hear what was told meanwhile.
  for (let looks = 0; looks < LOOKS_MAX && !outcomes.every((outcome) => told(outcome, model)); looks++) await new Promise((go) => setTimeout(go, LOOK_MS));
}

/** What became of one, as far as that is known. */
function became(outcome, model) {
  const { key, rule } = outcome;
  const record = model.jobs.get(key);
  if (rule !== "desired" || !record || !told(outcome, model)) return SAID[rule] ?? rule;
  return record.state === "cancelled" && hasEnded(record) ? "cancelled" : "asked to stop";
}

function summary(outcomes, model) {
  const counts = new Map();
  for (const one of outcomes) {
    const ok = one.outcome === "applied" || one.outcome === "duplicate";
    const what = ok ? became(one, model) : `${one.outcome}: ${named(one.rule)}`;
    counts.set(what, (counts.get(what) ?? 0) + 1);
  }
  if (outcomes.length === 1) return `${visible(outcomes[0].key)}: ${[...counts.keys()][0]}`;
  return [...counts].map(([what, number]) => `${count(number)} ${what}`).join("; ");
}

/** Says at once what is under way, until `close`; of many also how far it is, and they can be stopped. */
function progressOf(name, records) {
  const total = records.length;
  const what = total === 1 ? visible(records[0].key) : counted(total, "job");
  const bar = h("progress", { max: total, value: 0, "aria-label": name });
  const line = h("span", null, "");
  const stop = h("button", { type: "button", onclick: () => (made.stopped = true) }, "Stop");
  const element = h("div", { class: "toast" }, h("span", null, `${VERBS[name].doing} ${what}... `, line), total > CHUNK ? [bar, stop] : null);
  const made = {
    stopped: false,
    at(done) {
      bar.value = done;
      if (total > CHUNK) text(line, `${count(done)} of ${count(total)}`);
    },
    close: () => element.remove(),
  };
  made.at(0);
  document.getElementById("toasts").append(element);
  return made;
}
