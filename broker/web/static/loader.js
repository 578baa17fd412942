// Lists anew without losing what happens meanwhile. The stream must be open before the first load.

/**
 * `fetchList()` gives {records, total}; `commit(list, log)` takes it over, `failed(error)` is told where it did not come.
 *
 * Each fetch in flight has a log of its own with every change since it began; it is taken off when the fetch ends,
 * however that is. A failed one leaves the list as it is, and so does one that was overtaken by a later one.
 */
export class Loader {
  constructor({ fetchList, commit, failed }) {
    this.fetchList = fetchList;
    this.commit = commit;
    this.failed = failed;
    this.logs = new Set();
    this.begun = 0;
    this.taken = 0;
  }

  /** Told each change, in the order in which they arrive. */
  push(change) {
    for (const log of this.logs) log.push(change);
  }

  /** Whether the list is as new as this call. Never raises. */
  async load() {
    const turn = ++this.begun;
    const log = [];
    this.logs.add(log);
    try {
      const list = await this.fetchList();
      if (turn > this.taken) {
        this.taken = turn;
        this.commit(list, log);
      }
      return true;
    } catch (error) {
      this.failed(error);
      return false;
    } finally {
      this.logs.delete(log);
    }
  }
}
