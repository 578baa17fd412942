"""`broker jobs --watch`: the list as it changes, drawn on a terminal or streamed as lines.

Both follow one reader, so that ten thousand jobs cost no more than their changes. What beats alone tell, that a running
job is in doubt, is looked at once a second.
"""

from __future__ import annotations

import heapq
import logging
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from broker.cli.output import Columns, table_lines
from broker.errors import BrokerError, Resync, Unavailable
from broker.fleet.doubts import Doubts
from broker.jobs.outcome import Listed
from broker.rules.replay import Change, differences
from broker.rules.state import RUNNING
from broker.text import safe, to_json

if TYPE_CHECKING:
    from broker.client import Broker
    from broker.readers.readers import Reader
    from broker.rules.filter import Filter
    from broker.rules.key import Key
    from broker.rules.record import Record

#: How often beats are looked at, and ages drawn anew, in seconds.
LOOK_SECONDS = 1.0
#: Between two pictures, in seconds; where drawing takes long, so many times as long as it took.
FRAME_SECONDS, FRAME_SHARE = 0.04, 5


class Following:
    """The jobs that fit, as they are now; `next` blocks until something may have changed."""

    def __init__(self, here: Broker, reader: Reader, fits: Filter) -> None:
        self._here = here
        self._reader = reader
        self._fits = fits
        self._doubts = Doubts(here)
        self._looked_at = 0.0
        #: What fits; changed by `next` alone.
        self.records: dict[Key, Record] = {}
        #: Those of them that are shown `running?`.
        self.doubted: frozenset[Key] = frozenset()
        #: Why nobody can tell what happens now, if that is so.
        self.trouble: BrokerError | None = None

    def begin(self) -> None:
        """List what there is. Raises Unavailable, Damaged."""
        self.records = self._reader.snapshot().records
        self._look()

    def next(self, seconds: float) -> list[Change]:
        """What is to be told since the last call, waiting for the first of it; a job that fits no more comes once.

        A job whose doubt began or ended comes as it was. After a loss it is what a new list differs in.
        """
        told = self._changes(seconds)
        told = [change for change in told if self._fits.concerns(*self._turn(change))]
        for key, record, *_ in told:
            held = self.records.pop(key, None)
            if record and self._fits.fits(key, record):
                self.records[key] = record
            if not (record and held and _is_same_run(held, record)):
                self.doubted -= {key}
        if time.monotonic() - self._looked_at >= LOOK_SECONDS:
            told += self._look()
        return told

    def _turn(self, change: Change) -> tuple[Key, Record | None, Record | None]:
        return change.key, self.records.get(change.key), change.record

    def _changes(self, seconds: float) -> list[Change]:
        try:
            told = self._reader.changes(max(0, round(seconds * 1000)))
        except Resync:
            found = self._reader.snapshot()
            rev = max((place.rev for place in found.cursor.values()), default="")
            told = differences(self.records, found.records, rev)
        except BrokerError as trouble:
            self.trouble = trouble
            return []
        if told:
            self.trouble = None
        return told

    def _look(self) -> list[Change]:
        self._looked_at = time.monotonic()
        try:
            doubted = frozenset(self._doubts.among(self.records))
        except BrokerError as trouble:
            self.trouble = trouble
            return []
        finally:
            self._looked_at = time.monotonic()
        if isinstance(self.trouble, Unavailable):
            self.trouble = None  # it answered
        turned, self.doubted = doubted ^ self.doubted, doubted
        known = ((key, self.records[key]) for key in sorted(turned) if key in self.records)
        return [Change(key, of, of.rev, "", of.rule, of.by) for key, of in known]

    def line(self, change: Change) -> dict[str, Any]:
        """The change as `-o jsonl` tells it: the job's record, or that it is gone."""
        if change.record is None:
            return {
                "key": str(change.key),
                "gone": True,
                "rev": change.rev,
                "rule": change.rule,
                "by": change.by or None,
            }
        return self.shown(change.key, change.record)

    def shown(self, key: Key, record: Record) -> dict[str, Any]:
        """The record as a list shows it."""
        return Listed(key, record, key in self.doubted).to_json()

    def newest(self, count: int) -> list[dict[str, Any]]:
        """The jobs that were created last, in the order of the list."""
        found = heapq.nlargest(count, self.records.items(), key=_created)
        return [self.shown(key, record) for key, record in reversed(found)]

    def whole(self) -> list[dict[str, Any]]:
        """All of them, in the order of the list."""
        return [
            self.shown(key, record) for key, record in sorted(self.records.items(), key=_created)
        ]


def _is_same_run(one: Record, other: Record) -> bool:
    return one.state == other.state == RUNNING and one.holder == other.holder


def _created(found: tuple[Key, Record]) -> tuple[int, Key]:
    return found[1].created_at, found[0]


@contextmanager
def following(here: Broker, fits: Filter) -> Iterator[Following]:
    """Follow what fits. It ends at once, also where Redis does not answer."""
    origins = None if fits.origin is None else [fits.origin]
    with closing(here.readers(origins)) as readers:
        yield Following(here, readers.open("broker jobs", wanted=fits), fits)


def stream(here: Broker, fits: Filter) -> None:
    """The list, one record a line, then each change as a line, until Ctrl-C or until nobody reads it."""
    with following(here, fits) as followed:
        followed.begin()
        _print([to_json(job) for job in followed.whole()])
        while True:
            _check_read()
            _print([to_json(followed.line(change)) for change in followed.next(LOOK_SECONDS)])


def _print(lines: list[str]) -> None:
    if lines:
        print("\n".join(lines), flush=True)


def _check_read() -> None:
    """Raise BrokenPipeError where stdout is a pipe that nobody reads any more: while nothing happens no write tells."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):  # no file: somebody's buffer
        return
    if any(event & select.POLLERR for _, event in poll.poll(0)):
        raise BrokenPipeError


def show(here: Broker, fits: Filter, columns: Columns) -> None:
    """The newest jobs that fit on the screen, as they change, until Ctrl-C."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    # The screen is given back also where somebody ends the process; and nothing writes into it but us.
    for order in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(order, signal.default_int_handler)
    logging.getLogger().addHandler(logging.NullHandler())
    console = Console()
    with following(here, fits) as followed:
        followed.begin()
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                begun = time.monotonic()
                room = max(1, console.height - 2)
                lines = table_lines(followed.newest(room), columns) or ["no jobs"]
                lines.append(_foot(followed, room))
                live.update(Text.from_ansi("\n".join(lines), no_wrap=True), refresh=True)
                took = time.monotonic() - begun
                _await_change(followed, begun + max(FRAME_SECONDS, FRAME_SHARE * took))


def _await_change(followed: Following, not_before: float) -> None:
    """Until something happened, and not before the next picture is due; a second at most, for ages go on."""
    due = time.monotonic() + LOOK_SECONDS
    is_news = False
    while (here := time.monotonic()) < (not_before if is_news else due):
        is_news |= bool(followed.next((not_before if is_news else due) - here))


def _foot(followed: Following, room: int) -> str:
    count = len(followed.records)
    foot = f"{count} jobs" + (f", the newest {room}" if count > room else "")
    return safe(f"{foot}; {followed.trouble}" if followed.trouble else foot)
