// The keys of a list in order, and how many there are of each state, kept so while jobs change. Pure.

import { believed } from "./format.js";

/** `keys` is the order; `fits(record, doubted)` and `compare(a, b)` say which and how. */
export class Rows {
  constructor(fits, compare) {
    this.fits = fits;
    this.compare = compare;
    this.keys = [];
  }

  /** Build it anew. */
  reset(records, doubt) {
    const found = [];
    for (const record of records.values()) if (this.fits(record, doubt.has(record.key))) found.push(record);
    this.keys = found.sort(this.compare).map((record) => record.key);
  }

  /** Bring it up to date with the jobs that changed: the others keep their order, and are not compared anew. */
  update(records, doubt, changed) {
    const kept = this.keys.filter((key) => !changed.has(key));
    const added = [];
    for (const key of changed) {
      const record = records.get(key);
      if (record && this.fits(record, doubt.has(key))) added.push(record);
    }
    added.sort(this.compare);
    const merged = [];
    let at = 0;
    for (const record of added) {
      at = this.#upTo(records, kept, at, record, merged);
      merged.push(record.key);
    }
    while (at < kept.length) merged.push(kept[at++]);
    this.keys = merged;
  }

  /** Copy what stands before `record`, found by halves: few records change, and comparing is what costs. */
  #upTo(records, kept, from, record, merged) {
    let [low, high] = [from, kept.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.compare(records.get(kept[middle]), record) < 0) low = middle + 1;
      else high = middle;
    }
    for (let at = from; at < low; at++) merged.push(kept[at]);
    return low;
  }
}

/** How many of those that fit are of each state: `counts` is state -> number. */
export class Tally {
  constructor(fits) {
    this.fits = fits;
    this.reset(new Map(), new Set());
  }

  /** Count anew. */
  reset(records, doubt) {
    this.counts = new Map();
    this.states = new Map(); // key -> as what it was counted
    this.update(records, doubt, records.keys());
  }

  /** Bring it up to date with the jobs that changed. */
  update(records, doubt, changed) {
    for (const key of changed) {
      const record = records.get(key);
      this.#add(this.states.get(key), -1);
      this.states.delete(key);
      if (!record || !this.fits(record, doubt.has(key))) continue;
      this.states.set(key, believed(record));
      this.#add(believed(record), 1);
    }
  }

  #add(state, number) {
    if (state !== undefined) this.counts.set(state, (this.counts.get(state) ?? 0) + number);
  }
}
