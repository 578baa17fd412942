"""Redis's time as a process carries it on between two readings."""

from __future__ import annotations

import random

import pytest

from broker.store import connection
from broker.store.connection import Clock


class Server:
    """Its clock and ours are one, but for what it was set `ahead`; it is read `late` seconds after the question, and
    the answer needs `back` seconds more.
    """

    def __init__(self):
        self.seconds = 1_000.0
        self.ahead = 0
        self.late = 0.0
        self.back = 0.0
        self.asked = 0

    def monotonic(self):
        return self.seconds

    def time(self):
        self.asked += 1
        self.seconds += self.late
        told = self.seconds + self.ahead
        self.seconds += self.back
        return int(told), int(told % 1 * 1_000_000)


@pytest.fixture
def server(monkeypatch):
    made = Server()
    monkeypatch.setattr(connection, "time", made)
    return made


def test_a_reading_is_carried_on_for_a_while_and_then_made_anew(server):
    clock = Clock(server)
    assert clock.now() == 1_000_000
    server.seconds += 4.5
    assert (clock.now(), server.asked) == (1_004_500, 1)
    server.seconds += 0.5
    assert (clock.now(), server.asked) == (1_005_000, 2)


def test_a_reading_that_a_stall_held_up_is_not_carried_on(server):
    """Redis stood still: it told its time at the end of that, and nobody knows where between the two ends."""
    clock = Clock(server)
    server.late = 3.0
    assert clock.now() == 1_003_000  # and nothing later, from which the next one would go back
    server.late = 0.0
    assert clock.now() == 1_003_000
    assert clock.now() == 1_003_000
    assert server.asked == 2


def test_it_is_never_ahead_and_never_goes_back_however_long_the_answers_take(server):
    clock, chance, last = Clock(server), random.Random(7), 0
    for _ in range(1_000):
        server.late, server.back = (chance.choice((0.0, 0.001, 0.4, 3.0)) for _ in "12")
        server.seconds += chance.choice((0.0, 0.01, 3.0))
        now = clock.now()
        assert last <= now <= server.seconds * 1_000
        last = now


@pytest.mark.parametrize("step", [-100, 100])
def test_it_follows_a_clock_that_was_set(server, step):
    clock = Clock(server)
    clock.now()
    server.ahead = step
    server.seconds += 5
    assert clock.now() == 1_005_000 + step * 1_000


def test_a_slow_way_is_no_stall(server):
    clock = Clock(server)
    server.late = 0.5
    clock.now()
    clock.now()
    assert server.asked == 1
