"""Which jobs somebody asks for: the four questions that every list takes, and what their follower is told."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from broker.rules.history import Step
from broker.rules.key import Key
from broker.rules.record import Record
from broker.rules.replay import Change


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Fits a job where each question that is asked fits; None asks nothing. A guess fits by the state it replaced.

    Two that ask the same are equal.
    """

    states: Collection[str] | None = None
    node: str | None = None
    engine: str | None = None
    origin: str | None = None

    def __post_init__(self) -> None:
        if self.states is not None:
            states = (self.states,) if isinstance(self.states, str) else self.states
            object.__setattr__(self, "states", frozenset(states))

    def fits(self, key: Key, record: Record | None) -> bool:
        """Whether a list shows this job; nothing fits where the job is gone."""
        return (
            record is not None
            and (self.states is None or record.believed in self.states)
            and (self.node is None or self.node == record.node)
            and (self.engine is None or self.engine == key.engine)
            and (self.origin is None or self.origin == key.origin)
        )

    def concerns(self, key: Key, before: Record | None, after: Record | None) -> bool:
        """Whether a follower must be told: also of a job that leaves the list, by its removal or its new state."""
        return self.fits(key, before) or self.fits(key, after)


def concerned(wanted: Filter | None, steps: Iterable[Step]) -> dict[Key, Change]:
    """What a follower of `wanted` (None: of all) must be told of these steps: the last change of each job, in order.

    Who is told one step of a job is told the newest of it, whether or not that concerns it by itself.
    """
    newest: dict[Key, Change] = {}
    for change, before in steps:
        key = change.key
        # Taken out first: what happened last stands last.
        known = newest.pop(key, None)
        if known is not None or wanted is None or wanted.concerns(key, before, change.record):
            newest[key] = change
    return newest
