"""What Prometheus is told of the fleet: each metric with its name, its meaning and its labels.

The names are frozen: `docs/metrics.md` tells them all, and a test holds the two together.
"""

from __future__ import annotations

import platform
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from math import inf
from typing import Any

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)

from broker.fleet.overview import Overview
from broker.rules.state import STATES
from broker.web.timings import Names

#: Values by those of the labels, in their order.
Values = Mapping[Any, float]


@dataclass(frozen=True, slots=True)
class Process:
    """What this process knows without Redis."""

    turns: Mapping[str, float]  #: seconds since each loop turned last, by its name
    listed: bool  #: whether it has listed all jobs
    age_seconds: float  #: since all that was logged was known
    drift: int


class Grown:
    """Totals that only grow, summed over what may begin anew or not be readable for a while (a log, an origin's meta).

    Else a part that is gone would look like a restart, and the rest of the sum like news.
    """

    def __init__(self) -> None:
        self._last: dict[Hashable, int] = {}
        self._totals: Counter[tuple[str, ...]] = Counter()

    def tell(self, part: str, count: int, *labels: str) -> None:
        """Of this part the count stands so now."""
        last = self._last.get((part, labels), 0)
        self._last[part, labels] = count
        self._totals[labels] += count - last if count >= last else count

    @property
    def totals(self) -> Values:
        """By labels."""
        return dict(self._totals)


class Gauges:
    """Makes metrics of what was seen. Keep one for each process: it knows which names have a label, and what grew."""

    def __init__(self) -> None:
        self._engines, self._nodes, self._groups, self._served = Names(), Names(), Names(), Names()
        self._known: set[tuple[str]] = set()
        self._answers, self._trimmed, self._evicted, self._gaps = Grown(), Grown(), Grown(), Grown()

    def process(self, seen: Process, *, is_up: bool) -> Iterator[Metric]:
        """What is told whether Redis answers or not."""
        yield _gauge("broker_up", "Whether Redis answered just now.", is_up)
        told = {"version": version("fleet-broker"), "python": platform.python_version()}
        yield InfoMetricFamily("broker_build", "What runs here.", told)
        yield _gauge(
            "broker_watch_listed", "Whether this process has listed all jobs.", seen.listed
        )
        text = "For how long this process has not known all that was logged."
        yield _gauge("broker_watch_age_seconds", text, seen.age_seconds)
        text = "Jobs that this process held wrongly, though no log says why."
        yield _counters("broker_watch_drift", text, (), {(): seen.drift})
        loops = {(name,): seconds for name, seconds in seen.turns.items()}
        text = "For how long each loop of this process has not turned."
        yield _gauges("broker_loop_age_seconds", text, ("loop",), loops)

    def jobs(self, seen: Overview) -> Iterator[Metric]:
        """What the list tells: only once it is whole."""
        census, states = seen.census, seen.census.by_state()
        engines = self._engines.keep({engine for _, engine, _ in census.jobs} | seen.slots.keys())
        nodes = self._nodes.keep({node for _, _, node in census.jobs if node})
        of_engine = {(label, state): 0 for label in set(engines.values()) for state in STATES}
        of_node = {(label, state): 0 for label in set(nodes.values()) for state in STATES}
        for (state, engine, node), count in census.jobs.items():
            of_engine[engines[engine], state] += count
            if node:
                of_node[nodes[node], state] += count
        by_state = {(state,): states[state] for state in STATES}
        text = "Jobs by state; a guess counts as what it replaced."
        yield _gauges("broker_jobs", text, ("state",), by_state)
        text = "The same by engine."
        yield _gauges("broker_engine_jobs", text, ("engine", "state"), of_engine)
        text = "The same by node, of those that have one."
        yield _gauges("broker_node_jobs", text, ("node", "state"), of_node)

        yield _gauge("broker_ready_jobs", "Jobs that wait for a slot.", census.ready)
        yield _gauge("broker_delayed_jobs", "Jobs that are not yet due.", census.delayed)
        yield _gauge(
            "broker_placed_jobs", "Jobs that were given to a node, unstarted.", census.placed
        )
        text = "For how long the first of the ready jobs has waited; 0 where none does."
        yield _gauge("broker_oldest_ready_age_seconds", text, (census.oldest_ready_ms or 0) / 1000)
        yield _gauge("broker_guessed_jobs", "Jobs whose state is a guess.", census.guesses)
        yield _gauge("broker_doubted_jobs", "Running jobs whose holder misses beats.", seen.doubt)
        # One that nothing is wanted of any more goes on reading 0.
        known = census.wanted.keys() | census.occupied.keys() | seen.slots.keys()
        self._known |= {(self._served.label(engine),) for engine in sorted(known)}
        for name, text, counts in (
            ("wanted", "Slots that would run at once all that is to run now.", census.wanted),
            ("occupied", "Slots that jobs hold, placed or running.", census.occupied),
            ("slots", "Slots of the workers that beat.", seen.slots),
        ):
            of = dict.fromkeys(self._known, 0)
            for engine, count in counts.items():
                of[self._served.label(engine),] += count
            yield _gauges(f"broker_{name}", text, ("engine",), of)

    def books(self, seen: Overview) -> Iterator[Metric]:
        """What the origins keep, and how events were answered."""
        for origin in seen.origins:
            for (outcome, rule), count in origin.answers.items():
                self._answers.tell(origin.origin, count, outcome, rule)
            if origin.trimmed is not None:
                self._trimmed.tell(origin.origin, origin.trimmed)
        text = "Events by the answer that they got; of errors without a rule."
        yield _counters("broker_events", text, ("outcome", "rule"), self._answers.totals)
        entries = [origin.log or 0 for origin in seen.origins]
        sizes = [origin.bytes or 0 for origin in seen.origins]
        yield _gauge("broker_origins", "Origins that were heard of.", len(seen.origins))
        yield _gauge("broker_log_entries", "Entries that the logs keep.", sum(entries))
        text = "Entries of the longest log."
        yield _gauge("broker_log_longest_entries", text, max(entries, default=0))
        yield _gauge("broker_log_bytes", "Memory of the logs, about.", sum(sizes))
        text = "Entries that were cut off the logs."
        yield _counters("broker_log_trimmed_entries", text, (), {(): 0, **self._trimmed.totals})
        yield _gauge("broker_damaged_keys", "Keys that could not be read.", len(seen.damaged))

    def groups(self, groups: Sequence[Mapping[str, Any]]) -> Iterator[Metric]:
        """How far behind each group is, over all origins, as `broker.subscriptions.groups.group_json` tells it."""
        labels = self._groups.keep(seen["group"] for seen in groups)
        found: dict[str, dict[tuple[str, ...], float]] = {
            name: defaultdict(float) for name in _OF_GROUPS
        }
        for seen in groups:
            group, origin, lag = seen["group"], seen["origin"], seen["lag_entries"]
            label = labels[group]
            for name, count in (
                ("lag_entries", lag or 0),
                ("lag_unknown_origins", bool(origin) and lag is None),
                ("unread_origins", bool(lag) and not seen["live"]),
                ("parked_entries", seen["parked"]),
            ):
                found[name][label,] += count
            seconds = (seen["lag_ms"] or 0) / 1000
            found["lag_seconds"][label,] = max(seconds, found["lag_seconds"][label,])
            self._evicted.tell(f"{group} {origin}", seen["evicted"], label)
            self._gaps.tell(f"{group} {origin}", seen["gaps"], label)
        for name, text in _OF_GROUPS.items():
            yield _gauges(f"broker_group_{name}", text, ("group",), found[name])
        text = "Parked entries that newer ones displaced: they were never handled."
        yield _counters("broker_group_parked_lost_entries", text, ("group",), self._evicted.totals)
        text = "How often a group lost entries unread."
        yield _counters("broker_group_gaps", text, ("group",), self._gaps.totals)


#: What is told of each group, over all origins.
_OF_GROUPS = {
    "lag_entries": "Entries that the group has not acked, where that is known.",
    "lag_seconds": "Age of the first unread entry.",
    "lag_unknown_origins": "Origins of which nobody knows how far behind the group is.",
    "unread_origins": "Origins with unread entries that no member reads.",
    "parked_entries": "Entries whose handler failed for good.",
}


def audit(seen: Overview) -> Iterator[Metric]:
    """What the auditor's newest round found, and all rounds together. Nothing where that cannot be read."""
    found = seen.audit
    if found is None:
        return
    age_ms = seen.audit_age_ms
    text = "Since the newest whole round of an auditor; infinite where there was none."
    yield _gauge("broker_audit_age_seconds", text, inf if age_ms is None else age_ms / 1000)
    yield _gauge("broker_audit_round_seconds", "How long that round took.", found.took_ms / 1000)
    for name, text in _OF_AUDITS.items():
        yield _gauge(f"broker_audit_{name}", text, getattr(found, name))
    kinds = [name for name in _OF_AUDITS if name != "unread"]
    totals = {(name,): getattr(found, f"{name}_total") for name in kinds}
    text = "What all rounds found; what is found again counts again."
    yield _counters("broker_audit_findings", text, ("kind",), totals)
    text = "What was mended."
    yield _counters("broker_audit_repairs", text, (), {(): found.repaired_total})


_OF_AUDITS = {
    "ghosts": "Jobs listed that are gone.",
    "missing": "Jobs that are not listed.",
    "stuck": "Jobs that nobody will move on.",
    "drift": "Lists, keys and beats that do not agree.",
    "unread": "Origins that could not be looked through.",
}


def redis(seen: Overview) -> Iterator[Metric]:
    """What the server tells of itself."""
    server = seen.health
    told = {
        "name": server.name,
        "version": server.version,
        "maxmemory_policy": server.policy,
        "appendfsync": server.fsync,
    }
    yield InfoMetricFamily("broker_redis", "The server that keeps it all.", told)
    yield _gauge("broker_redis_memory_bytes", "Memory in use.", server.used)
    yield _gauge("broker_redis_memory_max_bytes", "maxmemory; 0: no limit.", server.used_max)
    yield _gauge(
        "broker_redis_answer_seconds", "How long it took to answer.", server.answer_ms / 1000
    )
    text = "Its clock before that of this host."
    yield _gauge("broker_redis_clock_ahead_seconds", text, server.clock_ahead_ms / 1000)
    yield _gauge("broker_redis_aof", "Whether it keeps an append-only file.", server.aof)
    text = "Whether the last write to that file went well."
    yield _gauge("broker_redis_aof_ok", text, server.aof_ok)


def leaders(seen: Overview) -> Iterator[Metric]:
    """Who leads."""
    terms = {(leader.role,): leader.term for leader in seen.leaders}
    held = {(leader.role,): leader.held for leader in seen.leaders}
    yield _gauges("broker_leader_term", "The newest term of each role.", ("role",), terms)
    yield _gauges("broker_leader_held", "Whether somebody leads.", ("role",), held)


def _gauge(name: str, text: str, value: float) -> Metric:
    return _gauges(name, text, (), {(): value})


def _gauges(name: str, text: str, labels: Sequence[str], values: Values) -> Metric:
    made = GaugeMetricFamily(name, text, labels=labels)
    for of, value in sorted(values.items()):
        made.add_metric(of, float(value))
    return made


def _counters(name: str, text: str, labels: Sequence[str], values: Values) -> Metric:
    """Its sample ends in `_total`."""
    made = CounterMetricFamily(name, text, labels=labels)
    for of, value in sorted(values.items()):
        made.add_metric(of, float(value))
    return made
