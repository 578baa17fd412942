// One commit a frame: whatever arrived since the last one is applied together, then whoever looks is told once.

const HIDDEN_MS = 1_000; // frames do not come to a hidden page, changes do
const WAITING_MAX = 20_000;

/** `commit(work)` is given all that was queued, in order, at most once a frame; nothing queued, no call. */
export class Frames {
  constructor(commit) {
    this.commit = commit;
    this.work = [];
    this.frame = null;
    this.timer = null;
    document.addEventListener("visibilitychange", () => this.work.length && this.#schedule());
  }

  queue(one) {
    this.work.push(one);
    if (this.work.length >= WAITING_MAX) this.#run();
    else if (this.frame === null && this.timer === null) this.#schedule();
  }

  #schedule() {
    this.#cancel();
    if (document.hidden) this.timer = setTimeout(() => this.#run(), HIDDEN_MS);
    else this.frame = requestAnimationFrame(() => this.#run());
  }

  #cancel() {
    if (this.frame !== null) cancelAnimationFrame(this.frame);
    clearTimeout(this.timer);
    this.frame = this.timer = null;
  }

  #run() {
    this.#cancel();
    const work = this.work;
    this.work = [];
    if (work.length) this.commit(work);
  }
}
