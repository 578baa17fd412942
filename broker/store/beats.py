"""Holds the beats of the workers against what each says of itself: the two must tell of the same workers.

A worker that beats, but says nothing, is counted by nobody: its slot is lost. One that says something, but is not among
those that beat, is forgotten by nobody before its day is over. Both look so for a moment when one comes or goes: what
counts was so in two looks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import cast

from broker.rules.audit import DRIFT, FORGET, Finding
from broker.store.connection import redis_errors
from broker.store.decode import read_text
from broker.store.nodes import SILENCE_MS_MAX
from broker.store.store import Store

#: How many workers one piece looks at: some milliseconds.
PAGE = 500
#: Who is so near to being forgotten, in milliseconds, is let go of by one of the two earlier than by the other.
NEARLY_MS = 60_000
FORGOTTEN_MS = SILENCE_MS_MAX - NEARLY_MS


class Beats:
    """One look at the workers of the fleet. `telling` are those that something is kept of."""

    def __init__(self, store: Store, telling: Collection[str]) -> None:
        self._store = store
        self._telling = telling

    def walk(self) -> Iterator[list[Finding]]:
        """Piece by piece, what does not fit. Raises Unavailable, Damaged where `broker:workers` is of a wrong type."""
        with redis_errors():
            beating = self._store.client.zrange(self._store.keys.workers, 0, -1)
        names = sorted({*self._telling, *map(read_text, cast("list[bytes]", beating))})
        for at in range(0, len(names), PAGE):
            suspects = self._unfit(names[at : at + PAGE])
            unfit = self._unfit(list(suspects)) if suspects else {}
            yield [
                Finding(
                    kind=DRIFT,
                    origin="",
                    job="",
                    text=f"worker {name} {why}",
                    what=FORGET,
                    key=self._store.keys.worker(name),
                )
                for name, why in unfit.items()
            ]

    def _unfit(self, names: list[str]) -> dict[str, str]:
        """Those of which only one is there, and what is said of them."""
        keys, now = self._store.keys, self._store.clock.now()
        with redis_errors(), self._store.client.pipeline(transaction=False) as pipe:
            pipe.zmscore(keys.workers, names)
            for name in names:
                pipe.pttl(keys.worker(name))
            beats, *kept_ms = pipe.execute()
        unfit = {}
        for name, beaten_at, left_ms in zip(names, beats, kept_ms, strict=True):
            is_told = left_ms != -2
            if beaten_at is None and is_told and not 0 <= left_ms <= NEARLY_MS:
                unfit[name] = "says something of itself, but is not among those that beat"
            elif beaten_at is not None and not is_told and now - beaten_at < FORGOTTEN_MS:
                unfit[name] = "is among those that beat, but says nothing of itself"
        return unfit
