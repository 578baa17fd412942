"""What every figure of the benchmark is made with: turns, quartiles, a socket that costs the client next to nothing."""

from __future__ import annotations

import gc
import random
import socket
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import hiredis

#: Of the order of the slices within a turn, and of nothing else: what is measured is the same in every run.
SEED = 20261129


@dataclass(frozen=True)
class Row:
    """One figure. `goal` is text (`>= 0.80`), empty where the figure is told for its own sake.

    Without values it was not measured this time.
    """

    name: str
    values: Sequence[float]
    unit: str
    what: str
    goal: str = ""

    @property
    def quartiles(self) -> tuple[float, float, float] | None:
        """First quartile, median, third quartile."""
        if len(self.values) < 2:
            return (self.values[0],) * 3 if self.values else None
        first, median, third = statistics.quantiles(self.values, n=4, method="inclusive")
        return first, median, third

    @property
    def met(self) -> bool | None:
        """Whether the median is within the goal, None where there is none."""
        if not self.goal or not self.quartiles:
            return None
        sign, number = self.goal.split()
        median = self.quartiles[1]
        return median >= float(number) if sign == ">=" else median <= float(number)

    def to_json(self) -> dict[str, Any]:
        """The figure as `-o json` prints it."""
        rounded = [float(f"{number:.6g}") for number in self.quartiles or ()]
        q1, value, q3 = rounded or (None, None, None)
        return {
            "name": self.name,
            "value": value,
            "q1": q1,
            "q3": q3,
            "goal": self.goal or None,
            "unit": self.unit,
            "n": len(self.values),
        }


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Turn by turn: what drifts between turns (another load, a slower clock) falls out."""
    return [one / other for one, other in zip(above, below, strict=True)]


def in_turns(
    slices: dict[str, Callable[[int], float]], turns: int, *, warm_up: int = 1
) -> dict[str, list[float]]:
    """Call every slice once a turn, in random order within the turn; give what each returned, turn by turn."""
    order = random.Random(SEED)
    names = list(slices)
    found: dict[str, list[float]] = {name: [] for name in names}
    gc.collect()
    gc.disable()
    try:
        for turn in range(-warm_up, turns):
            order.shuffle(names)
            for name in names:
                value = slices[name](turn)
                if turn >= 0:
                    found[name].append(value)
            gc.collect()
    finally:
        gc.enable()
    return found


def timed(work: Callable[[], object]) -> float:
    """How many seconds it took."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def pack(*words: str | bytes | int) -> bytes:
    """One command as Redis reads it."""
    return bytes(hiredis.pack_command(words))


class Wire:
    """A plain socket to Redis for commands that were packed beforehand: the client's part of a slice is one send."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._reader = hiredis.Reader()

    def close(self) -> None:
        """Give back the connection."""
        self._socket.close()

    def ask(self, *words: str | bytes | int) -> Any:
        """Send one command and give its reply."""
        return self.send(pack(*words), 1)[0]

    def send(self, packed: bytes, replies: int) -> list[Any]:
        """Send and wait for so many replies; raises the first error among them."""
        self._socket.sendall(packed)
        found: list[Any] = []
        while len(found) < replies:
            reply = self._reader.gets()
            if reply is False:
                self._reader.feed(self._socket.recv(1 << 18))
                continue
            if isinstance(reply, hiredis.ReplyError):
                raise reply
            found.append(reply)
        return found


class Packer:
    """Stands in for a store's scripts: keeps what a view would send, packed for the wire."""

    def __init__(self, sha: str) -> None:
        self._sha = sha
        self.calls: list[bytes] = []

    def run(self, name: str, keys: Sequence[str], args: Sequence[str | int | bytes]) -> list[bytes]:
        """Keep the call of a script; its answer is of no event, in a log without an epoch."""
        del name
        self.calls.append(pack("EVALSHA", self._sha, len(keys), *keys, *args))
        return [b""]
