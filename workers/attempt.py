"""Attempt: one attempt of one job, as the parent goes through it: start, watch, close.

The parent says start before it forks, so that a fork that hangs is covered, and looks after every end: what the horse
left open (it was killed, it left by `os._exit`, it could not be forked) is closed here.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
from collections.abc import Callable

from broker import Broker, BrokerError, Holder, Record, Unavailable, patiently
from workers import run
from workers.handoff import Names
from workers.line import Phase, Wish
from workers.post import Post
from workers.pulse import Pulse, Watch
from workers.run import FAILED, Horse, Word

log = logging.getLogger("workers")

#: How long a start that could not be said is tried; then the attempt is left to be placed anew.
START_SECONDS_MAX = 60.0
#: At a cold shutdown the last word must not keep us.
COLD_SECONDS_MAX = 5.0
CLOSE_SECONDS = 60.0


class Attempt:
    """One execution, from the hand-off to its closed end."""

    def __init__(self, post: Post, pulse: Pulse, worker: str, names: Names) -> None:
        self.key = names.key
        self._post = post
        self._pulse = pulse
        self._worker = worker
        self._names = names
        self._nonce = secrets.token_hex(8)
        self._line = pulse.new_line()
        self._holder = self._hold(post.broker)
        self._claimed = False  #: a start was said, and not refused: it may have been heard
        self._record: Record | None = None
        self._stopped: Callable[[], bool] = lambda: False
        self.watch: Watch

    def _hold(self, broker: Broker) -> Holder:
        return Holder(
            broker,
            self.key,
            created_at=self._names.created_at,
            attempt=self._names.attempt,
            node=self._post.node,
            worker=self._worker,
            nonce=self._nonce,
        )

    def start(self, stopped: Callable[[], bool]) -> bool:
        """Claim the attempt, and make everything ready for the fork. False: it is not ours to run.

        Close it in either case, also where this raises: a start without an answer may have been heard.
        """
        self._stopped = stopped
        try:
            rule = self._claim()
            record = patiently(self._holder.record, START_SECONDS_MAX) if not rule else None
        except BrokerError as failed:
            log.warning("job %s: cannot start: %s", self.key, failed)
            return False
        if record is None or record.holder != self._nonce:
            self._claimed = False
            log.info(
                "job %s attempt %d: not started (%s)", self.key, self._names.attempt, rule or "gone"
            )
            return False
        budgets = self._post.broker.config.budgets
        self.watch = Watch(
            self._hold(self._pulse.broker),
            self._line,
            timeout_ms=record.timeout,
            start_ms=budgets.start_ms,
            stop_ms=budgets.stop_ms,
        )
        self._record = record
        run.harness(Horse(self._post.spec, self._holder, record, self._line))
        self._pulse.watch(self.watch)
        log.info("job %s attempt %d: started", self.key, self._names.attempt)
        return True

    def _claim(self) -> str:
        """Say start; give the rule that refused it, or nothing. Raises Unavailable, Damaged."""
        self._claimed = True
        try:
            outcome = self._holder.start()
        except Unavailable:
            # Its answer may have been lost: the record tells whether it was heard.
            if self._is_holder():
                return ""
            outcome = patiently(self._holder.start, START_SECONDS_MAX)
            if outcome.rule == "held" and self._is_holder():  # an earlier one was heard late
                return ""
        return "" if outcome.ok else outcome.rule

    def _is_holder(self) -> bool:
        record = patiently(self._holder.record, START_SECONDS_MAX)
        return record is not None and record.holder == self._nonce

    @property
    def timeout_ms(self) -> int:
        """How long it may run; 0: as long as it likes."""
        return self._record.timeout if self._record else 0

    def say(self, word: Word) -> None:
        """Say its end for a horse that was never made."""
        self._line.reach(Phase.SAID if self._finish(word) else Phase.UNSAID)

    def close(self, *, cold: bool = False, failed: Exception | None = None) -> None:
        """The horse is gone, or has to go: close what it left open, as soon as Redis takes it.

        `cold`: the worker itself is to end at once. `failed`: what kept the worker from running it to its end.
        """
        if not self._claimed:
            return
        try:
            if self._record:
                if self.watch.pid:
                    self.watch.kill("the worker ends")
                    self.watch.wait()
                self.watch.over = True
            if self._line.phase != Phase.SAID:
                self._close(cold=cold, failed=failed)
        finally:
            run.harness(None)
            self._pulse.watch(None)

    def _close(self, *, cold: bool, failed: Exception | None) -> None:
        word, died = self._last_word(cold=cold, failed=failed)
        if word is None:
            log.info("job %s attempt %d: given up elsewhere", self.key, self._names.attempt)
        elif self._finish(word, died=died, cold=cold):
            self._line.reach(Phase.SAID)

    def _finish(self, word: Word, *, died: bool = False, cold: bool = False) -> bool:
        """Say it as soon as Redis takes it; not for ever while somebody waits for us to end. Whether it was said."""
        while True:
            try:
                outcome = self._holder.finish(
                    word.state,
                    error=word.error,
                    reason=word.reason,
                    retryable=word.retryable,
                    died=died,
                    patience_seconds=COLD_SECONDS_MAX if cold else CLOSE_SECONDS,
                )
            except Unavailable as away:
                log.warning("job %s: its end cannot be told: %s", self.key, away)
                if cold or self._stopped():
                    return False
            except BrokerError as failed:
                log.warning("job %s: its end cannot be told: %s", self.key, failed)
                return False
            else:
                said = word.error or word.state
                log.info(
                    "job %s attempt %d: closed: %s (%s)",
                    self.key,
                    self._names.attempt,
                    said,
                    outcome.rule,
                )
                return True

    def _last_word(self, *, cold: bool, failed: Exception | None) -> tuple[Word | None, bool]:
        """What there is to say for a horse that said nothing, and whether that counts as a death."""
        wish = self._line.wish
        if self._record and wish != Wish.RUN:
            return run.word_of(wish, self._record), False
        if cold:
            return Word(
                FAILED, error="the worker was shut down", reason="shutdown", retryable=True
            ), False
        if self._line.phase == Phase.UNSAID:
            error = "it ended, but Redis was away for too long to tell how"
            return Word(FAILED, error=error, reason="unreachable", retryable=True), False
        if not self._record:
            error = f"it could not be started: {failed or 'Redis did not answer'}"
            return Word(FAILED, error=error, reason="unreachable", retryable=True), False
        if self.watch.hung:
            return Word(
                FAILED, error="its process hung at the start", reason="hung", retryable=True
            ), True
        if failed:
            error = f"it could not be run: {type(failed).__name__}: {failed}"
            return Word(FAILED, error=error, reason="error", retryable=True), False
        error = f"its process ended without a word ({_how(self.watch.status)})"
        return Word(FAILED, error=error, reason="died", retryable=True), True


def _how(status: int | None) -> str:
    """A wait status in words."""
    if status is None:
        return "unseen"
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
