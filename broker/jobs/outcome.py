"""What the client's calls give back: plain values, each with its JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from broker.rules.entry import Entry
from broker.rules.key import Key
from broker.rules.record import Record, to_json
from broker.rules.verdict import APPLIED, DUPLICATE, Answer


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer to one event: `applied`, `duplicate`, `refused` or `error`, and the rule that gave it."""

    key: str
    outcome: str
    rule: str
    rev: str = ""

    @staticmethod
    def of(key: Key | str, answer: Answer) -> Outcome:
        """The answer, with the name of the job that it is about."""
        return Outcome(str(key), *answer)

    @property
    def applied(self) -> bool:
        """Whether the event changed something now."""
        return self.outcome == APPLIED

    @property
    def ok(self) -> bool:
        """Whether what the event says holds: applied now, or before (a re-sent one finds its own answer)."""
        return self.outcome in (APPLIED, DUPLICATE)

    def to_json(self) -> dict[str, str]:
        return {"key": self.key, "outcome": self.outcome, "rule": self.rule, "rev": self.rev}


@dataclass(frozen=True, slots=True)
class Retried(Outcome):
    """What became of the wish to hand the job `key` in again; `new_key` names the job made of it, if one was."""

    new_key: str = ""

    def to_json(self) -> dict[str, str]:
        # Named in full: a class with slots is made anew, which `super()` alone would not know of.
        return Outcome.to_json(self) | {"new_key": self.new_key}


@dataclass(frozen=True, slots=True)
class Listed:
    """One line of a job list. `suspect` marks a running job whose holder misses its beats: `running?`."""

    key: Key
    record: Record
    suspect: bool = False

    def to_json(self) -> dict[str, Any]:
        return to_json(self.key, self.record) | {"suspect": self.suspect}


def entry_json(origin: str, entry: Entry) -> dict[str, Any]:
    """An entry as every face shows it: `record` is null where the job is gone, up to `generation`.

    The key of a removal of every engine and run is `origin/id`, which is no job's.
    """
    key = entry.key(origin)
    name = f"{origin}/{entry.job}" if entry.names_pair else str(key)
    return {
        "rev": entry.rev,
        "at": int(entry.rev.split("-")[0]),
        "event": entry.event,
        "rule": entry.rule,
        "by": entry.by,
        "key": name,
        "generation": entry.generation or None,
        "record": None if entry.record is None else to_json(key, entry.record),
    }
