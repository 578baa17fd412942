// What a job writes while it runs, and how far it says it is. A lossy lane: only its newest entries are kept.

import { get, jobRoute } from "./api.js";
import { attribute, fill, h, text } from "./dom.js";
import { visibleBlock } from "./format.js";

const POLL_MS = 1_000;
const LINES_MAX = 5_000;

/** Follows the lane of a job into a sheet: `follow(key, runs)` as often as that changes, `close()` at the end. */
export class Output {
  constructor(place) {
    this.place = place;
    this.bar = h("progress", { max: 1, value: 0, "aria-label": "Progress" });
    this.share = h("span", { class: "dim figure" });
    this.progress = h("div", { class: "output-progress", hidden: true }, this.bar, this.share);
    this.lines = h("pre", { id: "output", tabindex: 0, role: "log", "aria-live": "off", "aria-label": "Output" });
    this.note = h("p", { class: "sheet-note" }, "Nothing was written.");
    fill(place, h("h2", null, "Output", this.progress), this.note, this.lines);
    this.lines.hidden = true;
    this.after = "0-0";
    this.attempt = null;
  }

  /** Read what is new, and go on while the job runs. */
  follow(key, runs) {
    const begins = this.key !== key || (runs && !this.runs) || (this.runs && !runs);
    this.key = key;
    this.runs = runs;
    if (begins) this.#poll();
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
  }

  async #poll() {
    clearTimeout(this.timer);
    if (this.polling) return void (this.again = true);
    this.polling = true;
    const isRead = await this.#tryRead();
    this.polling = false;
    const [again] = [this.again, (this.again = false)];
    if (this.closed) return;
    if (again) this.#poll();
    else if (this.runs || !isRead) this.timer = setTimeout(() => this.#poll(), POLL_MS);
  }

  /** Whether all is read that was there. Else it is looked again, also after the end; that nothing is live is told elsewhere. */
  async #tryRead() {
    if (document.hidden) return false;
    try {
      await this.#read();
      return true;
    } catch (failed) {
      return failed.status === 404; // it is gone, and its lane with it
    }
  }

  async #read() {
    const found = await get(`${jobRoute(this.key, "output")}?after=${this.after}`);
    if (this.closed || !found.length) return;
    const { lines } = this;
    const atEnd = lines.scrollTop + lines.clientHeight >= lines.scrollHeight - 8;
    for (const { attempt, what, text: said } of found) {
      if (what === "progress") this.#share(Number(said));
      else this.#write(attempt, said);
    }
    this.after = found.at(-1).id;
    while (lines.childNodes.length > LINES_MAX) lines.firstChild.remove();
    if (atEnd) lines.scrollTop = lines.scrollHeight;
  }

  #write(attempt, said) {
    this.note.hidden = true;
    this.lines.hidden = false;
    if (attempt !== this.attempt) {
      if (this.attempt !== null) this.lines.append(h("span", { class: "attempt" }, `attempt ${attempt}\n`));
      this.attempt = attempt;
    }
    this.lines.append(visibleBlock(said.endsWith("\n") ? said : `${said}\n`));
  }

  #share(share) {
    if (!(share >= 0 && share <= 1)) return;
    this.progress.hidden = false;
    attribute(this.bar, "value", share);
    text(this.share, `${Math.round(share * 100)} %`);
  }
}
