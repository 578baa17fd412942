"""The loop runs a role, outlives its failures, says each trouble once, and never spins."""

from __future__ import annotations

import logging
import threading
import time

import pytest

from broker.errors import Damaged, Unavailable
from broker.roles.loop import PAUSE_SECONDS_MIN, Loop


class Stop(threading.Event):
    """Notes how long it is waited for."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def wait(self, timeout=None):
        self.asked.append(timeout)
        return super().wait(timeout)


class Role:
    """Steps by a script: numbers are given back, errors raised; after the last one the loop is stopped."""

    def __init__(self, script):
        self.script = list(script)
        self.stop = Stop()
        self.times = []

    def step(self):
        self.times.append(time.monotonic())
        turn = self.script.pop(0)
        if not self.script:
            self.stop.set()
        if isinstance(turn, Exception):
            raise turn
        return turn

    def run(self, **options):
        Loop("role", self.step, self.stop, **options).run()
        return self.times


def told(caplog):
    return [record.getMessage() for record in caplog.records]


def test_a_stopped_loop_does_no_step():
    role = Role([1])
    role.stop.set()
    assert role.run() == []


def test_it_goes_on_at_once_while_there_is_work():
    times = Role([1] * 50).run(pace_seconds=60)
    assert len(times) == 50


def test_it_rests_while_there_is_none():
    times = Role([0, 0]).run(pace_seconds=0.1)
    assert times[1] - times[0] >= 0.1


def test_stopping_ends_a_rest_at_once():
    role = Role([0, 0])
    thread = threading.Thread(target=role.run, kwargs={"pace_seconds": 600}, daemon=True)
    thread.start()
    role.stop.set()
    thread.join(60)
    assert not thread.is_alive()


def test_a_bell_ends_a_rest_early():
    rests = []
    times = Role([0, 0]).run(pace_seconds=600, bell=lambda seconds: rests.append(seconds) or True)
    assert rests[0] == 600
    assert times[1] - times[0] < 60


def test_a_bell_that_cannot_ring_is_no_reason_to_spin():
    times = Role([0, 0]).run(pace_seconds=0.1, bell=lambda _: False)
    assert times[1] - times[0] >= 0.1


def test_a_bell_that_rings_without_end_does_not_spin():
    role = Role([0] * 21)
    times = role.run(pace_seconds=60, bell=lambda _: True)
    assert times[-1] - times[0] >= 20 * 0.0019


def test_an_outage_is_told_when_it_begins_and_when_it_ends(caplog):
    caplog.set_level(logging.DEBUG)
    Role([*[Unavailable("Redis does not answer")] * 4, 0, 0]).run(pace_seconds=0)

    assert len(told(caplog)) == 2
    assert told(caplog)[0] == "role: Redis does not answer; trying on"
    assert told(caplog)[1].startswith("role works again after ")


def test_each_outage_is_told(caplog):
    Role([Unavailable("one"), 0, Unavailable("two"), 0]).run(pace_seconds=0)
    assert len(told(caplog)) == 4


def test_the_pauses_grow_and_never_fall_below_a_twentieth_of_a_second():
    role = Role([Unavailable("away")] * 5)
    role.run()
    pauses = role.stop.asked[:4]
    assert min(pauses) >= PAUSE_SECONDS_MIN
    assert pauses[3] > 2 * pauses[0]


def test_after_a_success_the_first_pause_is_short_again():
    away = [Unavailable("away")] * 4
    role = Role([*away, 0, Unavailable("away"), 0])
    role.run(pace_seconds=0)
    *grown, _rest, after, _last = role.stop.asked
    assert after == grown[0] == PAUSE_SECONDS_MIN


def test_any_other_error_is_told_with_its_trace_once_a_minute(caplog):
    Role([*[KeyError(f"key {n}") for n in range(4)], 0]).run(pace_seconds=0)

    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert [record.getMessage() for record in errors] == ["role failed, trying on: 'key 0'"]
    assert errors[0].exc_info


def test_what_was_raised_on_purpose_is_one_line(caplog):
    Role([*[Damaged(f"key {n}") for n in range(4)], 0]).run(pace_seconds=0)

    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert [record.getMessage() for record in errors] == ["role failed, trying on: key 0"]
    assert not errors[0].exc_info


def test_an_error_between_successes_is_not_told_each_time(caplog):
    Role([ValueError("no"), 0, ValueError("no"), 0, ValueError("no"), 0]).run(pace_seconds=0)
    assert len(told(caplog)) == 2


def test_a_bell_that_fails_is_a_failure_like_any_other(caplog):
    def bell(seconds):
        raise Unavailable("no bell")

    times = Role([0, 0]).run(bell=bell)
    assert times[1] - times[0] >= PAUSE_SECONDS_MIN * 0.99
    assert told(caplog)[0] == "role: no bell; trying on"


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
def test_an_order_to_end_is_no_error(end):
    def step():
        raise end

    with pytest.raises(end):
        Loop("role", step, threading.Event()).run()
