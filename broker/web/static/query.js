// Which jobs a list shows, and in which order: read from the address and written back to it. Pure.

import { believed, hasEnded, now, shownState, took } from "./format.js";

export const STATES = ["queued", "running", "completed", "failed", "cancelled"];
const PARTS = ["engine", "node", "origin", "q", "sort"];

/** What a location's query asks: {states: [...], engine, node, origin, q, sort}; empty text asks nothing. */
export function readQuery(search) {
  const said = new URLSearchParams(search);
  const query = { states: said.getAll("state").filter((state) => STATES.includes(state)) };
  for (const part of PARTS) query[part] = said.get(part) ?? "";
  if (!ORDERS[query.sort.replace(/^-/, "")]) query.sort = "";
  return query;
}

/** The address of the list that this asks for. */
export function pathOf(query) {
  const said = new URLSearchParams(query.states.map((state) => ["state", state]));
  for (const part of PARTS) if (query[part]) said.set(part, query[part]);
  const text = said.toString();
  return text ? `/jobs?${text}` : "/jobs";
}

/** What `is:` takes: (record, is doubted). */
const IS = {
  guess: (record) => record.inferred,
  doubt: (record, doubt) => doubt && record.state === "running",
  live: (record) => !hasEnded(record),
  ended: hasEnded,
  placed: (record) => record.state === "queued" && record.node !== "",
  delayed: (record) => record.state === "queued" && !record.node && record.due > now(),
  retry: (record) => record.retry_of !== "",
  stopping: (record) => record.desired !== "run" && !hasEnded(record),
};
const FIELDS = ["id", "run", "kind", "model", "worker", "error", "reason", "rule", "requester", "by"];
const UNITS = { s: 1e3, m: 6e4, h: 36e5, d: 864e5 };

/** What the search understands, for a help. */
export const SEARCH_HELP = [
  ["word", "somewhere in the key, node, model, error, worker or requester; -word: nowhere"],
  [Object.keys(IS).map((name) => `is:${name}`).join(" "), "what it is"],
  [FIELDS.map((name) => `${name}:`).join(" "), "a word within that field"],
  ["newer:5m older:2h", "by when it was handed in"],
];

const haystacks = new WeakMap();
function haystack(record) {
  let text = haystacks.get(record);
  if (text === undefined) {
    const { key, id, node, model, error, reason, worker, requester } = record;
    text = [key, id, node, model, error, reason, worker, requester].join("\n").toLowerCase();
    haystacks.set(record, text);
  }
  return text;
}

function term(word) {
  if (word.length > 1 && word.startsWith("-")) {
    const other = term(word.slice(1));
    return (record, doubt) => !other(record, doubt);
  }
  const [, name, value] = /^([a-z]+):(.+)$/.exec(word) ?? [];
  if (name === "is" && IS[value]) return IS[value];
  if (FIELDS.includes(name)) return (record) => String(record[name] ?? "").toLowerCase().includes(value);
  const [, number, unit] = /^(\d+)([smhd])$/.exec(value ?? "") ?? [];
  if (number && (name === "newer" || name === "older")) {
    const within = (record) => now() - record.created_at <= number * UNITS[unit];
    return name === "newer" ? within : (record) => !within(record);
  }
  return (record) => haystack(record).includes(word);
}

/** Whether a query's answer moves with the clock alone. */
export const movesByItself = (query) => /(newer|older):|is:delayed/.test(query.q) || /took/.test(query.sort);

/** A function that says of (record, is doubted) whether the list shows it; `anyState` leaves the states out. */
export function fitter({ states, engine, node, origin, q }, anyState = false) {
  const words = q.toLowerCase().split(/\s+/).filter(Boolean).map(term);
  const wanted = states.length && !anyState ? new Set(states) : null;
  return (record, doubt) =>
    (!wanted || wanted.has(believed(record))) &&
    (!engine || record.engine === engine) &&
    (!node || record.node === node) &&
    (!origin || record.origin === origin) &&
    words.every((fits) => fits(record, doubt));
}

const RANKS = { running: 0, placed: 1, queued: 2, failed: 3, cancelled: 4, completed: 5 };
const rank = (record) => RANKS[record.state === "queued" && record.node ? "placed" : record.state] + (record.inferred ? 0.5 : 0);
const byText = (read) => (a, b) => (read(a) < read(b) ? -1 : read(a) > read(b) ? 1 : 0);

/** Each in the direction that one wants to see first. */
const ORDERS = {
  created: (a, b) => b.created_at - a.created_at,
  ended: (a, b) => (b.completed_at ?? 0) - (a.completed_at ?? 0),
  state: (a, b) => rank(a) - rank(b),
  key: byText((record) => record.key),
  node: byText((record) => record.node || "\uffff"),
  model: byText((record) => record.model || "\uffff"),
  error: byText((record) => record.error || record.reason || "\uffff"),
  tries: (a, b) => b.tries - a.tries,
  took: (a, b) => (took(b) ?? -1) - (took(a) ?? -1),
};

/** Compares two records by a sort's name (`-`: the other way round); newest first, then by key, where they tie. */
export function comparer(sort) {
  const turned = sort.startsWith("-") ? -1 : 1;
  const order = ORDERS[sort.replace(/^-/, "")] ?? ORDERS.created;
  const { created, key } = ORDERS;
  return (a, b) => turned * order(a, b) || created(a, b) || key(a, b);
}

/** The shown states of these records with their counts, as [state, count], in the order of a job's life. */
export function countStates(records, doubt) {
  const counts = new Map();
  for (const record of records) {
    const state = shownState(record, doubt.has(record.key));
    counts.set(state, (counts.get(state) ?? 0) + 1);
  }
  const place = ([state]) => STATES.indexOf(state.replace(/[~?]$/, ""));
  return [...counts].sort((a, b) => place(a) - place(b));
}
