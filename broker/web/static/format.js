// How things read: the words and marks of the command line. Pure, but for the clock.

const NUMBER = new Intl.NumberFormat("en");
const ENCODER = new TextEncoder();
const bytesOf = (said) => ENCODER.encode(said);
let skew = 0;
let heard = null;

/** The store's clock in epoch ms, as far as it is known: the ages on the page are those of the store's own times. */
export const now = () => Date.now() + skew;

/** Learn the store's clock; what the network takes is no difference. */
export function setNow(ms) {
  const off = ms - Date.now();
  skew = Math.abs(off) > 2_000 ? off : 0;
}

/** Say until when is known what runs (epoch ms of this machine), null: until now. Nothing grows while nobody tells of it. */
export const setHeard = (ms) => (heard = ms);

export const count = (number) => (number === null || number === undefined ? "-" : NUMBER.format(number));

/** "1 job", "2 jobs". */
export const counted = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

/** A length of time in ms, in one unit. */
export function span(ms) {
  const seconds = Math.max(0, ms) / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)}s`;
  for (const [size, unit] of [[86_400, "d"], [3_600, "h"], [60, "m"]]) {
    if (seconds >= 2 * size) return `${Math.round(seconds / size)}${unit}`;
  }
  return `${Math.round(seconds)}s`;
}

/** How long ago, in whole seconds at least: what moves each tenth cannot be read. `-` where it never was. */
export function age(ms) {
  if (!ms) return "-";
  const past = now() - ms;
  return past < 1_000 ? "now" : past < 10_000 ? `${Math.floor(past / 1000)}s` : span(past);
}

/** How far an instant lies back or ahead, for a sentence. */
export function ago(ms) {
  if (!ms) return "never";
  const left = ms - now();
  if (left > 0) return `in ${span(left)}`;
  return left > -1_000 ? "now" : `${age(ms)} ago`;
}

/** An instant, UTC to the millisecond; empty where it never was. */
export function instant(ms) {
  if (!ms) return "";
  const at = new Date(ms);
  return Number.isNaN(at.getTime()) ? String(ms) : at.toISOString().replace("T", " ");
}

/** The day of an instant, and its time of day to the second: both UTC, as every instant. */
export const dayOf = (ms) => instant(ms).slice(0, 10);
export const timeOf = (ms) => instant(ms).slice(11, 19);

/** The time of day here, to the second: for what this machine saw by its own clock. */
export const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB");

export const percent = (share) => (share === null || share === undefined ? "-" : `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %`);

export function bytes(size) {
  if (size === null || size === undefined) return "-";
  let left = size;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (left < 1024) return `${left < 10 && unit !== "B" ? left.toFixed(1) : Math.round(left)} ${unit}`;
    left /= 1024;
  }
  return `${left.toFixed(1)} TiB`;
}

/** The state for people: a guess ends in `~`, a doubt in `?`. */
export const shownState = (record, doubt) =>
  record.state + (record.inferred ? "~" : record.state === "running" && doubt ? "?" : "");

/** The state by which it is listed and counted: for a guess the one that it replaced. */
export const believed = (record) => record.guessed_from || record.state;

/** Whether it is one of ours that goes on, and no guess: nothing that went wrong is its current try's. */
export const isLive = (record) =>
  record.kind === "submitted" && (record.state === "queued" || record.state === "running");

/** Whether it ended by somebody's word. */
export const hasEnded = (record) => !record.inferred && record.state !== "queued" && record.state !== "running";

/** Whether an error may be only the beginning of what was said: a record keeps 64 bytes. */
export const isCut = (error) => Boolean(error) && bytesOf(error).length > 60;

/** An error as a record keeps it, with a mark where there may be more of it. */
export const begun = (error) => (isCut(error) ? `${error}…` : error || "");

/** What went wrong. A job that runs, or waits again, keeps the word on the last try: not its own. */
export function errorOf(record) {
  const said = begun(record.error || record.reason);
  if (!said || !isLive(record)) return said;
  return record.state === "queued" ? `last try: ${said}` : "";
}

/** How long it ran, or runs by now; null where that is not known. */
export function took(record) {
  if (!record.started_at || record.inferred) return null;
  if (record.completed_at) return record.completed_at - record.started_at;
  return record.state === "running" ? (heard === null ? now() : heard + skew) - record.started_at : null;
}

const UNSAFE = /[/:%{} \u0000-\u001f\u007f-\u009f]/g;
const escaped = (part) =>
  part.replace(UNSAFE, (found) => Array.from(bytesOf(found), (byte) => `%${byte.toString(16).toUpperCase().padStart(2, "0")}`).join(""));

/** The page of a job. A whole key is one segment of the path. */
export const jobPath = (key) => `/jobs/${encodeURIComponent(key)}`;

/** The key, or the end of one, that a path below `/jobs/` names; also where somebody typed its slashes. */
export function keyOfPath(rest) {
  try {
    if (!rest.includes("/")) return decodeURIComponent(rest);
    return rest.split("/").map((part) => escaped(decodeURIComponent(part))).join("/");
  } catch {
    return rest;
  }
}

const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

/** Text of others in one line, with what cannot be seen, or turns the reading direction, made visible. */
export const visible = (said) =>
  said.search(HIDDEN) < 0 ? said : said.replace(HIDDEN, (found) => (found === "\n" ? " " : `\\u${found.charCodeAt(0).toString(16).padStart(4, "0")}`));

/** The same for text of many lines: lines and tabs stay. */
export const visibleBlock = (said) => said.replace(HIDDEN, (found) => (found === "\n" || found === "\t" ? found : visible(found)));
