"""Ringer: wakes those who wait for jobs as soon as an entry of a log names one of them. One thread, one connection.

A wake-up is a hint: where a log was trimmed, replaced or damaged it may be missing. So a waiter reads the record when
it is woken, and also polls it now and then.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from typing import Self

from broker.errors import BrokerError, Damaged, Gone
from broker.rules.key import Key
from broker.store.doorbell import Doorbell
from broker.store.log import Log, Place
from broker.store.store import Store

#: How long one sleep lasts at most, in ms.
SLEEP_MS = 1_000
#: The pause after a failure, in seconds: waiters poll as often by themselves.
PAUSE_SECONDS = 1.0
#: An origin that nobody asks for is followed on for so long, in seconds: the next one to ask need not wake us.
LINGER_SECONDS = 10.0

_log = logging.getLogger(__package__)


class Ringer:
    """A context manager. Calls `ring(origin, jobs)` in its thread; `jobs` is None where any may have changed."""

    def __init__(self, store: Store, ring: Callable[[str, Collection[Key] | None], None]) -> None:
        self._store = store
        self._ring = ring
        self._lock = threading.Lock()
        self._asked_at: dict[str, float] = {}
        self._bell = Doorbell(store.client)
        self._stop = threading.Event()
        # Of the thread alone.
        self._logs: dict[str, Log] = {}
        self._places: dict[str, Place] = {}
        self._deaf_until: dict[str, float] = {}
        self._thread = threading.Thread(target=self._run, name="broker-ringer", daemon=True)
        self._thread.start()

    def ask(self, origins: Collection[str]) -> None:
        """From any thread: follow these origins, too, for `LINGER_SECONDS` from now on."""
        now = time.monotonic()
        with self._lock:
            is_new = not self._asked_at.keys() >= set(origins)
            self._asked_at |= dict.fromkeys(origins, now)
            if is_new:
                self._rehang()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        with self._lock:
            self._rehang()
        self._thread.join()

    def _rehang(self) -> None:
        """Wake the sleeper: a bell that was woken is of no more use, so there is another one for the next sleep."""
        woken, self._bell = self._bell, Doorbell(self._store.client)
        woken.wake()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._step()
            except BrokerError as error:
                _log.debug("ringer: %s", error)
                self._stop.wait(PAUSE_SECONDS)

    def _step(self) -> None:
        with self._lock:
            bell = self._bell
            since = time.monotonic() - LINGER_SECONDS
            self._asked_at = {name: at for name, at in self._asked_at.items() if at > since}
            wanted = set(self._asked_at)
        for origin in self._places.keys() - wanted:
            del self._places[origin]
        hearing = [
            origin for origin in wanted if self._deaf_until.get(origin, 0) <= time.monotonic()
        ]
        for origin in hearing:
            if origin not in self._places:
                self._hear(origin, self._begin)
        self._sleep(bell, [origin for origin in hearing if origin in self._places])

    def _sleep(self, bell: Doorbell, origins: list[str]) -> None:
        keys = {self._log_of(origin).key: origin for origin in origins}
        places = {key: self._places[origin].rev for key, origin in keys.items()}
        try:
            rung = bell.wait(places, SLEEP_MS)
        except Damaged:
            rung = None  # which one it is, reading tells: it must not keep the others silent
        for key in keys if rung is None else rung:
            self._hear(keys[key], self._read_on)

    def _hear(self, origin: str, how: Callable[[str], None]) -> None:
        try:
            how(origin)
        except Damaged:
            self._places.pop(origin, None)
            self._deaf_until[origin] = time.monotonic() + PAUSE_SECONDS

    def _begin(self, origin: str) -> None:
        self._places[origin] = self._log_of(origin).position().place
        self._ring(origin, None)

    def _read_on(self, origin: str) -> None:
        while True:
            try:
                chunk = self._log_of(origin).read_on(self._places[origin])
            except Gone:
                self._begin(origin)
                return
            self._places[origin] = chunk.place
            if any(entry.names_pair for entry in chunk.entries):
                self._ring(origin, None)
            elif chunk.entries:
                self._ring(origin, {entry.key(origin) for entry in chunk.entries})
            if not chunk.is_full or self._stop.is_set():
                return

    def _log_of(self, origin: str) -> Log:
        return self._logs.setdefault(origin, Log(self._store, origin))
