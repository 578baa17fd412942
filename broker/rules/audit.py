"""What the books of an origin say against each other: records, indexes and log. Pure: it judges what was read.

The log has the word where it speaks of a job; below its floor the record is the truth. A comparison is only as true as
what it is given: whoever reads while others write takes nothing for a finding that the log spoke of meanwhile.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from broker.rules.record import Record

#: What is wrong. `ghost`: listed, though the log says it is gone, or nothing explains it; or known to RQ, though its
#: attempt was given up. `missing`: the log bears a record, but there is none, or no index lists it. `drift`: record and
#: log differ, or record and score. `stuck`: nothing has moved it for far longer than the budgets allow.
GHOST, MISSING, DRIFT, STUCK = "ghost", "missing", "drift", "stuck"
KINDS = (GHOST, MISSING, DRIFT, STUCK)

#: What mends it. `unlist`: there is no record, so no index may have it. `relist`: the record is right, the indexes follow
#: it. `restore`: write the record as the log's newest entry tells it, then as `relist`. `remove`: the record must go,
#: and its watchers be told. `discard`: RQ is to forget an attempt.
UNLIST, RELIST, RESTORE, REMOVE, DISCARD = "unlist", "relist", "restore", "remove", "discard"
#: Nothing that an auditor may write would mend it: somebody else has to move.
NOTHING = ""


@dataclass(frozen=True, slots=True)
class Word:
    """The log's newest word on a job: the entry's rev, and the record that it bears; None where it says gone."""

    rev: str
    record: Record | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong, with all that is needed to mend it in one step, if it still is so then."""

    kind: str  #: one of KINDS
    origin: str  #: empty where it is about the fleet
    job: str  #: `engine/run/id`, encoded; empty where it is about a key of the origin or of the fleet
    text: str  #: what is wrong, in one line, for people
    what: str  #: which repair mends it; empty: none of ours
    rev: str = (
        ""  #: up to where the log had been read when this was still so: it may have spoken since
    )
    seen: str = ""  #: the record's rev as it was read; empty where there was no record, or none that can be read
    damaged: bool = (
        False  #: there is something at the record's key, but it cannot be read as a record
    )
    word: Word | None = (
        None  #: the log's newest word on it; None where it has none at or above its floor
    )

    def to_json(self) -> dict[str, Any]:
        """As every face shows it."""
        shown = asdict(self)
        del shown["word"]
        return shown
