"""Redis's time as a process carries it on between two readings."""

from __future__ import annotations

import pytest

from broker.store import connection
from broker.store.connection import Clock


class Server:
    """Its clock and ours are one; an answer is given `late` seconds after the question, read at the very end."""

    def __init__(self):
        self.seconds = 1_000.0
        self.late = 0.0
        self.asked = 0

    def monotonic(self):
        return self.seconds

    def time(self):
        self.asked += 1
        self.seconds += self.late
        return int(self.seconds), int(self.seconds % 1 * 1_000_000)


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
    clock.now()
    server.late = 0.0
    assert clock.now() == 1_003_000
    assert clock.now() == 1_003_000
    assert server.asked == 2


def test_a_slow_way_is_no_stall(server):
    clock = Clock(server)
    server.late = 0.5
    clock.now()
    clock.now()
    assert server.asked == 1
