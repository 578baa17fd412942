// What a user wishes for jobs: cancel, retry, remove. Counted and asked about first, said in chunks, told as it ends.

import { jobRoute, post } from "./api.js";
import { ask, toast } from "./dialog.js";
import { h, text } from "./dom.js";
import { count, counted, hasEnded, visible } from "./format.js";
import { countStates } from "./query.js";

const CHUNK = 500;
const SHOWN = 5;

/** What a rule means to who asked: the command line's words. */
const SAID = {
  desired: "asked to stop",
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
  cancel: { verb: "Cancel", danger: true, fits: (record) => !hasEnded(record), left: "ended already" },
  retry: { verb: "Retry", danger: false, fits: (record) => record.kind === "submitted" && hasEnded(record), left: "not ended, or not ours to run" },
  remove: { verb: "Remove", danger: true, fits: () => true, left: "" },
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
  const progress = records.length > CHUNK ? progressOf(name, records.length) : null;
  try {
    if (records.length === 1) outcomes.push(await one(name, records[0].key, body));
    else {
      for (let at = 0; at < records.length && !progress?.stopped; at += CHUNK) {
        const keys = records.slice(at, at + CHUNK).map((record) => record.key);
        outcomes.push(...(await post(`/v1/jobs/${name}`, { keys, ...body })));
        progress?.at(outcomes.length);
      }
    }
    const refused = outcomes.some(({ outcome }) => outcome !== "applied" && outcome !== "duplicate");
    const stopped = outcomes.length < records.length ? `Stopped after ${count(outcomes.length)} of ${count(records.length)}: ` : "";
    toast(stopped + summary(outcomes, model), { bad: refused });
  } catch (failed) {
    const done = outcomes.length ? ` Before that: ${summary(outcomes, model)}.` : "";
    toast(`${failed.message}.${done}`, { bad: true });
  } finally {
    progress?.close();
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

function summary(outcomes, model) {
  const counts = new Map();
  for (const { key, outcome, rule } of outcomes) {
    const ok = outcome === "applied" || outcome === "duplicate";
    const record = model.jobs.get(key);
    const ended = rule === "desired" && (!record || hasEnded(record));
    const what = ok ? (ended ? "cancelled" : (SAID[rule] ?? rule)) : `${outcome}: ${named(rule)}`;
    counts.set(what, (counts.get(what) ?? 0) + 1);
  }
  if (outcomes.length === 1) return `${visible(outcomes[0].key)}: ${[...counts.keys()][0]}`;
  return [...counts].map(([what, number]) => `${count(number)} ${what}`).join("; ");
}

function progressOf(name, total) {
  const bar = h("progress", { max: total, value: 0, "aria-label": name });
  const line = h("span", null, "");
  const stop = h("button", { type: "button", onclick: () => (made.stopped = true) }, "Stop");
  const element = h("div", { class: "toast" }, h("span", null, `${VERBS[name].verb} `, line), bar, stop);
  const made = {
    stopped: false,
    at(done) {
      bar.value = done;
      text(line, `${count(done)} of ${count(total)}`);
    },
    close: () => element.remove(),
  };
  made.at(0);
  document.getElementById("toasts").append(element);
  return made;
}
