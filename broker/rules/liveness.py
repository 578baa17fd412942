"""Who is in doubt: derived by readers from the newest beats, never stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from broker.errors import Invalid
from broker.rules.record import REPORTED, Record
from broker.rules.state import RUNNING


@dataclass(frozen=True, slots=True)
class Budgets:
    """How long silence may last, in milliseconds."""

    beat_ms: int = 1_000  #: a worker says that it lives
    suspect_ms: int = 3_000  #: silent for so long: shown as `?`
    guess_ms: int = 5_000  #: silent for so long: a sweep's guess
    grace_ms: int = 10_000  #: from the guess to the requeue
    start_ms: int = 15_000  #: from the placing to the start
    stop_ms: int = 5_000  #: from a cancel or timeout to the kill
    stale_ms: int = 300_000  #: a reported job nobody speaks of
    brake_ms: int = 60_000  #: how long a fleet-wide silence stays unjudged
    graces: Mapping[str, int] = field(default_factory=dict)  #: engine -> its own `grace_ms`

    def __post_init__(self) -> None:
        told = {field.name: getattr(self, field.name) for field in fields(self)}
        told |= {f"graces.{engine}": ms for engine, ms in told.pop("graces").items()}
        for name, ms in told.items():
            if ms < 0:
                raise Invalid(f"{name} is a number of at least 0")

    def grace_of(self, engine: str) -> int:
        """How long a guess stands before the job is requeued or lost."""
        return self.graces.get(engine, self.grace_ms)


def suspect(record: Record, beaten_at: int, now: int, budgets: Budgets) -> bool:
    """Whether a running job is shown as `running?`.

    `beaten_at` is the last beat of its worker, 0 where none is known; a reported job is judged by its last sighting.
    """
    if record.state != RUNNING:
        return False
    if record.kind == REPORTED:
        return now - record.last_seen > budgets.stale_ms
    return now - max(beaten_at, record.last_seen) > budgets.suspect_ms
