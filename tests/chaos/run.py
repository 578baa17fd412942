"""One run of one row: its chance, its count, its folder; and the table of all rows."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.chaos.stack import BEAT_MS, Stack


class Row(NamedTuple):
    """`long` and `short` are how often the damage is done in each form."""

    name: str
    act: Callable
    long: int
    short: int


ROWS: dict[str, Row] = {}


def row(name, *, long, short):
    """Put a function into the table: it is given a `Run` and returns what is to be told."""

    def add(act):
        ROWS[name] = Row(name, act, long, short)
        return act

    return add


@dataclass
class Run:
    """What a row is given."""

    folder: Path
    count: int
    seed: int
    beat_ms: int = BEAT_MS
    chance: random.Random = field(init=False)

    def __post_init__(self):
        self.chance = random.Random(self.seed)

    def stack(self, name="stack", **redis_options):
        """A new fleet in a folder of its own: `with run.stack() as stack:`."""
        return Stack(self.folder / name, beat_ms=self.beat_ms, **redis_options)

    def pause(self, least, most):
        """Let things happen, for a while that chance decides (seconds)."""
        time.sleep(self.chance.uniform(least, most))

    def turns(self, what):
        """`count` turns, with progress on a terminal."""
        begun = time.monotonic()
        for turn in range(self.count):
            if sys.stderr.isatty():
                print(
                    f"\r{what}: {turn}/{self.count}, {time.monotonic() - begun:.0f} s ",
                    end="",
                    file=sys.stderr,
                )
            yield turn
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr)


def share(values, part):
    """The value below which this part of them lies (0.5, 0.99)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else None
