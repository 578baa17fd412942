"""What a decision reads beside the record, and what it answers."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from broker.rules.bounds import WEEK_MS
from broker.rules.record import Record

APPLIED, DUPLICATE, REFUSED = "applied", "duplicate", "refused"


class Answer(NamedTuple):
    """What the sender of an event is told.

    `rev` is the deciding entry's, empty where nothing was written. The store adds a fourth outcome that the rules do
    not know: `error`, with the reason as its rule, where a key of that one job holds what it should not.
    """

    outcome: str
    rule: str
    rev: str = ""


class Scene(NamedTuple):
    """What an origin's books hold about an event beside its record."""

    now: int  #: Redis's time, epoch milliseconds
    exact: int = 0  #: generation of the identity's tombstone, 0 = none
    pair: int = 0  #: generation of the (origin, id) pair's tombstone
    horizon: int = 0  #: highest generation of a tombstone that was evicted
    seen: bool = False  #: whether the report's shape mark is among the answers
    term: int = 0  #: the highest term known of the event's role
    silence_ms_max: int = WEEK_MS  #: how long a reported job stays without a sighting

    def buried(self, created_at: int) -> bool:
        """Whether a tombstone of the identity or of its pair covers this generation."""
        return 0 < created_at <= max(self.exact, self.pair)

    @property
    def tombstone(self) -> bool:
        """Whether any tombstone stands, of whatever generation."""
        return max(self.exact, self.pair) > 0


class Step(NamedTuple):
    """One log entry of a decision; `record` is None where the job is gone after it."""

    rule: str
    record: Record | None

    def named(self) -> Step:
        """The step with its rule kept on the record, for `why`."""
        return self._replace(record=self.record and replace(self.record, rule=self.rule))


class Verdict(NamedTuple):
    """The answer: an outcome, the rule that gave it, the record after it.

    `steps` are the log entries of an applied event, in order; `generation` is that of the tombstone which it
    leaves, 0 where it leaves none.
    """

    outcome: str
    rule: str
    record: Record | None
    steps: tuple[Step, ...] = ()
    generation: int = 0

    def named(self) -> Verdict:
        """The verdict with each step's rule kept on its record."""
        steps = tuple(step.named() for step in self.steps)
        return self._replace(record=steps[-1].record if steps else self.record, steps=steps)


def applied(rule: str, record: Record) -> Verdict:
    """The event changed the record."""
    return Verdict(APPLIED, rule, record, (Step(rule, record),))


def refused(rule: str, record: Record | None) -> Verdict:
    """A rule is against it; a refused event is handled all the same."""
    return Verdict(REFUSED, rule, record)


def duplicate(rule: str, record: Record | None) -> Verdict:
    """It says nothing new."""
    return Verdict(DUPLICATE, rule, record)


def buried(rule: str, generation: int, trail: tuple[Step, ...] = ()) -> Verdict:
    """The record goes, or never comes: a tombstone stands in its place."""
    return Verdict(APPLIED, rule, None, (*trail, Step(rule, None)), generation)
