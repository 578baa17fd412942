"""Who hears of events, in a process of its own: `listener.py URL NAMESPACE HTTP`.

Reads a line `KIND COUNT`, begins to listen, says `ready`, and prints when it heard of each of so many events: epoch
times in ns, as a JSON array in the order of their coming. `cannot` where this machine has no such listener.
"""

from __future__ import annotations

import gc
import json
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from urllib.parse import urlsplit

import redis
from latency import ORIGIN

from broker.readers.readers import Readers
from broker.store.store import Store
from broker.store.watch import Watcher

WAIT_MS = 2_000
#: One who listens gives, call after call, of how many events it heard meanwhile.
Listening = Iterator[Callable[[], int]]

#: Rings for each row that came onto the screen: a message is taken after the frame that holds it was drawn.
WATCH_ROWS = """() => {
  window.painted = [];
  const shown = () => [...document.querySelectorAll('.grid-row[data-key]')].map((row) => row.dataset.key);
  const known = new Set(shown());
  new MutationObserver(() => {
    const fresh = shown().filter((key) => !known.has(key) && known.add(key));
    if (!fresh.length) return;
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      const at = performance.timeOrigin + performance.now();
      for (const key of fresh) window.painted.push([key, at]);
    };
    port2.postMessage(0);
  }).observe(document.body, { subtree: true, childList: true, attributes: true, attributeFilter: ['data-key'] });
}"""


@contextmanager
def bare(url: str, namespace: str, _: str) -> Listening:
    """A loop around XREAD BLOCK on the very log, which decodes nothing."""
    store = Store.from_url(url, namespace)
    client, log = redis.Redis.from_url(url), store.keys.of(ORIGIN).log
    place = client.xrevrange(log, count=1)[0][0]

    def wait() -> int:
        nonlocal place
        found = client.xread({log: place}, count=100, block=WAIT_MS)
        if not found:
            return 0  # whoever sends stands still
        entries = found[log.encode()][0] if isinstance(found, dict) else found[0][1]
        place = entries[-1][0]
        return len(entries)

    with closing(client), closing(store):
        yield wait


@contextmanager
def watch(url: str, namespace: str, _: str) -> Listening:
    """`Watcher.changes`."""
    with closing(Store.from_url(url, namespace)) as store, Watcher(store) as watcher:
        watcher.snapshot()
        yield lambda: len(watcher.changes(WAIT_MS))


@contextmanager
def readers(url: str, namespace: str, _: str) -> Listening:
    """One of `Broker.readers`."""
    with closing(Store.from_url(url, namespace)) as store, Readers(store) as opened:
        reader = opened.open()
        reader.snapshot()
        yield lambda: len(reader.changes(WAIT_MS))


@contextmanager
def sse(_: str, __: str, http: str) -> Listening:
    """A client of `/v1/watch` that reads each event's JSON."""
    with closing(events(http)) as stream:
        while next(stream)[0] != b"ready":
            pass

        def wait() -> int:
            name, data = next(stream)
            while name != b"change":
                name, data = next(stream)
            assert json.loads(data)["record"]
            return 1

        yield wait


def events(http: str) -> Iterator[tuple[bytes, bytes]]:
    """The (name, data) of each event, chunk framing taken off."""
    place = urlsplit(http)
    with socket.create_connection((place.hostname, place.port), 30) as opened:
        opened.sendall(b"GET /v1/watch HTTP/1.1\r\nHost: %b\r\n\r\n" % place.netloc.encode())
        with opened.makefile("rb", buffering=1 << 16) as lines:
            while lines.readline() not in (b"\r\n", b""):
                pass
            name = data = rest = b""
            while size := int(lines.readline() or b"0", 16):
                *whole, rest = (rest + lines.read(size)).split(b"\n")
                lines.readline()
                for line in whole:
                    if line.startswith(b"event: "):
                        name = line[7:]
                    elif line.startswith(b"data: "):
                        data = line[6:]
                    elif not line and name:
                        yield name, data
                        name = b""


def heard(kind: str, count: int, words: list[str]) -> list[int]:
    """When so many events were heard of."""
    if kind == "row":
        return painted(words[2], count)
    found: list[int] = []
    with globals()[kind](*words) as wait:
        print("ready", flush=True)
        while len(found) < count:
            number = wait()
            found += [time.time_ns()] * number
    return found


def painted(http: str, count: int) -> list[int]:
    """When the rows of so many jobs were on the dashboard's list, in a real Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(f"{http}/jobs")
        page.wait_for_selector(".grid-row[data-key]")
        page.evaluate(WATCH_ROWS)
        print("ready", flush=True)
        page.wait_for_function(
            "(count) => window.painted.length >= count", arg=count, timeout=60_000
        )
        times = page.evaluate("() => window.painted.map((one) => one[1])")
        browser.close()
    return [round(at * 1e6) for at in times[:count]]


def chromium() -> str | None:
    """Where the system's Chromium is."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


def main(words: list[str]) -> None:
    for line in sys.stdin:
        kind, count = line.split()
        if kind == "row" and not chromium():
            print("cannot", flush=True)
            continue
        gc.collect()
        gc.disable()
        found = heard(kind, int(count), words)
        gc.enable()
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
