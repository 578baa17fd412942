"""What grows with the number of jobs, and what must not: a snapshot of 10,000, an exact removal at 10^3 and 10^5."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tools import SEED, Row, in_turns, ratios, timed

from broker.rules.event import Remove, Report
from broker.rules.key import Key
from broker.store.decode import read_record
from broker.store.store import Store
from broker.store.view import View
from broker.store.watch import Watcher

JOBS = 10_000
FEW, MANY = 1_000, 100_000
REMOVALS = 50  # of a slice
CREATED_AT = 1_790_000_000_000


def fill(view: View, origin: str, count: int) -> list[Key]:
    """So many running jobs."""
    keys = [Key.of(origin, "ollama", "run-7f3a", f"job-{number:09}") for number in range(count)]
    view.apply(
        [
            Report(
                key=key,
                created_at=CREATED_AT + number,
                state="running",
                node="gpu-node-17",
                seq=2,
                started_at=CREATED_AT + number,
                model="llama3.1:8b-instruct",
                requester="team-search",
                by="origin",
            )
            for number, key in enumerate(keys)
        ]
    )
    return keys


def snapshot(url: str, turns: int) -> list[Row]:
    """`Watcher.snapshot` against the least that could give the same records, which knows all the names beforehand."""
    store = Store.from_url(url, "snapshot")
    keys = fill(View(store), "bench", JOBS)
    names = [store.keys.of_job(key).job for key in keys]

    def plain() -> None:
        found = {}
        for at in range(0, JOBS, 1_000):
            with store.client.pipeline(transaction=False) as pipe:
                for name in names[at : at + 1_000]:
                    pipe.hgetall(name)
                for key, raw in zip(keys[at : at + 1_000], pipe.execute(), strict=True):
                    found[key] = read_record(raw)
        assert len(found) == JOBS

    def ours() -> None:
        with Watcher(store, ["bench"]) as watcher:
            assert len(watcher.snapshot().records) == JOBS

    slices = {"plain": lambda _: timed(plain) * 1000, "ours": lambda _: timed(ours) * 1000}
    found = in_turns(slices, turns)
    hgetall, shot = found["plain"], found["ours"]
    store.close()
    return [
        Row("snapshot_to_hgetall", ratios(shot, hgetall), "x", "snapshot of 10^4 to pipelined HGETALL", "<= 2"),
        Row("snapshot_ms", shot, "ms", "snapshot of 10^4 jobs"),
        Row("hgetall_ms", hgetall, "ms", "10^4 records by pipelined HGETALL"),
    ]  # fmt: skip


def removal(url: str, turns: int, *, quick: bool) -> list[Row]:
    """One exact removal a call, of a random job; each is reported anew between the slices."""
    store = Store.from_url(url, "removal")
    view = View(store)
    chance = random.Random(SEED)
    keys = {"few": fill(view, "few", FEW)}
    if not quick:
        keys["many"] = fill(view, "many", MANY)

    def slice_of(name: str, turn: int) -> float:
        chosen = chance.sample(keys[name], REMOVALS)
        events = [Remove(key=key, by="user") for key in chosen]
        seconds = timed(lambda: [view.apply([event]) for event in events])
        later = CREATED_AT + 10 * MANY * (turn + 2)  # above the tombstones
        view.apply(
            [Report(key=key, created_at=later, state="running", by="origin") for key in chosen]
        )
        return seconds * 1e6 / REMOVALS

    slices = {name: lambda turn, name=name: slice_of(name, turn) for name in keys}
    found = {"many": []} | in_turns(slices, turns)
    store.close()
    growth = [] if quick else ratios(found["many"], found["few"])
    return [
        Row("removal_growth", growth, "x", "exact removal at 10^5 records to 10^3"),
        Row("removal_at_1e3", found["few"], "us", "exact removal, one a call, at 10^3 records"),
        Row("removal_at_1e5", found["many"], "us", "exact removal, one a call, at 10^5 records"),
    ]  # fmt: skip


def rows(url: str, *, turns: int, quick: bool) -> Iterator[list[Row]]:
    """The figures, part by part; `quick` leaves out what needs 10^5 jobs."""
    yield snapshot(url, turns)
    yield removal(url, turns, quick=quick)
