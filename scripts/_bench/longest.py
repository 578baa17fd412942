"""The longest single call of Redis at 100,000 records, by what is done: for so long everybody else waits.

From Redis's own books (`INFO latencystats`), which hold every call: execution alone, neither queue nor wire. Where
other programs take the processor from Redis meanwhile, that counts as well, so the median over the turns is told.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from itertools import islice

import redis
from tools import Row

from broker import Broker, settings
from broker.fleet.audits import audit
from broker.fleet.overview import overview
from broker.roles.dispatcher import Dispatcher
from broker.roles.janitor import Janitor
from broker.roles.sweeper import Sweeper
from broker.rules.bounds import Bounds
from broker.rules.event import Report, Submit
from broker.rules.key import Key
from broker.store.queue import move_due
from broker.store.store import Store

NAMESPACE, ORIGIN = "longest", "bench"
RECORDS, RECORDS_QUICK = 100_000, 2_000
#: Of all records: the jobs that share their id with others, how many share one, and the shares of the other kinds.
SHARING, SHARED_BY = 0.01, 100
ENDED, DELAYED, READY = 0.10, 0.10, 0.10
#: How far off the delayed ones are, in ms; and how often a role turns.
DUE_MS, STEPS = 600_000, 10
GOAL = "<= 10"


class Longest:
    """A namespace that holds so many jobs of every kind, and what is done to it."""

    def __init__(self, url: str, records: int) -> None:
        self._client = redis.Redis.from_url(url)
        self._client.config_set("latency-tracking", "yes")
        self._client.config_set("latency-tracking-info-percentiles", "100")
        self.broker = Broker(
            Store.from_url(url, NAMESPACE), settings(namespace=NAMESPACE, node=ORIGIN)
        )
        self._records = records
        #: What is done in each turn, in this order: each leaves something to be done for the next one.
        self.doings: dict[str, Callable[[int], object]] = {
            "snapshot": lambda _: self._snapshot(),
            "list": lambda _: self.broker.jobs(state="failed"),
            "find": lambda _: self.broker.find(f"ollama//job-{self._records - 1:09}"),
            "overview": lambda _: overview(self.broker, {}),
            "audit": lambda _: list(audit(self.broker, lambda *_: None)),
            "sweeper": lambda _: self._step(Sweeper(self.broker.store)),
            "dispatcher": lambda _: self._step(Dispatcher(self.broker.store)),
            "report": self._report,
            "cancel": self._cancel,
            "due": self._due,
            "remove_pair": lambda turn: self.broker.remove_pair(ORIGIN, f"shared-{turn}"),
            "janitor": self._trim_and_prune,
        }

    def close(self) -> None:
        """Give back the connections."""
        self.broker.close()
        self._client.close()

    def fill(self) -> None:
        """One origin with all of them."""
        now = self.broker.store.clock.now()
        events: list[Report | Submit] = []
        for number in range(self._records):
            share = number / self._records
            if share < SHARING:
                key = Key.of(
                    ORIGIN, "ollama", f"run-{number % SHARED_BY}", f"shared-{number // SHARED_BY}"
                )
            else:
                key = Key.of(ORIGIN, "ollama", "", f"job-{number:09}")
            if share < SHARING + ENDED:
                events.append(_told(key, now, "completed" if number % 2 else "failed"))
            elif share < SHARING + ENDED + DELAYED + READY:
                due = now + DUE_MS if share < SHARING + ENDED + DELAYED else 0
                events.append(
                    Submit(key=key, created_at=now, spec="{}", digest="d", due=due, by="user")
                )
            else:
                events.append(_told(key, now, "running"))
        self.broker.view.apply(events)

    def _snapshot(self) -> None:
        with self.broker.watch() as watcher:
            assert len(watcher.snapshot().records) > self._records / 2

    def _step(self, role: Sweeper | Dispatcher) -> None:
        for _ in range(STEPS):
            role.step()
        role.close()

    def _report(self, turn: int) -> None:
        now = self.broker.store.clock.now()
        keys = [Key.of(ORIGIN, "ollama", "", f"new-{turn}-{number}") for number in range(1_000)]
        self.broker.view.apply([_told(key, now, "failed") for key in keys])

    def _cancel(self, turn: int) -> None:
        found = list(islice(self.broker.select(states={"queued"}), 500))
        self.broker.cancel_many([key for key, _ in found][turn % 2 :: 2])

    def _due(self, _: int) -> None:
        for _ in range(5):
            move_due(self.broker.store, ORIGIN, self.broker.store.clock.now() + 2 * DUE_MS)

    def _trim_and_prune(self, _: int) -> None:
        """As the janitor does where each bound lies 1,000 below what there is."""
        length = self.broker.store.client.xlen(self.broker.log(ORIGIN).key)
        done = self.broker.store.client.zcard(self.broker.store.keys.of(ORIGIN).done)
        bounds = Bounds(log_max=max(1, length - 1_000), done_max=max(1, done - 1_000))
        janitor = Janitor(self.broker.store, bounds=bounds, round_seconds=0.0)
        for _ in range(STEPS):
            janitor.step()
        janitor.close()

    def measure(self, doing: Callable[[], object]) -> tuple[str, float]:
        """The command whose longest call was the longest meanwhile, and that in ms."""
        self._client.config_resetstat()
        doing()
        found = self._client.info("latencystats")
        calls = {
            name.removeprefix("latency_percentiles_usec_"): max(_numbers(said)) / 1000
            for name, said in found.items()
            if "resetstat" not in name
        }
        command = max(calls, key=lambda name: calls[name])
        return command, calls[command]


def _told(key: Key, now: int, state: str) -> Report:
    said = {"model": "llama3.1:8b-instruct", "requester": "team-search", "node": "gpu-node-17"}
    return Report(key=key, created_at=now, state=state, by="origin", **said)


def rows(url: str, *, turns: int, quick: bool) -> list[Row]:
    """The figures, one for everything that is done."""
    longest = Longest(url, RECORDS_QUICK if quick else RECORDS)
    found: dict[str, list[float]] = {}
    commands: dict[str, str] = {}
    try:
        longest.fill()
        for turn in range(turns):
            for name, doing in longest.doings.items():
                command, ms = longest.measure(partial(doing, turn))
                if ms >= max(found.setdefault(name, []), default=0.0):
                    commands[name] = command
                found[name].append(ms)
    finally:
        longest.close()
    return [
        Row(
            f"longest_{name}_ms",
            [] if quick else values,
            "ms",
            f"longest call: {name} ({commands[name]})",
            GOAL,
        )
        for name, values in found.items()
    ]


def _numbers(said: object) -> list[float]:
    if isinstance(said, dict):
        return [float(value) for value in said.values()]
    return [float(number) for number in re.findall(r"=([0-9.]+)", str(said))]
