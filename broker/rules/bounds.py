"""How much is kept: each bound of what the broker holds in Redis, beside those that no setting moves.

The defaults are what the documentation promises. Tests lower them; an operator may move them (`[broker.bounds]`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from broker.errors import Invalid

#: Seven days, in milliseconds.
WEEK_MS = 604_800_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """Counts, and ages in milliseconds: of each origin, unless said otherwise."""

    log_max: int = 100_000  #: entries of the log
    log_ms_max: int = WEEK_MS  #: and their age
    log_hard_max: int = 1_000_000  #: entries, even where a live group has not read them
    done_max: int = 10_000  #: records of ended jobs
    done_ms_max: int = WEEK_MS  #: and the time since their end, by Redis's own clock
    silence_ms_max: int = WEEK_MS  #: of a live reported job: since its last sighting
    tombstones_max: int = 100_000
    answers_max: int = 10_000  #: answers to events that made `seen` turn
    answers_ms_min: int = 120_000  #: how old the last turn must be
    parked_max: int = 1_000  #: entries of one group
    group_ms_max: int = WEEK_MS  #: of a group, fleet-wide: since a member last looked
    announcements_max: int = 10_000  #: of one node's trust store

    def __post_init__(self) -> None:
        for field in fields(self):
            least = 0 if field.name == "answers_ms_min" else 1
            if getattr(self, field.name) < least:
                raise Invalid(f"{field.name} is a number of at least {least}")
        if self.log_hard_max < self.log_max:
            raise Invalid("log_hard_max is at least log_max")
