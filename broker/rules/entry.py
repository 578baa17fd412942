"""A log entry: what was accepted, and the record's whole projection after it.

Every entry has the same flat fields in the same order, removals included, so that `XRANGE` reads as a table and the
stream packs well. An entry whose rule is `removed` or `pruned` takes its job away; its `created_at` is then the
generation up to which the job is gone, and a job text without slashes names an (origin, id) pair.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from broker.rules.key import Key, decode
from broker.rules.record import PROJECTION, Record, from_fields

#: The fields of every entry, in order.
ENTRY_FIELDS = ("event", "job", *PROJECTION)

#: Rules after which the job is gone.
GONE_RULES = frozenset({"removed", "pruned"})

#: Events by which the origin or the holder itself speaks: once applied, each moves last_seen.
SIGHTINGS = frozenset({"report", "submit", "start", "reassert", "finish"})


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of an origin's log. `record` is None where the job is gone, up to `generation`."""

    rev: str
    event: str
    job: str
    rule: str
    by: str
    generation: int
    record: Record | None

    @property
    def names_pair(self) -> bool:
        """Whether it takes away every job of an (origin, id) pair."""
        return "/" not in self.job

    def key(self, origin: str) -> Key:
        """The job's identity; for a pair, engine and run are empty."""
        if self.names_pair:
            return Key(origin, "", "", decode(self.job))
        return Key.of_job(origin, self.job)

    def takes(self, key: Key, record: Record) -> bool:
        """Whether this removal takes away that record: for readers that hold it."""
        named = key.pair == self.job if self.names_pair else key.job == self.job
        return self.record is None and named and record.created_at <= self.generation


def dated(rev: str, event: str) -> dict[str, str]:
    """The fields outside the projection that the position in the log tells: the id begins with Redis's time."""
    told = {"rev": rev}
    if event in SIGHTINGS:
        told["last_seen"] = rev.partition("-")[0]
    if event == "submit":
        told["submit_rev"] = rev
    return told


def read_entry(rev: str, found: Mapping[str, str]) -> Entry:
    """Build an entry of a stream entry's fields, as text."""
    gone = found["rule"] in GONE_RULES
    record = None if gone else from_fields({**found, **dated(rev, found["event"])})
    generation = int(found["created_at"] or 0) if gone else 0
    return Entry(rev, found["event"], found["job"], found["rule"], found["by"], generation, record)
