// Server-sent events over fetch: EventSource can neither send a header nor say that it hears nothing.

import { problemOf } from "./api.js";

const QUIET_MS = 6_000; // the pulse beats each second
const DEAD_MS = 20_000;
const BACKOFF_MS = [500, 15_000];
const HIDDEN_MS = 30_000; // browsers allow six connections a server: a hidden tab gives its own back

/** Splits what arrives into events: `feed(text)` calls `told({event, data, id})` for each that is whole; `event` is empty for an id alone. */
export function parser(told) {
  let rest = "";
  let event = "";
  let id = null;
  let data = [];
  let afterReturn = false;
  const line = (said) => {
    if (said === "") {
      // An id alone is no event, but says where the stream stands.
      if (data.length || event) told({ event: event || "message", data: data.join("\n"), id });
      else if (id !== null) told({ event: "", data: "", id });
      [event, id, data] = ["", null, []];
      return;
    }
    const colon = said.indexOf(":");
    if (colon === 0) return;
    const name = colon < 0 ? said : said.slice(0, colon);
    const value = colon < 0 ? "" : said.slice(said[colon + 1] === " " ? colon + 2 : colon + 1);
    if (name === "event") event = value;
    else if (name === "data") data.push(value);
    else if (name === "id" && !value.includes("\0")) id = value;
  };
  return (chunk) => {
    let from = 0;
    const held = rest + (afterReturn && chunk.startsWith("\n") ? chunk.slice(1) : chunk);
    if (chunk) afterReturn = false;
    const ends = /\r\n|\r|\n/g;
    ends.lastIndex = rest.length;
    for (let end = ends.exec(held); end; end = ends.exec(held)) {
      line(held.slice(from, end.index));
      from = end.index + end[0].length;
      afterReturn = end[0] === "\r" && from === held.length;
    }
    rest = held.slice(from);
  };
}

/**
 * One stream that comes back by itself, from where it stood.
 *
 * `on.event(name, data)` is told each event, `on.state(state)` how it stands: {name, since, why, retryAt}, where name is
 * `connecting`, `live`, `quiet` (nothing new was told lately), `troubled` (the server says why nothing is known), `offline`,
 * `paused` (hidden for long) or `login`, and `since` is when it was live last. It is live while `pulse` events come: an open
 * socket, or a server that has lost its Redis and still sends heartbeats, proves nothing; nor does a pulse within a trouble.
 */
export class Stream {
  constructor(path, pulse, on) {
    this.path = path;
    this.pulse = pulse;
    this.on = on;
    this.position = null;
    this.heardAt = null; // anything at all
    this.provenAt = null; // a pulse
    this.troubled = false; // from a `trouble` to the one that ends it
    this.failures = 0;
    this.state = { name: "connecting" };
    document.addEventListener("visibilitychange", () => this.#seen());
    addEventListener("online", () => this.retry());
    addEventListener("pagehide", () => this.#pause());
    addEventListener("pageshow", (event) => event.persisted && this.retry());
  }

  start() {
    this.#run();
  }

  /** Try again now, where it waits. */
  retry() {
    if (["offline", "paused"].includes(this.state.name)) this.#run();
  }

  #tell(name, more = {}) {
    if (name === this.state.name && name !== "offline") return;
    this.state = { name, since: this.provenAt, ...more };
    this.on.state(this.state);
  }

  async #run() {
    this.#close();
    this.troubled = false; // a new stream tells of it anew
    const ending = new AbortController();
    this.ending = ending;
    if (this.state.name !== "offline") this.#tell("connecting");
    this.#watch(ending);
    let why = "the server ended the stream";
    try {
      const headers = { Accept: "text/event-stream" };
      if (this.position !== null) headers["Last-Event-ID"] = this.position;
      const answer = await fetch(this.path, { headers, signal: ending.signal, cache: "no-store" });
      if (answer.status === 401) {
        this.#close();
        return this.#tell("login");
      }
      if (!answer.ok) throw await problemOf(answer);
      await this.#read(answer, ending);
    } catch (lost) {
      if (ending !== this.ending) return;
      why = ending.signal.aborted ? String(ending.signal.reason) : lost instanceof TypeError ? "the server cannot be reached" : lost.message;
    }
    if (ending === this.ending) this.#wait(why);
  }

  async #read(answer, ending) {
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    const feed = parser((said) => this.#event(said));
    for (;;) {
      const { done, value } = await reader.read();
      if (ending !== this.ending) return;
      this.heardAt = Date.now();
      if (done) return;
      feed(value);
    }
  }

  #event({ event, data, id }) {
    if (event) {
      let said;
      try {
        said = JSON.parse(data);
      } catch {
        return; // of a newer server, perhaps: what is not understood is not shown
      }
      if (event === "trouble") this.#trouble(said.why);
      else this.on.event(event, said);
    }
    if (id !== null) this.position = id;
    if (event !== this.pulse) return;
    this.provenAt = Date.now();
    this.failures = 0;
    if (!this.troubled) this.#tell("live");
  }

  /** Once it is over the pulse says the rest: the one that came with the end of it, or the next one. */
  #trouble(why) {
    this.troubled = why !== null;
    if (this.troubled) this.#tell("troubled", { why });
    else this.#tell(Date.now() - this.provenAt > QUIET_MS ? "connecting" : "live");
  }

  /** Notice silence. */
  #watch(ending) {
    const opened = Date.now();
    this.ticking = setInterval(() => {
      const now = Date.now();
      if (now - Math.max(this.heardAt ?? 0, opened) > DEAD_MS) ending.abort(`nothing was heard for ${DEAD_MS / 1000} s`);
      else if (!this.troubled && this.state.name !== "quiet" && now - Math.max(this.provenAt ?? 0, opened) > QUIET_MS) this.#tell("quiet");
    }, 1_000);
  }

  #wait(why) {
    this.#close();
    const [least, most] = BACKOFF_MS;
    const pause = Math.min(most, least * 2 ** this.failures++) * (0.5 + Math.random() / 2);
    this.#tell("offline", { why, retryAt: Date.now() + pause });
    this.waiting = setTimeout(() => this.#run(), pause);
  }

  #close() {
    clearInterval(this.ticking);
    clearTimeout(this.waiting);
    const ending = this.ending;
    this.ending = null;
    ending?.abort("closed");
  }

  #seen() {
    clearTimeout(this.hiding);
    if (!document.hidden) this.retry();
    else this.hiding = setTimeout(() => document.hidden && this.#pause(), HIDDEN_MS);
  }

  #pause() {
    if (this.state.name === "login") return;
    this.#close();
    this.#tell("paused");
  }
}
