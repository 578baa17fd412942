"""How it all stands, in one look: jobs, waiting, slots, rates, failures, what audits found, Redis, leaders, logs.

It is cheap enough for once a second: the records come from whoever follows the list anyhow (`Readers.records`), and
Redis is asked a handful of calls, whatever it holds. One part that cannot be read does not hide the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from math import isinf
from typing import TYPE_CHECKING, Any, TypeVar

from broker.errors import Damaged
from broker.fleet.doubts import Doubts
from broker.rules.census import Census, take
from broker.rules.key import Key
from broker.rules.record import Record
from broker.rules.state import STATES
from broker.store.audited import AuditSeen
from broker.store.figures import Figures, read_figures
from broker.store.health import Health, read
from broker.store.lease import FENCED_ROLES, Leader, leaders
from broker.store.nodes import WorkerSeen

if TYPE_CHECKING:
    from broker.jobs.catalog import Catalog

#: Kinds of failure that are told.
FAILURES_MAX = 20

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Overview:
    """What was found. `at` is Redis's time, epoch ms; what could not be read is told in `damaged`, a line each."""

    at: int
    census: Census
    doubt: int  #: running jobs whose holder misses its beats: `running?`
    slots: Counter[str]  #: by engine: those of workers with a fresh beat
    audit: AuditSeen | None
    health: Health
    leaders: list[Leader]
    origins: list[Figures]
    damaged: list[str] = field(default_factory=list)
    #: How long the list that was counted had not been known to hold all that is logged; None: it never was.
    list_age_ms: int | None = 0

    @property
    def halted(self) -> list[str]:
        """What keeps the fleet from moving on, a line each, the cause first; none in health.

        A role that nobody ever led is none of it: such a fleet has only just begun, or has no `broker serve` yet.
        """
        found = []
        if not self.health.aof_ok:
            found.append("Redis cannot write its log, and takes no writes: is its disk full?")
        lost = [
            leader.role
            for leader in self.leaders
            if leader.role in FENCED_ROLES and leader.term and not leader.held
        ]
        if lost:
            found.append(f"No broker serve leads as {', '.join(lost)}")
        return found

    @property
    def audit_age_ms(self) -> int | None:
        """Since the newest whole round; None where none is known."""
        return max(0, self.at - self.audit.at) if self.audit and self.audit.at else None

    def to_json(self) -> dict[str, Any]:
        """As every face shows it."""
        census, by_state = self.census, self.census.by_state()
        jobs = {state: by_state[state] for state in STATES}
        audit = self.audit
        return {
            "at": self.at,
            "list_age_ms": self.list_age_ms,
            "jobs": jobs | {"guess": census.guesses, "doubt": self.doubt},
            "ready": census.ready,
            "oldest_ready_ms": census.oldest_ready_ms,
            "delayed": census.delayed,
            "placed": census.placed,
            "wanted": dict(sorted(census.wanted.items())),
            "occupied": dict(sorted(census.occupied.items())),
            "slots": dict(sorted(self.slots.items())),
            "rates": {
                "submitted_per_min": census.created,
                "ended_per_min": census.ended,
                "failed_share": census.failed_share,
            },
            "failures": [
                {
                    "error": failure.error,
                    "cut": failure.cut,
                    "count": failure.count,
                    "newest_key": str(failure.newest_key),
                    "newest_at": failure.newest_at,
                }
                for failure in census.worst(FAILURES_MAX)
            ],
            "audit": audit and audit.to_json() | {"age_ms": self.audit_age_ms},
            "redis": asdict(self.health),
            "leaders": {
                leader.role: {"term": leader.term, "held": leader.held} for leader in self.leaders
            },
            "origins": [figures.to_json() for figures in self.origins],
            "halted": self.halted,
            "damaged": self.damaged,
        }


def overview(
    broker: Catalog,
    records: Mapping[Key, Record],
    now: int | None = None,
    *,
    list_age_seconds: float = 0.0,
    doubts: Doubts | None = None,
) -> Overview:
    """How it stands now, by these records; `now` is Redis's time, epoch ms. Raises Unavailable.

    `list_age_seconds`: that of the records, as `Readers.age_seconds` tells it; without it they were read just now.
    Whoever asks again and again keeps one `Doubts(broker)` and gives it each time.
    """
    now = broker.store.clock.now() if now is None else now
    damaged: list[str] = []

    def part(ask: Callable[[], _T], nothing: _T) -> _T:
        try:
            return ask()
        except Damaged as error:
            damaged.append(str(error))
            return nothing

    origins = part(broker.origins, list[str]())
    figures = read_figures(broker.store, origins)
    damaged += [f"{one.origin}: {one.damage}" for one in figures if one.damage]
    workers = part(lambda: broker.fleet.workers(now), list[WorkerSeen]())
    doubts = doubts or Doubts(broker)
    return Overview(
        at=now,
        census=take(records, now),
        doubt=len(doubts.among(records, now, workers)),
        slots=_slots(workers, broker.config.budgets.suspect_ms),
        audit=part(broker.audit, None),
        health=read(broker.store),
        leaders=leaders(broker.store),
        origins=figures,
        damaged=damaged,
        list_age_ms=None if isinf(list_age_seconds) else round(1000 * list_age_seconds),
    )


def _slots(workers: list[WorkerSeen], suspect_ms: int) -> Counter[str]:
    found: Counter[str] = Counter()
    for worker in workers:
        if worker.silent_ms <= suspect_ms:
            found[worker.engine] += worker.slots
    return found
