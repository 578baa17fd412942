"""The course of one job as the program that runs it tells it: each change is the next numbered report.

Pure: it decides what there is to say and numbers it; whoever holds a course calls it under one lock and writes the
reports in the order in which they come. A change that says nothing new, or that comes too late, gives None.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.errors import Invalid
from broker.rules.event import Report
from broker.rules.fields import cut
from broker.rules.key import Key, check_name
from broker.rules.record import clip
from broker.rules.state import QUEUED, RUNNING, TERMINAL

#: An error text is cut here, so that it fits in an event even where each character needs an escape.
ERROR_BYTES_MAX = 100_000


@dataclass(slots=True)
class Course:
    """Where the job stands. Times are epoch milliseconds; `node` is empty while it is not placed."""

    key: Key
    created_at: int
    model: str = ""
    requester: str = ""
    state: str = QUEUED
    node: str = ""
    attempt: int = 0  #: dispatches so far; a word on an earlier one is late
    seq: int = 0
    started_at: int = 0
    completed_at: int = 0
    error: str = ""
    last: Report | None = field(default=None, init=False)  #: the newest word, for re-assertions

    @property
    def ended(self) -> bool:
        """Whether its one terminal word was said."""
        return self.state in TERMINAL

    def create(self) -> Report:
        """The first word: queued. Raises Invalid for texts that are not valid Unicode."""
        return self._say()

    def dispatch(self, node: str) -> Report | None:
        """Begin a new attempt on `node`; its number is then `attempt`."""
        check_name("node", node)
        if not self.ended:
            self.attempt += 1
        return self.repoint(node, again=True)

    def repoint(self, node: str, *, again: bool = False) -> Report | None:
        """Queue it on another node, or on none between two attempts; silent where it waits there already.

        A running job goes back to queued with started_at cleared when it moves, and also when it is dispatched
        `again` to the node where it runs.
        """
        if node:
            check_name("node", node)
        stays = node == self.node and (self.state == QUEUED or not again)
        if self.ended or stays:
            return None
        self.state, self.node, self.started_at = QUEUED, node, 0
        return self._say()

    def start(self, now: int, node: str | None = None, attempt: int | None = None) -> Report | None:
        """It runs, from the first sign of it on. None for `node` or `attempt` means the current one.

        A word on another node or attempt than the current one is late and changes nothing; so does any between two
        attempts, and a second one.
        """
        late = (
            (attempt is not None and attempt != self.attempt)
            or (node is not None and node != self.node)
            or (self.attempt > 0 and not self.node)
        )
        if self.state != QUEUED or late:
            return None
        self.state, self.started_at = RUNNING, now
        return self._say()

    def finish(self, now: int, state: str, error: str = "") -> Report | None:
        """The one terminal word: the first caller's. Raises Invalid where `state` is no end.

        No error text can keep it from being said: what is no valid Unicode is replaced, what is too long is cut.
        """
        if state not in TERMINAL:
            raise Invalid(f"a job ends as {', '.join(sorted(TERMINAL))}, not {state!r}")
        if self.ended:
            return None
        self.state, self.completed_at, self.error = state, now, _sayable(error)
        return self._say()

    def _say(self) -> Report:
        self.seq += 1
        self.last = Report(
            key=self.key,
            created_at=self.created_at,
            state=self.state,
            node=self.node,
            seq=self.seq,
            started_at=self.started_at,
            completed_at=self.completed_at,
            **cut(self.error, self.model, self.requester),
        )
        return self.last


def _sayable(error: str) -> str:
    return clip(error.encode(errors="replace").decode(), ERROR_BYTES_MAX)
