"""What the books of an origin say against each other: records, indexes and log. Pure: it judges what was read.

The log has the word where it speaks of a job; below its floor the record is the truth. A comparison is only as true as
what it is given: whoever reads while others write takes nothing for a finding that the log spoke of meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from broker.rules.index import live_score, ready_score
from broker.rules.liveness import Budgets
from broker.rules.record import PROJECTION, SUBMITTED, Record
from broker.rules.replay import outlives_pair, rev_order
from broker.rules.state import RUNNING
from broker.rules.told import Word

#: What is wrong. `ghost`: listed, though the log says it is gone, or nothing explains it. `missing`: the log bears a
#: record, but there is none, or no index lists it. `drift`: record and log differ, or record and index, or RQ knows an
#: attempt that is over. `stuck`: nothing has moved it for far longer than the budgets allow.
GHOST, MISSING, DRIFT, STUCK = "ghost", "missing", "drift", "stuck"
KINDS = (GHOST, MISSING, DRIFT, STUCK)

#: What mends it. `unlist`: there is no record, so no index may have it. `relist`: the record is right, the indexes
#: follow it. `restore`: write the record as the log's newest entry tells it, then as `relist`. `remove`: the record
#: must go, and its watchers be told. `discard`: RQ is to forget an attempt. `set_aside`: a key of a wrong type makes
#: room. `enlist`: an origin is made known again. `forget`: let go of a worker of which only half is kept; if it lives,
#: its next beat brings it back.
UNLIST, RELIST, RESTORE, REMOVE = "unlist", "relist", "restore", "remove"
DISCARD, SET_ASIDE, ENLIST, FORGET = "discard", "set_aside", "enlist", "forget"
#: Nothing that an auditor may write would mend it: somebody else has to move.
NOTHING = ""

#: How much earlier than due a job may seem to be in `ready`, in milliseconds: whoever looks may have stood still while
#: it read the clock.
EARLY_MS_MAX = 60_000


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
    key: str = ""  #: the Redis key that it is about, where that is no job's record

    def to_json(self) -> dict[str, Any]:
        """As every face shows it."""
        shown = asdict(self)
        del shown["word"]
        return shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What was read of one job. A score is None where that index lacks the job."""

    record: Record | None
    damaged: bool = False  #: there is something at its key, but it cannot be read as a record
    listed: bool = True  #: whether `ids` has it
    live: float | None = None
    done: float | None = None
    ready: float | None = None
    delayed: float | None = None
    buried: float = 0  #: the generation up to which its identity was removed
    pair_buried: float = 0  #: the same for its (origin, id) pair

    @property
    def is_listed(self) -> bool:
        """Whether any index has it."""
        scores = (self.live, self.done, self.ready, self.delayed)
        return self.listed or any(score is not None for score in scores)


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """By what the jobs of one origin are judged."""

    origin: str
    begin: str  #: the rev of the oldest entry that the log was read from; empty where it had none
    now: int  #: Redis's time, epoch milliseconds
    budgets: Budgets


def judge(job: str, look: Look, word: Word | None, books: Books) -> Finding | None:
    """What is wrong with one job: the first thing that is, since its repair mends the others as well.

    `word` is the log's newest one on the job. The finding's `rev` is for the caller to say.
    """
    fault = _against_log(look, word, books) or _against_indexes(job, look, books)
    if fault is None:
        return None
    kind, what, text = fault
    return Finding(
        kind=kind,
        origin=books.origin,
        job=job,
        text=text,
        what=what,
        seen=look.record.rev if look.record else "",
        damaged=look.damaged,
        word=word,
    )


#: Kind, repair and text of a finding.
_Fault = tuple[str, str, str]


def _against_log(look: Look, word: Word | None, books: Books) -> _Fault | None:
    if look.record is None:
        return _without_record(look, word)
    record, told = look.record, word.record if word else None
    if word is None:
        return _unspoken(look, record, books)
    if rev_order(record.rev) > rev_order(word.rev):
        return DRIFT if told else GHOST, NOTHING, _without_entry(record)
    if told is None:
        return GHOST, REMOVE, f"it has a record, though entry {word.rev} says that it is gone"
    if differing := _differences(record, told, word.rev):
        return DRIFT, RESTORE, f"its record differs from entry {word.rev} in {differing}"
    return None


def _without_record(look: Look, word: Word | None) -> _Fault | None:
    """The log has the word, but what was buried stays so, whichever entry went astray."""
    told = word.record if word else None
    is_buried = told is not None and told.created_at <= _generation(look, told)
    if look.damaged:
        repair = RESTORE if told and not is_buried else UNLIST
        return DRIFT, repair, "what is stored of it cannot be read as a record"
    if word and told and not is_buried:
        return MISSING, RESTORE, f"entry {word.rev} of the log tells of it, but it has no record"
    if look.is_listed:
        why = f"entry {word.rev} says that it is gone" if word else "there is no record"
        why = "its tombstone stands" if is_buried else why
        return GHOST, UNLIST, f"it is listed in {_listings(look)}, though {why}"
    return None


def _unspoken(look: Look, record: Record, books: Books) -> _Fault | None:
    """The log has no word on it: its record is the truth, unless it was removed, or the log ought to have one."""
    if record.created_at <= _generation(look, record):
        return GHOST, REMOVE, "it has a record, though it was removed: its tombstone stands"
    if books.begin and rev_order(record.rev) >= rev_order(books.begin):
        return GHOST, NOTHING, _without_entry(record)
    return None


def _without_entry(record: Record) -> str:
    """The record may be the only evidence of what was accepted: it goes back to nothing older, and a person decides."""
    return f"the log has no entry {record.rev}, which its record goes back to"


def _generation(look: Look, record: Record) -> int:
    """Up to which created_at it is buried."""
    return int(max(look.buried, 0 if outlives_pair(record) else look.pair_buried))


def _differences(record: Record, told: Record, rev: str) -> str:
    names = [name for name in PROJECTION if getattr(record, name) != getattr(told, name)]
    if record.rev != rev:
        names.append("rev")
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def _listings(look: Look) -> str:
    names = ["ids"] if look.listed else []
    names += [
        name for name in ("live", "done", "ready", "delayed") if getattr(look, name) is not None
    ]
    return ", ".join(names)


def _against_indexes(job: str, look: Look, books: Books) -> _Fault | None:
    record = look.record
    if record is None:
        return None
    found = next(_unlisted(look, record, books), None) or next(
        _misplaced(look, record, books), None
    )
    if found:
        return found[0], RELIST, found[1]
    overdue = _overdue(job.partition("/")[0], record, books)
    return (STUCK, NOTHING, overdue) if overdue else None


def _unlisted(look: Look, record: Record, books: Books) -> Iterator[tuple[str, str]]:
    """Where it is not, or not as it should be, in the listings of all jobs."""
    if not look.listed:
        yield MISSING, "ids does not list it"
    # Where its end was not told, the time of ingest is as good as any.
    done = (record.completed_at or look.done or books.now) if record.ended else None
    scores = ("live", live_score(record), look.live), ("done", done, look.done)
    for name, expected, score in scores:
        if expected is not None and score is None:
            yield MISSING, f"{name} does not list it"
        elif expected is None and score is not None:
            yield DRIFT, f"{name} lists it, though it is {_state(record)}"
        elif expected != score:
            yield DRIFT, f"its score in {name} is {score:.0f}, not {expected:.0f}"


def _misplaced(look: Look, record: Record, books: Books) -> Iterator[tuple[str, str]]:
    """Where it is not as it should be in the listings of those that wait for a place."""
    ready, delayed = look.ready, look.delayed
    if not record.ready:
        for name, score in (("ready", ready), ("delayed", delayed)):
            if score is not None:
                yield DRIFT, f"{name} lists it, though it does not wait for a place"
    elif ready is None and delayed is None:
        yield STUCK, "it waits for a place, but neither ready nor delayed lists it"
    elif ready is not None and delayed is not None:
        yield DRIFT, "both ready and delayed list it"
    elif delayed is not None:
        if delayed != record.due:
            yield DRIFT, f"its score in delayed is {delayed:.0f}, not {record.due}"
        if late := _late(record.due, books.budgets.guess_ms, books):
            yield STUCK, f"it has been due for {late}, and is still delayed"
    elif ready is not None:
        expected = ready_score(record, record.due)
        if ready != expected:
            yield DRIFT, f"its score in ready is {ready:.0f}, not {expected}"
        if record.due > books.now + EARLY_MS_MAX:
            yield DRIFT, "ready lists it before it is due"


def _overdue(engine: str, record: Record, books: Books) -> str:
    """What has not been done with a submitted job for far too long; empty where nothing is late."""
    if record.kind != SUBMITTED or record.ended:
        return ""
    budgets = books.budgets
    if record.inferred:
        since = max(record.guessed_at, record.last_seen)
        late = _late(since, budgets.grace_of(engine) + budgets.guess_ms, books)
        return late and f"it has been a guess for {late}"
    if record.state == RUNNING:
        late = _late(record.last_seen, budgets.guess_ms, books)
        return late and f"its holder has been silent for {late}, and nobody judged it"
    if record.node:
        late = _late(record.placed_at, budgets.start_ms, books)
        return late and f"it was placed on {record.node} {late} ago, and not started"
    return ""


def _late(since: int, budget_ms: int, books: Books) -> str:
    """For how long somebody should have acted, where it is far too long; else empty.

    Whoever has to act may have begun anew, and all of them may hold back for the brake: only then it is late.
    """
    late_ms = books.now - since
    too_late = late_ms > 2 * budget_ms + books.budgets.brake_ms
    return f"{late_ms // 1000} s" if too_late else ""


def _state(record: Record) -> str:
    return f"{record.state}~" if record.inferred else record.state
