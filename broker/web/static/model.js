// The list as this page knows it. Pure: no page, no network, no clock.

const GONE_MAX = 20_000;

/** Below, at or above zero, as log id `a` lies before, at or after `b`; the empty one is before all. */
export function compareRevs(a, b) {
  if (a === b) return 0;
  const [[ams, aseq], [bms, bseq]] = [parts(a), parts(b)];
  return ams - bms || aseq - bseq;
}

function parts(rev) {
  const dash = rev.indexOf("-");
  return dash < 0 ? [Number(rev), 0] : [Number(rev.slice(0, dash)), Number(rev.slice(dash + 1))];
}

/**
 * Jobs by their whole key: two of one number, of different engines or runs, are two.
 *
 * A change is {key, rev, record (null: gone), synthesized}. One that is older than what is held does nothing, so that
 * a stream that repeats itself after a break shows nothing of the past. `synthesized` ones were found by listing
 * anew: they hold whatever their rev (a Redis that was set back has lower ones).
 */
export class JobList {
  constructor() {
    this.records = new Map();
    this.gone = new Map(); // key -> rev of its removal: a late repeat must not bring it back
  }

  /** Whether the change changed anything. */
  apply(change) {
    return absorb(this.records, this.gone, change);
  }

  /**
   * Take a fetched list in place of the held one: what arrived while it was fetched is replayed onto it, in the order in
   * which it arrived. A removal meanwhile is subtracted, a record meanwhile kept, a removal and a new one leave the new.
   */
  replace(fetched, log) {
    const records = new Map();
    for (const record of fetched) records.set(record.key, record);
    const gone = new Map();
    for (const [key, rev] of this.gone) {
      const record = records.get(key);
      if (!record || compareRevs(record.rev, rev) > 0) gone.set(key, rev);
    }
    // What was held and is not listed was removed since, though nobody has told that yet.
    for (const [key, { rev }] of this.records) if (!records.has(key)) gone.set(key, rev);
    for (const change of log) absorb(records, gone, change);
    this.records = records;
    this.gone = gone;
    bound(gone);
  }
}

function absorb(records, gone, { key, rev, record, synthesized }) {
  const held = records.get(key);
  if (record === null) {
    if (held && !synthesized && compareRevs(rev, held.rev) < 0) return false;
    const known = gone.get(key);
    if (known !== undefined && !synthesized && compareRevs(rev, known) < 0) return false;
    gone.delete(key); // the newest last: the oldest are forgotten first
    gone.set(key, rev);
    if (gone.size > 2 * GONE_MAX) bound(gone);
    return records.delete(key);
  }
  if (held?.rev === rev) return false;
  if (!synthesized) {
    if (held && compareRevs(rev, held.rev) < 0) return false;
    if (gone.has(key) && compareRevs(rev, gone.get(key)) < 0) return false;
  }
  gone.delete(key);
  records.set(key, record);
  return true;
}

function bound(gone) {
  for (const key of gone.keys()) {
    if (gone.size <= GONE_MAX) return;
    gone.delete(key);
  }
}

/** Keys that two lists hold differently. */
export function differences(before, after) {
  const found = new Set();
  for (const [key, record] of after) if (before.get(key)?.rev !== record.rev) found.add(key);
  for (const key of before.keys()) if (!after.has(key)) found.add(key);
  return found;
}
