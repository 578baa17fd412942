"""What a user wishes for many jobs at once: a batch a call, the answers in the order of the wishes.

Each job is decided by itself, by the same rules as one alone: what changed since somebody listed it is answered so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from broker.jobs.outcome import Outcome, Retried
from broker.jobs.submission import NewIds, Options, make_submit, new_event_id
from broker.rules.event import Intent, Remove, Submit
from broker.rules.key import Key
from broker.rules.record import REPORTED, Record
from broker.rules.verdict import REFUSED
from broker.store.store import Store
from broker.store.view import EVENTS_MAX, View

#: Why a job cannot be handed in again, by the rule.
REFUSALS = {
    "unknown": "no job {} is known",
    "not_ours": "{} is reported: its origin runs it",
    "not_terminal": "{} has not ended: it is {}",
    "expired": "the payload of {} is gone",
}

_new_ids = NewIds()


def new_id(now: int) -> str:
    """An id for a job of this moment (epoch ms), that no other call of this process gives."""
    return _new_ids.next(now)


def intend(keys: Sequence[Key], *, force: bool) -> list[Intent]:
    """A wish for each job that it ends."""
    return [Intent(key=key, force=force, event_id=new_event_id(), by="user") for key in keys]


def removals(keys: Sequence[Key], *, force: bool) -> list[Remove]:
    """A removal of each job."""
    return [Remove(key=key, force=force, event_id=new_event_id(), by="user") for key in keys]


def say(view: View, events: Sequence[Intent | Remove | Submit]) -> list[Outcome]:
    """The outcome of each event, in order; those of one origin go together. Raises Unavailable, Damaged."""
    places: dict[str, list[int]] = {}
    for place, event in enumerate(events):
        places.setdefault(event.key.origin, []).append(place)
    told: dict[int, Outcome] = {}
    for at in places.values():
        answers = view.apply([events[place] for place in at])
        told |= {
            place: Outcome.of(events[place].key, answer)
            for place, answer in zip(at, answers, strict=True)
        }
    return [told[place] for place in range(len(events))]


def retry(store: Store, view: View, keys: Sequence[Key]) -> Iterator[Retried]:
    """Hand each ended job in anew, with its payload and options; a batch is read and written at a time."""
    for at in range(0, len(keys), EVENTS_MAX):
        yield from _retry(view, keys[at : at + EVENTS_MAX], store.clock.now())


def _retry(view: View, keys: Sequence[Key], now: int) -> list[Retried]:
    found = list(zip(keys, view.get_many(keys), view.specs(keys), strict=True))
    refused = {key: _refusal(record, spec) for key, record, spec in found}
    events = {
        key: _anew(key, record, spec[0], now)
        for key, record, spec in found
        if record is not None and spec and not refused[key]
    }
    told = dict(zip(events, say(view, list(events.values())), strict=True))
    return [
        Retried(str(key), told[key].outcome, told[key].rule, told[key].rev, told[key].key)
        if key in told
        else Retried(str(key), REFUSED, refused[key])
        for key in keys
    ]


def _refusal(record: Record | None, spec: tuple[Any] | None) -> str:
    if record is None:
        return "unknown"
    if record.kind == REPORTED:
        return "not_ours"
    if not record.ended:
        return "not_terminal"
    return "" if spec else "expired"


def _anew(key: Key, record: Record, payload: Any, now: int) -> Submit:
    options = Options(
        priority=record.priority,
        attempts=record.attempts,
        timeout=record.timeout / 1000 or None,
        at_most_once=bool(record.at_most_once),
        model=record.model,
        requester=record.requester,
    )
    made = key._replace(id=new_id(now))
    return make_submit(made, payload, options, now=now, by="user", retry_of=str(key))
