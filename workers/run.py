"""run: the one function that RQ calls. It happens in the horse: the engine runs here, and its end is said from here.

The worker prepares everything before the fork (`harness`); what comes by RQ only has to name the same attempt.
"""

from __future__ import annotations

import contextlib
import logging
import traceback
from dataclasses import dataclass
from typing import Any

from broker import BrokerError, Damaged, Holder, Invalid, NotFound, Record, Unavailable, patiently
from workers.context import Context
from workers.engine import EngineSpec, Stopped
from workers.line import Line, Phase, Wish

log = logging.getLogger("workers")

#: The text of an error, as it is kept beside the record: what happened, then the innermost part of the traceback.
ERROR_CHARS_MAX = 16 * 1024
MESSAGE_CHARS_MAX = 2 * 1024
#: How long the horse tries to reach Redis for its payload and for its last word.
PATIENCE_SECONDS = 60.0

COMPLETED, FAILED, CANCELLED = "completed", "failed", "cancelled"


@dataclass(frozen=True, slots=True)
class Horse:
    """One execution of one attempt: what the parent hands over the fork."""

    spec: EngineSpec
    holder: Holder
    record: Record  #: as it was after the start
    line: Line

    @property
    def names(self) -> tuple[str, int, int]:
        """What the hand-off must name."""
        return str(self.holder.key), self.holder.created_at, self.holder.attempt


@dataclass(frozen=True, slots=True)
class Word:
    """How an attempt ended, as it will be said."""

    state: str
    result: Any = None
    error: str = ""
    reason: str = ""
    retryable: bool = False


_horse: Horse | None = None


def harness(horse: Horse | None) -> None:
    """Name the execution that `run` is going to be called for."""
    global _horse  # noqa: PLW0603 - a process runs one job at a time
    _horse = horse


def run(key: str, created_at: int, attempt: int) -> None:
    """Run the engine of the job, and say how it ended.

    Raises RuntimeError outside our worker: a stock RQ worker neither starts nor fences an attempt.
    """
    horse = _horse
    if horse is None or horse.names != (key, created_at, attempt):
        raise RuntimeError(f"{key} attempt {attempt}: only workers.Worker may run this")
    horse.line.reach(Phase.RUNNING)
    word = _end(horse)
    if word is None:
        return
    try:
        outcome = _say(horse, word)
    except Unavailable:
        horse.line.reach(Phase.UNSAID)
        raise
    horse.line.reach(Phase.SAID)
    log.info("job %s attempt %d: %s (%s)", key, attempt, word.state, outcome)


def _end(horse: Horse) -> Word | None:
    """Run the engine; give its word, or None for an attempt that no longer has one."""
    context = Context(
        lane=horse.holder,
        stop=lambda: horse.line.wish != Wish.RUN,
        key=str(horse.holder.key),
        attempt=horse.holder.attempt,
        tries=horse.record.tries,
        model=horse.record.model,
    )
    try:
        through = (Unavailable, Damaged)
        payload = patiently(horse.holder.payload, PATIENCE_SECONDS, through=through)
        # The last thing before the engine: since the start the user may have changed their mind, and whoever was
        # frozen may have been given up. What is not wanted any more must not begin.
        stands = patiently(horse.holder.beat, PATIENCE_SECONDS, through=through)
    except NotFound as gone:
        return Word(FAILED, error=str(gone), reason="permanent")
    except BrokerError as failed:
        return _failure(failed)
    if not stands.valid:
        horse.line.reach(Phase.SAID)
        return None
    if stands.desired != "run":
        return Word(CANCELLED)
    context.payload = payload
    try:
        result = horse.spec.engine.run(context, payload)
    except Exception as raised:  # noqa: BLE001 - whatever an engine raises is its failure
        return _stopped(horse) if _is_stop(horse, raised) else _failure(raised)
    except BaseException as raised:  # noqa: BLE001 - SystemExit and the like end the job only
        return _failure(raised)
    # An engine that saw the wish and returned has stopped; one that never looked has done its work.
    return _stopped(horse) if context.saw_stop else Word(COMPLETED, result)


def _is_stop(horse: Horse, raised: Exception) -> bool:
    return isinstance(raised, Stopped) or horse.line.wish != Wish.RUN


def _stopped(horse: Horse) -> Word | None:
    return word_of(horse.line.wish, horse.record)


def word_of(wish: Wish, record: Record) -> Word | None:
    """What an end by a wish is called: by the horse that stopped, or by the parent that had to kill it."""
    if wish == Wish.FENCE:
        return None
    if wish == Wish.CANCEL:
        return Word(CANCELLED)
    if wish == Wish.TIMEOUT:
        error = f"timed out after {record.timeout / 1000:g} s"
        return Word(FAILED, error=error, reason="timeout", retryable=True)
    return Word(
        FAILED, error="the engine stopped without being asked to", reason="error", retryable=True
    )


def _failure(raised: BaseException) -> Word:
    retryable = bool(getattr(raised, "retryable", True))
    reason = "error" if retryable else "permanent"
    return Word(FAILED, error=describe(raised), reason=reason, retryable=retryable)


def describe(raised: BaseException) -> str:
    """What happened, in bounded text: the exception's own words first, then the end of the traceback."""
    name = type(raised).__name__
    try:
        message = str(raised)
    except Exception:  # noqa: BLE001 - an exception that cannot tell its own text is still one
        message = ""
    message = message[:MESSAGE_CHARS_MAX]
    # Permanent and our engines' own failures are written for the reader: the class name adds nothing.
    told = type(raised).__module__.split(".")[0] == __name__.split(".")[0]
    head = message if told and message else f"{name}: {message}" if message else name
    if told:
        return head
    trace = ""
    with contextlib.suppress(Exception):
        trace = "".join(traceback.format_exception(raised, limit=-20))
    return f"{head}\n\n{trace[-(ERROR_CHARS_MAX - len(head)) :]}" if trace else head


def _say(horse: Horse, word: Word) -> str:
    """Say it, for as long as Redis is away and patience lasts; give the answer's rule."""
    try:
        return _finish(horse, word)
    except Invalid as refused:  # the result is too large, or no JSON: trying again would not help
        return _finish(horse, Word(FAILED, error=str(refused), reason="permanent"))


def _finish(horse: Horse, word: Word) -> str:
    return horse.holder.finish(
        word.state,
        result=word.result,
        error=word.error,
        reason=word.reason,
        retryable=word.retryable,
        patience_seconds=PATIENCE_SECONDS,
    ).rule
