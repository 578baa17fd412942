"""Events: one statement about one job, each a frozen value with a closed set of fields.

The order of a class's fields after the key is the order in which `merge.lua` reads them (its own table is checked
against this one). Numbers are integers of at most 15 digits, times epoch milliseconds, 0 = none.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

from broker.rules.key import Key, encode

#: The largest number that the rules take: `^[0-9]{1,15}$`, exact in a double.
NUMBER_MAX = 10**15 - 1
#: How far ahead of Redis's clock a created_at or removed_at may be, in milliseconds.
AHEAD_MS_MAX = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """An origin's word on a job that somebody else runs."""

    kind: ClassVar[str] = "report"
    key: Key
    created_at: int
    state: str
    node: str = ""
    seq: int = 0
    started_at: int = 0
    completed_at: int = 0
    error: str = ""
    model: str = ""
    requester: str = ""
    resync: bool = False
    stale_after: int = 0  #: ms that the origin may be silent about a live job; 0 = not said
    extras: str = ""  #: unknown fields, opaque JSON
    full: str = ""  #: the whole error, opaque JSON, where `error` was cut
    event_id: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remove:
    """The removal of exactly one identity."""

    kind: ClassVar[str] = "remove"
    key: Key
    removed_at: int = 0
    force: bool = False
    rev: str = ""  #: only the record that was read at this rev; empty: whatever stands
    event_id: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovePair:
    """The removal of every engine and run that shares (origin, id), seen or not yet seen."""

    kind: ClassVar[str] = "remove_pair"
    origin: str
    id: str
    removed_at: int = 0
    force: bool = False
    event_id: str = ""
    by: str = ""

    @property
    def pair(self) -> str:
        """The encoded id: how tombstones and log entries name the pair."""
        return encode(self.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit:
    """A new job for our own workers."""

    kind: ClassVar[str] = "submit"
    key: Key
    created_at: int
    digest: str
    attempts: int = 3
    priority: int = 0
    timeout: int = 0
    at_most_once: bool = False
    due: int = 0
    model: str = ""
    requester: str = ""
    retry_of: str = ""
    spec: str = ""  #: payload and what the rules need not know, opaque JSON
    event_id: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The dispatcher hands a ready job to a node."""

    kind: ClassVar[str] = "place"
    role: ClassVar[str] = "dispatcher"
    key: Key
    node: str
    rev: str
    term: int
    event_id: str = ""
    by: str = "dispatcher"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A worker begins the attempt that was placed on its node."""

    kind: ClassVar[str] = "start"
    key: Key
    created_at: int
    attempt: int
    node: str
    holder: str
    worker: str
    event_id: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassert:
    """The holder says that it still runs, against a guess."""

    kind: ClassVar[str] = "reassert"
    key: Key
    created_at: int
    attempt: int
    holder: str
    event_id: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The holder's (or its parent's) word on how the attempt ended."""

    kind: ClassVar[str] = "finish"
    key: Key
    created_at: int
    attempt: int
    holder: str
    state: str
    error: str = ""
    reason: str = ""
    result: str = ""  #: result or full error, opaque JSON
    retryable: bool = False
    died: bool = False  #: the process ended without a word
    due: int = 0  #: when a requeued attempt may be placed
    event_id: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unplace:
    """The sweeper takes a placed attempt back that provably never started."""

    kind: ClassVar[str] = "unplace"
    role: ClassVar[str] = "sweeper"
    key: Key
    rev: str
    term: int
    event_id: str = ""
    by: str = "sweeper"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """The sweeper infers that a silent job failed."""

    kind: ClassVar[str] = "guess"
    role: ClassVar[str] = "sweeper"
    key: Key
    rev: str
    last_seen: int
    term: int
    error: str = ""
    event_id: str = ""
    by: str = "sweeper"


@dataclass(frozen=True, slots=True, kw_only=True)
class Requeue:
    """The sweeper gives up a guessed attempt whose grace is over, and offers the job anew."""

    kind: ClassVar[str] = "requeue"
    role: ClassVar[str] = "sweeper"
    key: Key
    rev: str
    term: int
    due: int = 0
    event_id: str = ""
    by: str = "sweeper"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """The sweeper ends a guessed job that may not run again."""

    kind: ClassVar[str] = "lost"
    role: ClassVar[str] = "sweeper"
    key: Key
    rev: str
    term: int
    event_id: str = ""
    by: str = "sweeper"


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """The user's wish that a job end."""

    kind: ClassVar[str] = "intent"
    key: Key
    desired: str = "cancel"
    force: bool = False
    event_id: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prune:
    """The janitor lets an old record go."""

    kind: ClassVar[str] = "prune"
    role: ClassVar[str] = "janitor"
    key: Key
    rev: str
    last_seen: int
    term: int
    event_id: str = ""
    by: str = "janitor"


Attempted = (
    Submit | Place | Start | Reassert | Finish | Unplace | Guess | Requeue | Lost | Intent | Prune
)
KeyedEvent = Report | Remove | Attempted
Event = KeyedEvent | RemovePair

EVENTS: dict[str, type[Event]] = {
    cls.kind: cls
    for cls in (
        Report, Remove, RemovePair, Submit, Place, Start, Reassert, Finish,
        Unplace, Guess, Requeue, Lost, Intent, Prune,
    )
}  # fmt: skip


def origin_of(event: Event) -> str:
    """The origin whose log the event goes to."""
    return event.origin if isinstance(event, RemovePair) else event.key.origin


#: What a script is told of an event, in this order: every field but those that name the job.
ARGUMENTS = {
    kind: tuple(field.name for field in fields(cls) if field.name not in ("key", "origin", "id"))
    for kind, cls in EVENTS.items()
}


def arguments(event: Event) -> list[str]:
    """The event's fields as a script reads them: decimal text, `1` or empty for a flag."""
    return [_text(getattr(event, name)) for name in ARGUMENTS[event.kind]]


def _text(value: str | int | bool) -> str:
    if value is True:
        return "1"
    return "" if value is False else str(value)


def mark(event: KeyedEvent | RemovePair) -> str:
    """What an explicit event_id leaves among the answers; empty where the event has none.

    Bound to identity and generation, so that two jobs' equal ids never answer for each other.
    """
    if not event.event_id:
        return ""
    name = event.pair if isinstance(event, RemovePair) else event.key.job
    generation = getattr(event, "created_at", getattr(event, "removed_at", 0))
    return f"{name} {generation} #{event.event_id}"


def shape_mark(report: Report) -> str:
    """What an unnumbered report leaves among the answers: its identity, generation, state and node."""
    return f"{report.key.job} {report.created_at} {report.state} {report.node}"
