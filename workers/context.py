"""Context: what an engine is given beside its payload.

Progress and output go to a lossy lane: whatever happens to it, the job goes on, at its own speed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from broker import BrokerError

#: Progress is told at most so often; the last word (1.0) always.
PROGRESS_SECONDS_MIN = 0.1
#: After a failed write the lane is left alone for so long, so that an outage does not slow the job down.
QUIET_SECONDS = 5.0
#: A piece of output is cut into entries of at most so many characters (64 KiB as UTF-8).
PIECE_CHARS_MAX = 16 * 1024


class Lane(Protocol):
    """Where progress and output go: the broker's `Holder`, or a list in a test."""

    def progress(self, fraction: float) -> None: ...
    def write(self, chunk: str) -> None: ...


@dataclass(slots=True)
class Context:
    """One execution of one job, as its engine sees it."""

    lane: Lane
    stop: Callable[[], bool]  #: whether it is asked to end
    key: str = ""  #: `origin/engine/run/id`
    attempt: int = 1  #: fencing token: rises whenever an attempt is given up
    tries: int = 1  #: this is the n-th start of the job
    payload: Any = None  #: what was submitted: the engine's second argument as well
    model: str = ""  #: the model that the submitter asked for
    saw_stop: bool = False  #: whether the engine has seen that it is asked to end
    _told_at: float = field(default=float("-inf"), repr=False)
    _quiet_until: float = field(default=float("-inf"), repr=False)

    @property
    def cancelled(self) -> bool:
        """Whether the job should end: cancelled, timed out or given up. Look often; it costs no round trip."""
        if self.stop():
            self.saw_stop = True
        return self.saw_stop

    def progress(self, fraction: float) -> None:
        """Tell how far it is, from 0 to 1. Cheap to call often: ten a second are told."""
        fraction = float(fraction)
        now = time.monotonic()
        if fraction < 1 and now - self._told_at < PROGRESS_SECONDS_MIN:
            return
        self._told_at = now
        self._tell(lambda: self.lane.progress(fraction))

    def write(self, chunk: str | bytes) -> None:
        """Put a piece of output on the lane; bytes are read as UTF-8."""
        text = chunk if isinstance(chunk, bytes) else chunk.encode(errors="replace")
        for piece in _pieces(text.decode(errors="replace")):
            self._tell(lambda piece=piece: self.lane.write(piece))  # type: ignore[misc]

    def _tell(self, say: Callable[[], None]) -> None:
        if time.monotonic() < self._quiet_until:
            return
        try:
            say()
        except BrokerError:
            self._quiet_until = time.monotonic() + QUIET_SECONDS


def _pieces(text: str) -> Iterator[str]:
    return (text[at : at + PIECE_CHARS_MAX] for at in range(0, len(text), PIECE_CHARS_MAX))
