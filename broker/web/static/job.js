// One job: why it is as it is, what happened to it, what it was given, what it says and gave.

import { get, jobRoute } from "./api.js";
import { toast } from "./dialog.js";
import { fill, h, text } from "./dom.js";
import { hasEnded, isCut, jobPath, keyOfPath, visible, visibleBlock } from "./format.js";
import { paintFacts } from "./facts.js";
import { icon } from "./icons.js";
import { stateMark } from "./mark.js";
import { compareRevs } from "./model.js";
import { Output } from "./output.js";
import { paintTimeline } from "./timeline.js";
import { paintWhy, tickAgo } from "./why.js";
import { possible, wish } from "./wish.js";

const ASK_MS = 300; // a job that changes fast is not asked about for each change
const LOOK_MS = 5_000; // sentences hold times, and refusals are no changes
const SHOWN_MAX = 100_000;

export function mount(root, { model, navigate, params }) {
  const opened = location.pathname;
  let key = keyOfPath(params);
  let record = model.jobs.get(key) ?? null;
  let isGone = false;
  let closed = false;
  let heard = 0; // how often the stream, or a list, told of it

  const mark = stateMark(record);
  const title = h("h1", { class: "mono job-key" }, visible(key));
  const copy = h("button", { type: "button", class: "quiet", "aria-label": "Copy the key", title: "Copy the key", onclick: copyKey }, icon("copy"));
  const buttons = h("div", { class: "bulk" });
  const note = h("p", { class: "note", role: "status", hidden: true });
  const facts = h("dl", { class: "terms" });
  const sheet = (id) => h("section", { class: "sheet", id, "aria-label": id });
  const [why, timeline, output, payload, result] = ["why", "timeline", "lane", "payload", "result"].map(sheet);
  const left = h("div", { class: "job-column" }, why, timeline, output);
  const right = h("div", { class: "job-column" }, h("section", { class: "sheet", "aria-label": "facts" }, h("h2", null, "Record"), facts), result, payload);
  const body = h("div", { class: "job-body" }, left, right);
  for (const one of [why, timeline, output, payload, result]) one.hidden = true;
  root.append(
    h("a", { href: "/jobs", class: "back", onclick: back }, icon("back"), "Jobs"),
    h("div", { class: "view-head job-head" }, mark, title, copy, h("span", { class: "spacer" }), buttons),
    note, body);
  root.classList.add("job-view");
  const lane = new Output(output);

  /** Take a record that was read or told, unless a newer one is known. */
  function take(found) {
    if (found && (!record || compareRevs(found.rev, record.rev) >= 0 || found.created_at > record.created_at)) record = found;
    paint();
  }

  function paint() {
    mark.hidden = !record; // of what was never known, nothing is gone
    stateMark.paint(mark, isGone ? null : record, model.doubt.has(key));
    root.dataset.key = key;
    root.dataset.state = mark.dataset.state;
    body.hidden = !record && why.hidden;
    right.hidden = !record;
    if (!record) return;
    const retries = [...model.jobs.values()].filter((one) => one.retry_of === key).map((one) => one.key);
    paintFacts(facts, record, retries);
    const can = isGone ? [] : possible([record]);
    if (buttons.dataset.can !== String(can)) {
      buttons.dataset.can = String(can);
      fill(buttons, can.map(([name, verb]) => h("button", { type: "button", id: `job-${name}`, class: name === "retry" ? null : "danger", onclick: () => act(name) }, verb)));
    }
    output.hidden = record.kind === "reported"; // only our workers have that lane
    if (!output.hidden) lane.follow(key, !isGone && !hasEnded(record));
  }

  const act = (name) => record && !isGone && wish(name, [record], model);

  function say(line) {
    note.hidden = !line;
    text(note, line);
  }

  let asking = null;
  let looking = null;
  /** Ask for what no stream tells: soon, once for many changes, and now and then. */
  function ask(pause = ASK_MS) {
    asking ??= setTimeout(async () => {
      const isLate = await read();
      asking = null;
      clearTimeout(looking);
      if (isLate) ask();
      else if (!closed) looking = setTimeout(() => (document.hidden ? ask(LOOK_MS) : ask(0)), LOOK_MS);
    }, pause);
  }

  /** Whether something was told meanwhile, which may be newer than these answers: if it is there the next ones say. */
  async function read() {
    const before = heard;
    const [shown, explained, happened] = await Promise.allSettled([get(jobRoute(key)), get(jobRoute(key, "why")), get(jobRoute(key, "log"))]);
    if (closed) return false;
    const isLate = heard !== before;
    if (shown.status === "fulfilled") settle(shown.value, isLate);
    if (explained.status === "fulfilled") show(why, explained.value, paintWhy);
    if (happened.status === "fulfilled") show(timeline, happened.value, paintTimeline);
    if (!isLate) judge(shown, explained);
    return isLate;
  }

  /** Whether it is there, by the newest answers. */
  function judge(shown, explained) {
    if (shown.status === "fulfilled") return say("");
    isGone = shown.reason.status === 404;
    if (!isGone) say(`It could not be read: ${shown.reason.message}. What is shown may be old.`);
    else if (record) say("It is gone. What is shown below is what was known last.");
    else say(explained.status === "fulfilled" ? "No job of this key is there now." : shown.reason.message);
    paint();
  }

  /** What the job's own route said: its whole key, and what was handed in with it. */
  function settle(found, isLate) {
    if (!isLate) isGone = false;
    if (found.key !== key) {
      key = found.key;
      text(title, visible(key));
      // Whoever is on the way to another page is not called back.
      if (location.pathname === opened) navigate(jobPath(key), { replace: true });
    }
    const given = found.payload ?? found.extras;
    if (given !== undefined && given !== null) show(payload, given, paintJson(found.kind === "reported" ? "Extras" : "Payload"));
    if (hasEnded(found) && (found.state === "completed" ? found.kind === "submitted" : isCut(found.error))) gave(found.rev);
    take(found);
  }

  let known = "";
  async function gave(rev) {
    if (known === rev) return;
    try {
      const found = await get(jobRoute(key, "result"));
      if (!closed) show(result, found, paintJson("Result"));
      known = rev;
    } catch (refused) {
      if (closed || !["job_failed", "not_found"].includes(refused.rule)) return;
      known = rev;
      const failed = refused.rule === "job_failed";
      show(result, failed ? refused.detail.replace(`${key} ${record?.state}: `, "") : "It is gone: results are kept for a while only.", paintJson(failed ? "Error" : "Result"));
    }
  }

  function copyKey() {
    navigator.clipboard?.writeText(key).then(() => toast("The key was copied."), () => toast("The browser forbids to copy.", { bad: true }));
  }

  function back(event) {
    event?.preventDefault();
    if (history.state?.within) history.back();
    else navigate("/jobs");
  }

  take(null);
  ask(0);
  return {
    update(changed) {
      if (changed.jobs && (changed.keys === null || changed.keys.has(key))) {
        const now = model.jobs.get(key);
        heard++;
        if (now) isGone = false;
        else if (record && model.listedAt !== null && model.whole) isGone = true;
        take(now ?? null);
        ask();
      } else if (changed.tick && record) paint();
      if (changed.tick) tickAgo(why);
    },
    keys: {
      c: ["cancel it", () => act("cancel")],
      r: ["retry it", () => act("retry")],
      d: ["remove it", () => act("remove")],
      Escape: ["back to the list", () => back()],
    },
    unmount() {
      closed = true;
      clearTimeout(asking);
      clearTimeout(looking);
      lane.close();
    },
  };
}

const painted = new WeakMap();

/** Paint a sheet with what was read, and have it seen. Where nothing changed, or somebody is marking text, it is left alone. */
function show(place, read, paint) {
  const said = JSON.stringify(read);
  const marking = getSelection();
  if (painted.get(place) === said || (!marking.isCollapsed && place.contains(marking.anchorNode))) return;
  painted.set(place, said);
  paint(place, read);
  place.hidden = false;
}

const paintJson = (title) => (place, value) => {
  const said = visibleBlock(typeof value === "string" ? value : JSON.stringify(value, null, 2));
  const shown = h("pre", { tabindex: 0, role: "group", "aria-label": title }, said.slice(0, SHOWN_MAX));
  const all = () => {
    shown.textContent = said;
    more.remove();
  };
  const more = said.length > SHOWN_MAX ? h("button", { type: "button", onclick: all }, `Show all ${Math.round(said.length / 1024)} KiB`) : null;
  fill(place, h("h2", null, title), shown, more);
};
