"""The only place that sleeps: runs one role's steps at their pace until it is told to stop.

A role fails now and then, most often because Redis is away. It is tried again with a growing pause, says so once when
the trouble begins and once when it is over, and never spins. The caller handles signals and sets the stop event.
"""

from __future__ import annotations

import logging
import random
import threading
import time
import traceback
from collections.abc import Callable

from broker.errors import BrokerError, Unavailable

#: Pause after the first failure and the longest one, in seconds: at most 20 tries a second, at least one each 2 s.
PAUSE_SECONDS_MIN = 0.05
PAUSE_SECONDS_MAX = 2.0
#: A bell that rings without end does not make a role spin: after a step without work the next one comes no earlier.
REST_SECONDS = 0.002
#: The same error of a role is told again only after so many seconds.
REPEAT_SECONDS = 60.0

log = logging.getLogger(__name__)


class Turns:
    """When each loop of a process turned last: one that is stuck does not, one whose Redis is away still does."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}

    def note(self, name: str) -> None:
        """This loop turns now."""
        self._at[name] = time.monotonic()

    def ages(self) -> dict[str, float]:
        """Seconds since each loop turned last, by its name; from any thread."""
        now = time.monotonic()
        return {name: now - at for name, at in self._at.copy().items()}


class Loop:
    """`step` gives how much it did: after 0 the loop rests, else it goes on at once.

    It rests for `pace_seconds`, or until `bell(pace_seconds)` returns, which may be early, when there is something
    to do. A bell that gives False cannot ring now, and did not wait. Each turn is noted in `turns`.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], int],
        stop: threading.Event,
        *,
        pace_seconds: float = 0.2,
        bell: Callable[[float], bool] | None = None,
        turns: Turns | None = None,
    ) -> None:
        self._name = name
        self._step = step
        self._stop = stop
        self._pace_seconds = pace_seconds
        self._bell = bell
        self._turns = turns or Turns()
        self._trouble = _Trouble(name)
        self._pause_seconds = 0.0

    def run(self) -> None:
        """Run until the stop event is set."""
        while not self._stop.is_set():
            self._turns.note(self._name)
            try:
                done = self._step()
                self._trouble.over()
                self._pause_seconds = 0.0
                if not done:
                    self._rest()
            except Exception as error:  # noqa: BLE001 - a role outlives whatever one step met
                self._trouble.met(error)
                self._back_off()

    def _rest(self) -> None:
        begun = time.monotonic()
        rang = self._bell is not None and self._bell(self._pace_seconds)
        rest_seconds = REST_SECONDS if rang else self._pace_seconds
        self._stop.wait(max(0.0, begun + rest_seconds - time.monotonic()))

    def _back_off(self) -> None:
        doubled = max(PAUSE_SECONDS_MIN, self._pause_seconds * 2)
        self._pause_seconds = min(doubled, PAUSE_SECONDS_MAX)
        # Roles that failed together must not come back together; the shortest pause is kept.
        spread = (self._pause_seconds - PAUSE_SECONDS_MIN) / 2
        self._stop.wait(self._pause_seconds - random.uniform(0, spread))


class _Trouble:
    """What goes wrong, told once: an outage when it begins and ends, another error once a minute."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._away = False
        self._told_since = 0.0
        self._told: dict[str, float] = {}

    def met(self, error: Exception) -> None:
        now = time.monotonic()
        if isinstance(error, Unavailable):
            if not self._away:
                log.warning("%s: %s; trying on", self._name, error)
                self._told_since = self._told_since or now
            self._away = True
            return
        place = _place(error)
        if now - self._told.get(place, -REPEAT_SECONDS) >= REPEAT_SECONDS:
            # What was raised on purpose says what is wrong; where a bug was met, only the trace does.
            is_bug = not isinstance(error, BrokerError)
            log.error(
                "%s failed, trying on: %s", self._name, error, exc_info=error if is_bug else None
            )
            self._told[place] = now
            self._told_since = self._told_since or now

    def over(self) -> None:
        if self._told_since:
            seconds = time.monotonic() - self._told_since
            log.warning("%s works again after %.1f s", self._name, seconds)
        self._away, self._told_since = False, 0.0


def _place(error: Exception) -> str:
    """Where it was raised: texts differ each time, places do not."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{type(error).__name__} {frames[-1].filename}:{frames[-1].lineno}"
