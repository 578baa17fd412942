"""How long an accepted event takes to whoever follows: a watcher, a reader, an HTTP client, a row on a screen.

Beside a bare loop around XREAD BLOCK on the very same log, in the same turn. Every event is one call of the merge, sent
raw; the clock starts as it is sent, so the merge is in each figure alike. `broker serve` runs all the time.
"""

from __future__ import annotations

import json
import os
import random
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tools import SEED, Packer, Row, Wire, ratios

from broker.errors import Misconfigured
from broker.rules.event import Report
from broker.rules.key import Key
from broker.store.leash import leashed
from broker.store.scripts import source
from broker.store.store import Store
from broker.store.view import View

HERE = Path(__file__).resolve().parent
ORIGIN, NAMESPACE = "bench", "latency"
#: Events of a slice, and the mean pause between two, in seconds: each is heard of alone.
EVENTS, EVENTS_QUICK = 200, 40
PAUSE_SECONDS = 0.004
#: The same for rows, which are drawn sixty times a second at most.
ROWS, ROWS_QUICK, ROW_PAUSE_SECONDS = 30, 5, 0.06
KINDS = ("bare", "watch", "readers", "sse", "row")
#: Who hears, in words, and the goal.
HEARD = {
    "watch": ("a watcher", "<= 3"),
    "readers": ("a reader of many", "<= 3"),
    "sse": ("a client of /v1/watch", "<= 6"),
    "row": ("a row painted in Chromium", ""),
}
START_SECONDS_MAX = 30.0


class Latency:
    """One producer, and a listener of any kind."""

    def __init__(self, url: str, socket_path: str, http: str) -> None:
        self._store = Store.from_url(url, NAMESPACE)
        self._wire = Wire(socket_path)
        self._sha = self._wire.ask("SCRIPT", "LOAD", source("merge").text).decode()
        self._number = 0
        self._pauses = random.Random(SEED)
        self._wire.send(self._event(), 1)
        View(self._store).apply([_report("first")])  # so that the origin is known
        argv = [sys.executable, "listener.py", url, NAMESPACE, http]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._listener = subprocess.Popen(argv, cwd=HERE, text=True, **pipes)

    def close(self) -> None:
        """End the listener, and give back the connections."""
        self._listener.stdin.close()
        self._listener.wait(20)
        self._wire.close()
        self._store.close()

    def _event(self) -> bytes:
        self._number += 1
        store = Store(self._store.client, NAMESPACE)
        packer = Packer(self._sha)
        store.scripts = packer  # type: ignore[assignment]
        View(store).apply([_report(f"job-{self._number:09}")])
        return packer.calls[-1]

    def slice_of(self, kind: str, *, quick: bool) -> tuple[list[float], list[float]] | None:
        """Of each event, in ms: from its sending to its being heard of; and from the answer to its sender on.

        None where there is no such listener.
        """
        few, many = (ROWS_QUICK, ROWS) if kind == "row" else (EVENTS_QUICK, EVENTS)
        count, pause = few if quick else many, ROW_PAUSE_SECONDS if kind == "row" else PAUSE_SECONDS
        events = [self._event() for _ in range(count)]
        self._listener.stdin.write(f"{kind} {count}\n")
        self._listener.stdin.flush()
        if self._line() == "cannot":
            return None
        sent, answered = [], []
        for event in events:
            time.sleep(pause * self._pauses.uniform(0.5, 1.5))
            sent.append(time.time_ns())
            self._wire.send(event, 1)
            answered.append(time.time_ns())
        heard = json.loads(self._line())
        return [_ms(*pair) for pair in zip(sent, heard, strict=True)], [
            _ms(*pair) for pair in zip(answered, heard, strict=True)
        ]

    def _line(self) -> str:
        if not (line := self._listener.stdout.readline()):
            raise Misconfigured("the listener has ended")
        return line.strip()


def _ms(begun: int, ended: int) -> float:
    return (ended - begun) / 1e6


def _report(id: str) -> Report:
    created_at = time.time_ns() // 1_000_000
    key = Key.of(ORIGIN, "ollama", "run-7f3a", id)
    said = {"model": "llama3.1:8b-instruct", "requester": "team-search", "node": "gpu-node-17"}
    return Report(key=key, created_at=created_at, state="running", by="origin", **said)


@contextmanager
def serving(url: str, namespace: str) -> Iterator[str]:
    """`broker serve` as a child; where it answers HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        http = f"http://127.0.0.1:{found.getsockname()[1]}"
    environment = os.environ | {
        "REDIS_URL": url,
        "BROKER_NAMESPACE": namespace,
        "BROKER_NODE": ORIGIN,
    }
    environment["BROKER_LOG_LEVEL"] = "error"
    words = [sys.executable, "-P", "-m", "broker.cli", "serve", "--allow-volatile"]
    child = subprocess.Popen(
        leashed([*words, "--listen", http.removeprefix("http://")], 9),
        env=environment,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + START_SECONDS_MAX
        while not _is_ready(http):
            if child.poll() is not None or time.monotonic() > deadline:
                raise Misconfigured("broker serve does not answer HTTP")
            time.sleep(0.05)
        yield http
    finally:
        child.terminate()
        try:
            child.wait(20)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _is_ready(http: str) -> bool:
    try:
        with urllib.request.urlopen(f"{http}/readyz", timeout=5):  # noqa: S310 - our own
            return True
    except OSError:
        return False


def rows(url: str, socket_path: str, *, turns: int, quick: bool) -> list[Row]:
    """The figures: the median of each slice, and its 99th of a hundred."""
    with serving(url, NAMESPACE) as http:
        return _rows(Latency(url, socket_path, http), turns=turns, quick=quick)


def _rows(latency: Latency, *, turns: int, quick: bool) -> list[Row]:
    order = random.Random(SEED)
    found: dict[str, list[tuple[list[float], list[float]]]] = {kind: [] for kind in KINDS}
    try:
        for turn in range(-1, turns):
            for kind in order.sample(KINDS, len(KINDS)):
                heard = latency.slice_of(kind, quick=quick)
                if turn >= 0 and heard:
                    found[kind].append(heard)
    finally:
        latency.close()
    made = [row for kind in HEARD for row in _rows_of(kind, found)]
    bare = [sent for sent, _ in found["bare"]]
    return [
        *made,
        Row("xread_ms", [_at(one, 50) for one in bare], "ms", "event sent to bare XREAD, p50"),
        Row("xread_p99_ms", [_at(one, 99) for one in bare], "ms", "the same, p99"),
    ]


def _rows_of(kind: str, found: dict[str, list[tuple[list[float], list[float]]]]) -> Iterator[Row]:
    who, goal = HEARD[kind]
    mine = found[kind]
    bare = found["bare"] if mine else []
    nothing = "" if mine else " (no Chromium here)"
    for part, at in (("", 50), ("_p99", 99)):
        over = ratios([_at(sent, at) for sent, _ in mine], [_at(sent, at) for sent, _ in bare])
        what = f"event to {who}, to bare XREAD, p{at}{nothing}"
        yield Row(f"{kind}_to_xread{part}", over, "x", what, goal if at == 50 else "")
        yield Row(
            f"{kind}{part}_ms",
            [_at(sent, at) for sent, _ in mine],
            "ms",
            f"event to {who}, p{at}{nothing}",
        )
    after = [_at(answered, 50) for _, answered in mine]
    yield Row(
        f"{kind}_after_ms", after, "ms", f"the sender has its answer, until {who}, p50{nothing}"
    )


def _at(values: Sequence[float], hundredth: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[hundredth - 1]
