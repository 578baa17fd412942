"""What happened to one job: its own entries of its origin's log, since its beginning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from broker.errors import NotFound
from broker.jobs.outcome import entry_json
from broker.rules.entry import Entry
from broker.rules.key import Key
from broker.store.log import CHUNK_MAX, Log
from broker.store.refusal import Refusal

if TYPE_CHECKING:
    from broker.jobs.catalog import Catalog

#: How many of a job's entries are shown, the newest.
ENTRIES_MAX = 200
#: How many entries of the log are looked at for them.
LOOK_MAX = 10_000

#: Rules by which a job begins.
_BEGINNINGS = frozenset({"submitted", "first_sighting", "newer_generation"})


@dataclass(frozen=True, slots=True)
class Timeline:
    """The job's newest entries, oldest first, and what was refused. `whole`: from its beginning on."""

    key: Key
    entries: list[Entry]
    refusals: list[Refusal]
    whole: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "entries": [entry_json(self.key.origin, entry) for entry in self.entries],
            "refused": [refusal.to_json() for refusal in self.refusals],
            "whole": self.whole,
        }


def timeline(catalog: Catalog, key: Key) -> Timeline:
    """Read the log back from the job's newest entry; raises NotFound where nothing at all is known of it.

    Bounded: it looks at 10,000 entries, and gives 200 at most.
    """
    record = catalog.view.get(key)
    refusals = catalog.view.refusals(key)
    entries, whole = _read_back(Log(catalog.store, key.origin), key, record.rev if record else "+")
    if record is None and not entries and not refusals and not catalog.view.tombstone(key):
        raise NotFound(f"no job {key} is known, nor anything that happened to it")
    return Timeline(key, entries[::-1], refusals, whole)


def _read_back(log: Log, key: Key, until: str) -> tuple[list[Entry], bool]:
    found: list[Entry] = []
    for _ in range(LOOK_MAX // CHUNK_MAX):
        page = log.read_back_of((key.job, key.pair), until)
        for entry in page.entries:
            found.append(entry)
            if entry.rule in _BEGINNINGS:
                return found, True
            if len(found) == ENTRIES_MAX:
                return found, False
        if not page.is_full:
            break
        until = f"({page.rev}"
    return found, False
