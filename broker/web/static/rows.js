// The keys of a list in order, kept so while jobs change. Pure.

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
