// What the page knows, and how fresh that is: the stream, the list, and one telling a frame.

import { Problem, read, response, toLogin } from "./api.js";
import { setHeard, setNow } from "./format.js";
import { Loader } from "./loader.js";
import { differences, JobList } from "./model.js";
import { Frames } from "./paint.js";
import { Stream } from "./stream.js";

const LIST_MAX = 20_000;
const RELIST_MS = 300_000;
const SETTLED_MS = 5_000;
const RETRY_MS = [1_000, 15_000];

/** The one model of a page. `app.js` tells views what it holds. */
export class Live {
  constructor() {
    this.list = new JobList();
    this.doubt = new Set();
    this.overview = this.nodes = this.groups = null;
    this.connection = { name: "connecting" };
    this.listedAt = null; // ms by this machine's clock; null: never
    this.liveAt = null; // when the list was last known to be what is; null: never
    this.listTrouble = null; // why the list is not to be trusted; null where it is
    this.total = 0; // how many jobs there were when it was listed
    this.drift = 0; // differences that no change explained
    this.listeners = new Set();
    this.frames = new Frames((work) => this.#commit(work));
    this.loader = new Loader({
      fetchList: () => this.#fetch(),
      commit: (list, log) => this.frames.queue({ list, log }),
      failed: (error) => this.#failed(error),
    });
    this.stream = new Stream("/v1/watch?pulse=true", "overview", {
      event: (name, said) => this.#event(name, said),
      state: (state) => this.frames.queue({ state }),
    });
    this.failures = 0;
    this.unexplained = new Set();
  }

  /** key -> record, as the routes show it. */
  get jobs() {
    return this.list.records;
  }

  /** Whether what is shown is what is. */
  get live() {
    return this.connection.name === "live" && this.listedAt !== null && this.listTrouble === null;
  }

  /** So many jobs one listing holds. */
  get most() {
    return LIST_MAX;
  }

  /** Whether every job there is is held, and not only the newest. */
  get whole() {
    return this.listedAt !== null && this.total <= LIST_MAX;
  }

  start() {
    this.stream.start();
    setInterval(() => document.hidden || this.#tell({ tick: true }), 1_000);
  }

  /** `told(changed)` is called at most once a frame, and each second with `tick`; gives the end of it. */
  subscribe(told) {
    this.listeners.add(told);
    return () => this.listeners.delete(told);
  }

  /** List anew now; gives whether it was. A failure leaves the list as it is. */
  refresh() {
    clearTimeout(this.relisting);
    this.relisting = setTimeout(() => this.refresh(), RELIST_MS * (0.9 + Math.random() / 5));
    if (document.hidden && this.listedAt) return false;
    return this.loader.load();
  }

  /**
   * Hold the newest jobs of some states, of an engine, a node and an origin as well (empty: of any), where only the newest of
   * all are held; gives how many there are of those. Raises Problem. Until the list is read anew.
   */
  async reach({ states, engine, node, origin }) {
    const asked = new URLSearchParams([["limit", LIST_MAX], ...states.map((state) => ["state", state])]);
    for (const [part, name] of Object.entries({ engine, node, origin })) if (name) asked.set(part, name);
    const { records, total } = await this.#fetch(`/v1/jobs?${asked}`);
    await new Promise((taken) => this.frames.queue({ more: records, taken }));
    return total;
  }

  /** Try again now, whatever is waited for. */
  retry() {
    this.stream.retry();
    if (this.listTrouble) this.refresh();
  }

  async #fetch(path = `/v1/jobs?limit=${LIST_MAX}`) {
    const answer = await response(path);
    const records = await read(answer);
    return { records, total: Number(answer.headers.get("Total-Count") ?? records.length) };
  }

  #event(name, said) {
    if (name === "change") {
      this.loader.push(said);
      this.frames.queue({ change: said });
    } else if (name === "ready") {
      if (this.listedAt === null) this.refresh();
    } else if (name === "gone") {
      this.frames.queue({ trouble: "changes were missed; it is listed anew" });
      this.refresh();
    } else if (["doubt", "overview", "nodes", "groups"].includes(name)) {
      this.frames.queue({ name, said });
    }
  }

  #failed(error) {
    if (!(error instanceof Problem)) console.error(error);
    this.frames.queue({ trouble: error.message });
    const [least, most] = RETRY_MS;
    const pause = Math.min(most, least * 2 ** this.failures++) * (0.5 + Math.random() / 2);
    clearTimeout(this.relisting);
    this.relisting = setTimeout(() => this.refresh(), pause);
  }

  #commit(work) {
    const changed = {};
    for (const one of work) {
      if (one.change) this.#change(one.change, changed);
      else if (one.list) this.#replace(one, changed);
      else if (one.more) for (const record of one.more) this.#change({ key: record.key, rev: record.rev, record }, changed);
      else if (one.state) this.#connect(one.state, changed);
      else if (one.trouble) this.#distrust(one.trouble, changed);
      else this.#pulse(one.name, one.said, changed);
    }
    // What the stream or the list said, and nothing else, proves it.
    if (this.live && work.some((one) => one.change || one.list || one.name)) this.liveAt = Date.now();
    if (Object.keys(changed).length) this.#tell(changed);
    for (const { taken } of work) taken?.();
  }

  #change(change, changed) {
    this.unexplained.delete(change.key);
    if (!this.list.apply(change)) return;
    changed.jobs = true;
    if (changed.keys !== null) (changed.keys ??= new Set()).add(change.key);
  }

  #replace({ list, log }, changed) {
    const before = this.whole ? this.list.records : null;
    this.list.replace(list.records, log);
    this.total = list.total;
    Object.assign(changed, { jobs: true, keys: null, connection: true });
    if (before && this.live && this.whole) this.#compare(before);
    this.listedAt = Date.now();
    this.listTrouble = null;
    this.failures = 0;
  }

  /** What differs though nothing was missed, and is not explained by a change that was still on its way, is drift. */
  #compare(before) {
    this.unexplained = differences(before, this.list.records);
    setTimeout(() => {
      if (!this.live) return;
      this.drift += this.unexplained.size;
      if (this.unexplained.size) console.warn(`${this.unexplained.size} jobs had drifted`, [...this.unexplained].slice(0, 5));
    }, SETTLED_MS);
  }

  /** Changes that were missed will not be told any more: they may be what explains a difference. */
  #distrust(trouble, changed) {
    this.listTrouble = trouble;
    this.unexplained.clear();
    changed.connection = true;
  }

  #connect(state, changed) {
    this.connection = state;
    changed.connection = true;
    setHeard(state.name === "live" ? null : (state.since ?? null));
    if (state.name === "login") toLogin();
  }

  #pulse(name, said, changed) {
    if (name === "doubt") {
      const keys = new Set(said.keys);
      if (keys.size === this.doubt.size && said.keys.every((key) => this.doubt.has(key))) return;
      // Rows are painted by key: those that are doubted now, and those that were.
      if (changed.keys !== null) changed.keys = new Set([...(changed.keys ?? []), ...this.doubt, ...keys]);
      changed.jobs = true;
      this.doubt = keys;
    } else {
      this[name] = said;
      if (name === "overview" && said.at) setNow(said.at);
    }
    changed[name] = true;
  }

  #tell(changed) {
    for (const told of this.listeners) told(changed);
  }
}
