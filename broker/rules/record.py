"""What is known of one job: the merge of its events.

A record is a value. Its fields are the fields of the Redis hash and, but for the four of `UNLOGGED`, of every log
entry: an entry carries the whole projection, so that the newest entry of a job alone gives its record back.
Numbers are integers, 0 where there is none; times are epoch milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from broker.rules.key import Key
from broker.rules.state import RUN, TERMINAL

SUBMITTED, REPORTED = "submitted", "reported"

#: A longer value would turn the record's hash from a listpack into a table: 1,409 bytes instead of about 400.
TEXT_BYTES_MAX = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One job as the merge left it."""

    kind: str
    state: str
    node: str = ""
    seq: int = 0
    created_at: int = 0
    started_at: int = 0
    completed_at: int = 0
    error: str = ""
    model: str = ""
    requester: str = ""
    desired: str = RUN
    rule: str = ""  #: the rule that the deciding event was applied by
    by: str = ""  #: who said it
    guessed_from: str = ""  #: the state that a guess replaced; empty where it is no guess
    guessed_at: int = 0
    attempt: int = 0  #: fencing token: +1 whenever an attempt is given up
    tries: int = 0  #: starts so far, which `attempts` limits
    deaths: int = 0  #: holders that died under it
    attempts: int = 0
    priority: int = 0
    timeout: int = 0  #: milliseconds a try may run; 0 = no limit
    at_most_once: int = 0
    due: int = 0  #: not to be placed before
    placed_at: int = 0
    holder: str = ""  #: nonce of the execution that runs the current attempt
    worker: str = ""
    reason: str = ""  #: why it failed, as one word: lost, poison, timeout, ...
    retry_of: str = ""
    digest: str = ""  #: of the payload: the same id with the same digest is the same job
    rev: str = ""  #: the log id of the deciding event
    submit_rev: str = ""  #: the log id of its submission: the answer to a repeated submit
    last_seen: int = 0
    sightings: int = 0

    @property
    def inferred(self) -> bool:
        """Whether the state is a sweep's guess."""
        return self.guessed_from != ""

    @property
    def ended(self) -> bool:
        """Whether the state is terminal by somebody's word: a guess still counts as live."""
        return self.state in TERMINAL and not self.inferred

    @property
    def believed(self) -> str:
        """The state by which it is listed and counted: for a guess the one that it replaced."""
        return self.guessed_from or self.state

    @property
    def ready(self) -> bool:
        """Whether it waits for a place: it is then in exactly one of `ready` and `delayed`."""
        return (
            self.kind == SUBMITTED
            and self.believed == self.state == "queued"
            and not self.node
            and self.desired == RUN
        )


FIELDS = tuple(field.name for field in fields(Record))
INTEGERS = frozenset(field.name for field in fields(Record) if field.type == "int")
#: Outside projection and digest: the position in the log itself, and what moves without an entry.
UNLOGGED = ("rev", "submit_rev", "last_seen", "sightings")
PROJECTION = tuple(name for name in FIELDS if name not in UNLOGGED)

_SHOWN_FIRST = (
    "node", "seq", "attempt", "tries", "rev", "created_at", "started_at", "completed_at",
    "last_seen", "error", "model",
)  # fmt: skip
_TIMES = ("created_at", "started_at", "completed_at", "guessed_at", "due", "placed_at", "last_seen")


def from_fields(found: Mapping[str, str]) -> Record:
    """Build a record of a hash's or a log entry's fields, as text; a missing field is empty."""
    values: dict[str, Any] = {}
    for name, text in found.items():
        if name in INTEGERS:
            values[name] = int(text) if text else 0
        elif name in _NAMES:
            values[name] = text
    if not values.get("desired"):
        values["desired"] = RUN
    return Record(**values)


_NAMES = frozenset(FIELDS)


def projection(record: Record) -> dict[str, str]:
    """The fields that a log entry carries, as text, in the fixed order."""
    return {name: str(getattr(record, name)) for name in PROJECTION}


def to_json(key: Key, record: Record) -> dict[str, Any]:
    """The record as every face shows it: an unset time or error is None."""
    shown: dict[str, Any] = {"key": str(key), "kind": record.kind}
    shown |= key._asdict()
    shown |= {"state": record.state, "inferred": record.inferred, "desired": record.desired}
    for name in _SHOWN_FIRST:
        shown[name] = getattr(record, name)
    for name in FIELDS:
        if name not in ("submit_rev", "digest"):
            shown.setdefault(name, getattr(record, name))
    for name in _TIMES:
        shown[name] = shown[name] or None
    shown["error"] = record.error or None
    shown["at_most_once"] = bool(record.at_most_once)
    return shown


def clip(text: str, bytes_max: int = TEXT_BYTES_MAX) -> str:
    """Cut a text to at most `bytes_max` bytes of UTF-8, at a character."""
    raw = text.encode(errors="replace")
    return text if len(raw) <= bytes_max else raw[:bytes_max].decode(errors="ignore")


def may_be_cut(text: str, bytes_max: int = TEXT_BYTES_MAX) -> bool:
    """Whether `clip` may have taken something off it: then it is full but for what one more character needs."""
    return len(text.encode(errors="replace")) > bytes_max - 4
