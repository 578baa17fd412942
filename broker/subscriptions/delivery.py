"""Delivery: one accepted event, as the handler of a subscription is given it."""

from __future__ import annotations

from dataclasses import dataclass

from broker.rules.key import Key
from broker.rules.record import Record
from broker.store.decode import read_logged
from broker.store.log import Raw


@dataclass(frozen=True, slots=True)
class Delivery:
    """What happened to one job, and what is known of it after that.

    A removal of a whole (origin, id) pair names no job: `key` is None, and `id` goes with every engine and run.
    """

    origin: str
    rev: str  #: the event's place in its origin's log: later ones are higher
    key: Key | None
    id: str
    record: Record | None  #: the job after the event; None where it is gone
    event: str  #: what was said: report, submit, start, finish, remove, ...
    rule: str  #: the rule by which it was accepted
    by: str  #: who said it
    generation: int  #: of a removal: jobs created up to then (epoch ms) are gone; else 0
    #: The fence: who does something elsewhere gives it along, and what comes with a lower one than was seen there of
    #: this origin comes from a former owner.
    term: int
    tries: int  #: which try this is, from 1
    replayed: bool  #: whether it was parked, and is told now, out of its order


def read_delivery(
    origin: str, raw: Raw, *, term: int, tries: int, replayed: bool = False
) -> Delivery | str:
    """What the handler is given of a log's entry; why not, where the entry cannot be read."""
    try:
        entry = read_logged(*raw)
        key = entry.key(origin)
    except (KeyError, TypeError, ValueError) as wrong:
        return f"this is no entry of ours: {wrong!r}"
    return Delivery(
        origin=origin,
        rev=entry.rev,
        key=None if entry.names_pair else key,
        id=key.id,
        record=entry.record,
        event=entry.event,
        rule=entry.rule,
        by=entry.by,
        generation=entry.generation,
        term=term,
        tries=tries,
        replayed=replayed,
    )
