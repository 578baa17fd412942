"""Which jobs somebody asks for: the four questions that every list takes, and what their follower is told."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from broker.rules.key import Key
from broker.rules.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Fits a job where each question that is asked fits; None asks nothing. A guess fits by the state it replaced."""

    states: Collection[str] | None = None
    node: str | None = None
    engine: str | None = None
    origin: str | None = None

    def fits(self, key: Key, record: Record | None) -> bool:
        """Whether a list shows this job; nothing fits where the job is gone."""
        return (
            record is not None
            and (self.states is None or record.believed in self.states)
            and self.node in (None, record.node)
            and self.engine in (None, key.engine)
            and self.origin in (None, key.origin)
        )

    def concerns(self, key: Key, before: Record | None, after: Record | None) -> bool:
        """Whether a follower must be told: also of a job that leaves the list, by its removal or its new state."""
        return self.fits(key, before) or self.fits(key, after)
