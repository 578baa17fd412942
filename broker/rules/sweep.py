"""Whom a sweep judges, and how: silence has to last, and then one event says what is inferred from it.

Pure. A job is judged by what was just read of it, and each event names that state, so that the merge refuses it where
anything moved since. Time alone never starts a second copy: that takes a guess, and no beat since.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from broker.rules.attempt import may_run_again
from broker.rules.event import NUMBER_MAX, Guess, Lost, Requeue, Unplace
from broker.rules.key import Key
from broker.rules.liveness import Budgets
from broker.rules.record import REPORTED, SUBMITTED, Record, clip

#: The operator's words on a node: nothing new there, and what is placed goes elsewhere; or it is gone for good.
DRAINED, DEAD = "drained", "dead"
#: When a job is to be judged that nothing but a change could condemn.
NEVER = NUMBER_MAX
#: So many workers make a fleet: of fewer, most may well die in one moment.
FLEET_MIN = 4

Judgement = Guess | Requeue | Lost | Unplace


class Standing(NamedTuple):
    """How a node stands: nothing here moves while it beats."""

    silent_since: int = (
        0  #: its last beat, epoch ms, once the silence is long enough for a guess; 0: it beats
    )
    has_left: bool = (
        False  #: its workers ended in good order: the silence says nothing about others there
    )
    flag: str = ""  #: the operator's word

    @classmethod
    def of(
        cls, beaten_at: int, silent_ms: int, has_workers: bool, flag: str, budgets: Budgets
    ) -> Standing:
        """By its last beat (0 = none is known) and by whether any worker is listed that did not say farewell."""
        is_silent = beaten_at > 0 and silent_ms >= budgets.guess_ms
        return cls(beaten_at if is_silent else 0, is_silent and not has_workers, flag)

    @property
    def is_offline(self) -> bool:
        """Whether whatever runs there counts as gone."""
        return self.flag == DEAD or (self.silent_since > 0 and not self.has_left)


BEATS = Standing()


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What surrounds the jobs at one moment. `now` is Redis's time, epoch milliseconds."""

    now: int
    term: int
    budgets: Budgets = field(default_factory=Budgets)
    nodes: Mapping[str, Standing] = field(default_factory=dict)
    #: The origins that promised to speak of their jobs -> how long they may be silent, ms; 0: the budget.
    stale: Mapping[str, int] = field(default_factory=dict)

    def node(self, name: str) -> Standing:
        """How a node stands; one that is not known is not known to be silent."""
        return self.nodes.get(name, BEATS)


def is_watched(record: Record) -> bool:
    """Whether a sweep may ever have a word on the job as it is."""
    if record.ended:
        return False
    return not record.inferred if record.kind == REPORTED else bool(record.node)


def due_at(key: Key, record: Record, around: Around) -> int:
    """From when on a watched job is judged, epoch ms, unless something moves before; NEVER: by no time."""
    if record.kind == REPORTED:
        return min(_offline_due(key, record, around), _stale_due(key, record, around))
    flag, budgets = around.node(record.node).flag, around.budgets
    if not record.holder:
        if flag or around.node(record.node).silent_since:
            return record.placed_at
        return record.placed_at + budgets.start_ms
    if _is_unheard(record):
        return record.guessed_at + (0 if flag == DEAD else budgets.grace_of(key.engine))
    return record.last_seen + _patience(flag, budgets)


def judge(key: Key, record: Record, around: Around) -> Judgement | None:
    """What a sweep says of a job by what was just read of it: None while it must wait."""
    if not is_watched(record) or around.now < due_at(key, record, around):
        return None
    seen = f"{record.rev}-{record.last_seen}-{around.term}"
    if record.kind == SUBMITTED and not record.holder:
        return Unplace(key=key, rev=record.rev, term=around.term, event_id=f"unplace-{seen}")
    if record.kind == SUBMITTED and _is_unheard(record):
        if may_run_again(record):
            return Requeue(key=key, rev=record.rev, term=around.term, event_id=f"requeue-{seen}")
        return Lost(key=key, rev=record.rev, term=around.term, event_id=f"lost-{seen}")
    return Guess(
        key=key,
        rev=record.rev,
        last_seen=record.last_seen,
        term=around.term,
        error=clip(_what_went(key, record, around)),
        event_id=f"guess-{seen}",
    )


def in_doubt(silences: Iterable[int], budgets: Budgets) -> bool:
    """Whether nobody may be judged: most of at least four workers fell silent together.

    `silences` are the milliseconds since each worker's last beat. Together means within one guess budget: workers that
    were killed one after another, and replaced, never add up to a fleet. After the brake's time they no longer count.
    """
    counted = [ms for ms in silences if ms < budgets.brake_ms + budgets.guess_ms]
    late = sorted(ms for ms in counted if ms > budgets.suspect_ms)
    together = begin = 0
    for at, silence in enumerate(late):
        while silence - late[begin] > budgets.guess_ms:
            begin += 1
        together = max(together, at - begin + 1)
    fleet = together + len(counted) - len(late)
    return fleet >= FLEET_MIN and together * 2 > fleet


def _is_unheard(record: Record) -> bool:
    """Whether a guess stands, and nothing was heard of the holder since: a beat outlives it."""
    return record.inferred and record.last_seen <= record.guessed_at


def _patience(flag: str, budgets: Budgets) -> int:
    """How long the silence has to last: the operator's word shortens the waiting, and never replaces a beat."""
    return budgets.suspect_ms if flag == DEAD else budgets.guess_ms


def _offline_due(key: Key, record: Record, around: Around) -> int:
    """By its origin's or its node's silence."""
    due = NEVER
    for name in _offline(key, record, around):
        node, patience = around.node(name), _patience(around.node(name).flag, around.budgets)
        # Who speaks of the job though its node's workers are gone lives on without them.
        if node.flag != DEAD and record.last_seen > node.silent_since + around.budgets.guess_ms:
            patience = max(patience, around.budgets.stale_ms)
        due = min(due, record.last_seen + patience)
    return due


def _offline(key: Key, record: Record, around: Around) -> list[str]:
    return [name for name in (record.node, key.origin) if name and around.node(name).is_offline]


def _stale_due(key: Key, record: Record, around: Around) -> int:
    """By its origin's silence about it, where the origin promised to speak."""
    stale = around.stale.get(key.origin)
    return NEVER if stale is None else record.last_seen + (stale or around.budgets.stale_ms)


def _what_went(key: Key, record: Record, around: Around) -> str:
    if record.kind == SUBMITTED:
        return f"node {record.node} went offline"
    if around.now >= _offline_due(key, record, around):
        return f"node {_offline(key, record, around)[0]} went offline"
    return "stopped reporting"
