"""How fast the merge is, and how much memory its books take.

The yardstick is what a program without a merge would send for the same effect: five plain commands, pipelined, with
the same fields. HMGET reads the fields that the record has; HSET writes what the event tells (a program that does not
decide cannot know that half of it stands there already); XADD, ZADD and HSET write what the script writes. That is
not listed here but watched: one job's life is applied under MONITOR. The five decide nothing and are not atomic.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from tools import Packer, Row, Wire, in_turns, pack, ratios, timed

from broker.rules.event import Report
from broker.rules.key import Key
from broker.store.scripts import source
from broker.store.store import Store
from broker.store.view import View

EVENTS = 1_000  # of a slice
EVENTS_SINGLE = 200  # of a slice that sends one a call: slower, so shorter
BATCH = 100
XADDS = 500  # a send
JOBS_WEIGHED = 2_000
ORIGIN = "bench"
CREATED_AT = 1_790_000_000_000

#: The life of a job that is reported without numbers: every event is applied, and leaves a mark.
LIFE: tuple[dict[str, Any], ...] = (
    {"state": "queued"},
    {"state": "queued", "node": "gpu-node-17"},
    {"state": "running", "node": "gpu-node-17", "started_at": CREATED_AT + 1_000},
    {
        "state": "completed",
        "node": "gpu-node-17",
        "started_at": CREATED_AT + 1_000,
        "completed_at": CREATED_AT + 9_000,
    },
)
SAMPLE = "sample-00000000"
#: What a report tells of its job.
TOLD = (
    "state", "node", "seq", "started_at", "completed_at", "error", "model", "requester", "rule", "by"
)  # fmt: skip


def report(id: str, step: int) -> Report:
    """One event of a job's life."""
    return Report(
        key=Key.of(ORIGIN, "ollama", "run-7f3a", id),
        created_at=CREATED_AT,
        model="llama3.1:8b-instruct",
        requester="team-search",
        by="origin",
        **LIFE[step],
    )


def lives(name: str, events: int) -> list[tuple[str, int]]:
    """(id, step) of so many events: as many jobs as that takes live side by side."""
    ids = [f"{name}-{number:04}" for number in range(events // len(LIFE))]
    return [(id, step) for step in range(len(LIFE)) for id in ids]


class Merge:
    """The merge and its yardstick on one private Redis, each variant in a namespace of its own."""

    def __init__(self, url: str, socket: str) -> None:
        self.wire = Wire(socket)
        self._url = url
        self._sha = self.wire.ask("SCRIPT", "LOAD", source("merge").text).decode()
        self._store = Store.from_url(url, "apply")
        self._view = View(self._store)
        self._five = self._watch_sample(Wire(socket))
        self._cpu: dict[str, list[float]] = {"merge": [], "five": []}

    def close(self) -> None:
        """Give back the connections."""
        self.wire.close()
        self._store.close()

    # --- the five ---------------------------------------------------------------------------------

    def _watch_sample(self, monitor: Wire) -> list[list[list[str]]]:
        """For each step of a life the five commands, as lists of words."""
        monitor.ask("MONITOR")
        store = Store.from_url(self._url, "five")
        view = View(store)
        view.apply([report("an-older-job", 0)])  # so that the log exists
        view.apply([report(SAMPLE, step) for step in range(len(LIFE))])
        store.close()
        self.wire.ask("ECHO", "that is all")
        seen: list[dict[str, list[str]]] = [{}]
        while "that is all" not in (line := monitor.send(b"", 1)[0].decode()):
            words = re.findall(r'"((?:[^"\\]|\\.)*)"', line)
            if " lua]" not in line or SAMPLE not in line:
                continue
            name = "mark" if words[0] == "HSET" and words[1].endswith(":seen") else words[0]
            seen[-1].setdefault(name, words)
            if name == "mark":  # the last that the script does for an event
                seen.append({})
        monitor.close()
        # An event that moves nothing in the indexes pays for a ZADD all the same: the five are always five.
        record = seen[0]["HSET"][1]
        read = ["HMGET", record, *(name.decode() for name in self.wire.ask("HKEYS", record))]
        return [
            [read, _told(record, did), did["XADD"], did.get("ZADD", seen[0]["ZADD"]), did["mark"]]
            for did in seen[: len(LIFE)]
        ]

    def _plain(self, id: str, step: int) -> bytes:
        return b"".join(
            pack(*(word.replace(SAMPLE, id) for word in words)) for words in self._five[step]
        )

    # --- slices -----------------------------------------------------------------------------------

    def _packed(self, namespace: str, told: list[tuple[str, int]], size: int) -> list[bytes]:
        store = Store(self._store.client, namespace)
        packer = Packer(self._sha)
        store.scripts = packer  # type: ignore[assignment]
        view = View(store)
        events = [report(*one) for one in told]
        for at in range(0, len(events), size):
            view.apply(events[at : at + size])
        return packer.calls

    def _send(self, calls: list[tuple[bytes, int]], cpu: str = "") -> float:
        """Seconds for these sends, one at a time."""
        before = self._cpu_seconds() if cpu else 0.0

        def all_of_them() -> None:
            for packed, replies in calls:
                self.wire.send(packed, replies)

        seconds = timed(all_of_them)
        if cpu:
            self._cpu[cpu].append((self._cpu_seconds() - before) * 1e6 / EVENTS)
        return seconds

    def _cpu_seconds(self) -> float:
        info = self.wire.ask("INFO", "cpu").decode()
        return sum(float(number) for number in re.findall(r"used_cpu_(?:user|sys):([0-9.]+)", info))

    def merge(self, turn: int) -> float:
        """Events a second through EVALSHA, 100 a call."""
        calls = self._packed("merge", lives(f"turn{turn:06}", EVENTS), BATCH)
        return EVENTS / self._send([(call, 1) for call in calls], "merge")

    def five(self, turn: int) -> float:
        """Events a second through the five, 100 events a send."""
        told = lives(f"turn{turn:06}", EVENTS)
        sends = [
            b"".join(self._plain(*one) for one in told[at : at + BATCH])
            for at in range(0, EVENTS, BATCH)
        ]
        return EVENTS / self._send([(send, 5 * BATCH) for send in sends], "five")

    def xadd(self, turn: int) -> float:
        """Events a second as bare entries, 500 a send: the whole event as one text."""
        entry = [
            pack("XADD", "xadd:log", "*", "event", json.dumps(_native(id, step)))
            for id, step in lives(f"turn{turn:06}", EVENTS)
        ]
        sends = [b"".join(entry[at : at + XADDS]) for at in range(0, EVENTS, XADDS)]
        return EVENTS / self._send([(send, XADDS) for send in sends])

    def single(self, turn: int) -> float:
        """Events a second, one a call."""
        calls = self._packed("single", lives(f"turn{turn:06}", EVENTS_SINGLE), 1)
        return EVENTS_SINGLE / self._send([(call, 1) for call in calls])

    def apply(self, turn: int) -> float:
        """Events a second through `View.apply`: what a Python program gets."""
        events = [report(*one) for one in lives(f"turn{turn:06}", EVENTS)]
        return EVENTS / timed(lambda: self._view.apply(events))

    def speed(self, turns: int) -> list[Row]:
        """The figures of speed."""
        slices = {
            name: getattr(self, name) for name in ("merge", "five", "xadd", "single", "apply")
        }
        found = in_turns(slices, turns)
        merge = found["merge"]
        cpu = {name: values[-turns:] for name, values in self._cpu.items()}  # without the warm-up
        return [
            Row("merge_to_five", ratios(merge, found["five"]), "x", "merge by 100 to five plain commands", ">= 0.80"),
            Row("merge_to_xadd", ratios(merge, found["xadd"]), "x", "merge by 100 to bare XADD by 500", ">= 0.12"),
            Row("merge_to_single", ratios(merge, found["single"]), "x", "merge by 100 to one a call"),
            Row("merge_rate", merge, "events/s", "merge by 100"),
            Row("five_rate", found["five"], "events/s", "five plain commands, 100 events a send"),
            Row("xadd_rate", found["xadd"], "events/s", "bare XADD, 500 a send"),
            Row("single_rate", found["single"], "events/s", "merge, one a call"),
            Row("apply_rate", found["apply"], "events/s", "through View.apply, in Python"),
            Row("merge_cpu", cpu["merge"], "us", "Redis CPU an event, merge"),
            Row("five_cpu", cpu["five"], "us", "Redis CPU an event, five plain commands"),
        ]  # fmt: skip

    # --- memory -----------------------------------------------------------------------------------

    def memory(self) -> list[Row]:
        """The figures of memory, in bytes: a record's key, a log entry, and all that a job leaves."""
        ask = self.wire.ask
        told = lives("weighed", JOBS_WEIGHED * len(LIFE))
        before = self._used_bytes()
        for call in self._packed("memory", told, BATCH):
            self.wire.send(call, 1)
        whole = (self._used_bytes() - before) / JOBS_WEIGHED
        books = Store(self._store.client, "memory").keys.of(ORIGIN)
        records = [
            books.of_job(Key.of(ORIGIN, "ollama", "run-7f3a", id).job).job
            for id, step in told
            if step == 0
        ]
        weights = [ask("MEMORY", "USAGE", record, "SAMPLES", 0) for record in records]
        log = ask("MEMORY", "USAGE", books.log, "SAMPLES", 0) / ask("XLEN", books.log)
        before = self._used_bytes()
        for number, record in enumerate(records):
            ask("COPY", record, f"{record[:-4]}{number + JOBS_WEIGHED:04}")
        copied = (self._used_bytes() - before) / JOBS_WEIGHED
        before = self._used_bytes()
        ask("COPY", books.log, f"{books.log}-2")
        copied_log = (self._used_bytes() - before) / ask("XLEN", books.log)
        return [
            Row("record_bytes", weights, "B", "a reported job's record, MEMORY USAGE", "<= 460"),
            Row("record_bytes_used", [copied], "B", "the record, by used_memory"),
            Row("entry_bytes", [log], "B", "a log entry, MEMORY USAGE"),
            Row("entry_bytes_used", [copied_log], "B", "the log entry, by used_memory"),
            Row("job_bytes_used", [whole], "B", "all that a life of four events leaves, by used_memory"),
        ]  # fmt: skip

    def _used_bytes(self) -> int:
        found = re.search(r"used_memory:(\d+)", self.wire.ask("INFO", "memory").decode())
        assert found
        return int(found[1])


def _told(record: str, did: dict[str, list[str]]) -> list[str]:
    """HSET of what an event tells, with the values that the script logged."""
    logged = dict(zip(did["XADD"][3::2], did["XADD"][4::2], strict=True))
    stored = dict(zip(did["HSET"][2::2], did["HSET"][3::2], strict=True))
    values = {name: logged[name] for name in TOLD} | {
        "rev": stored["rev"],
        "last_seen": str(CREATED_AT),
    }
    return ["HSET", record, *(word for pair in values.items() for word in pair)]


def _native(id: str, step: int) -> dict[str, Any]:
    event = report(id, step)
    told = {"event": "report", **event.key._asdict(), "state": event.state, "node": event.node}
    return told | {"created_at": event.created_at, "model": event.model}


def rows(url: str, socket: str, *, turns: int) -> Iterator[list[Row]]:
    """The figures, part by part."""
    merge = Merge(url, socket)
    try:
        yield merge.memory()
        yield merge.speed(turns)
    finally:
        merge.close()
