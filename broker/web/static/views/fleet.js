// What an operator may say of a node, with what that means for the jobs that are there.

import { h } from "../dom.js";
import * as format from "../format.js";

const NONE = Object.freeze({ placed: 0, running: 0, reported: 0 });

/** Live jobs by node: ours that are placed or run there, and those that others reported to be there. */
export function inFlight(jobs) {
  const found = new Map();
  for (const record of jobs.values()) {
    if (!record.node) continue;
    const state = format.believed(record);
    if (state !== "queued" && state !== "running") continue;
    if (!found.has(record.node)) found.set(record.node, { ...NONE });
    const of = found.get(record.node);
    if (record.kind === "reported") of.reported += 1;
    else if (state === "running") of.running += 1;
    else of.placed += 1;
  }
  return found;
}

const SAID = {
  drain: { verb: "Drain", means: "It gets no new jobs.", running: () => "left to end", reported: (its) => `left to ${its} origin` },
  resume: { verb: "Resume", means: "It is like any other node again." },
  dead: {
    verb: "Mark dead", asks: (node) => `Mark ${node} dead?`, means: "It counts as gone for good: it gets no new jobs, and its jobs get no grace.", danger: true,
    running: (its) => `given up once ${its} worker is silent`, reported: (its, it) => `doubted once ${its} origin is silent about ${it}`,
  },
  remove: {
    verb: "Remove", means: "It is forgotten, and its flag. One that still beats comes back.", danger: true,
    running: (its) => `given up once ${its} worker is silent`, reported: (its) => `left to ${its} origin`,
  },
};

/** Ask, then say it. What becomes of how many jobs is told before. */
export async function act(verb, node, { model, api, ask, toast }) {
  const said = SAID[verb];
  const there = inFlight(model.jobs).get(node) ?? NONE;
  const fates = verb === "resume" ? [] : [
    [there.running, "running there", said.running], [there.placed, "waiting there", () => "placed elsewhere"],
    [there.reported, "reported to be there", said.reported],
  ].filter(([count]) => count);
  const beyond = !model.whole ? "Not every job is listed here: there may be more of them." : fates.length ? "" : "No jobs are there.";
  const body = [h("p", null, said.means),
    fates.length ? h("ul", { class: "fates" }, fates.map(([count, where, fate]) => h("li", null, `${format.counted(count, "job")} ${where}: ${count === 1 ? fate("its", "it") : fate("their", "them")}`))) : null,
    verb === "resume" ? null : h("p", null, beyond)];
  if (!(await ask({ title: format.visible(said.asks?.(node) ?? `${said.verb} ${node}?`), body, verb: said.verb, danger: said.danger ?? false }))) return;
  try {
    await api.post(`/v1/nodes/${encodeURIComponent(node)}/${verb}`);
    toast(`${node}: ${said.means}`);
  } catch (error) {
    if (!(error instanceof api.Problem)) throw error;
    toast(error.message, { bad: true });
  }
}
