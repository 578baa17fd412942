"""Which ends of a node's workers `broker up` makes good, which it leaves alone, and which end it."""

from __future__ import annotations

import subprocess

import pytest

from broker.cli import children
from broker.cli.children import Children, Ended


class Process:
    """Ends when it was told to `stubborn` times."""

    code = None
    stubborn = 1

    def poll(self):
        return self.code

    def send_signal(self, number):
        self.stubborn -= 1
        if self.stubborn <= 0:
            self.code = 0

    def wait(self, seconds=None):
        if self.code is None:
            raise subprocess.TimeoutExpired("it", seconds)
        return self.code


@pytest.fixture
def fleet(monkeypatch):
    """One node whose workers are no processes; `spawned` are all that were started for it."""
    monkeypatch.setattr(children, "AGAIN_SECONDS", 0.0)
    made = Children(["node-a"], url="unix:///run/x", slots=None, engines=[], imports=[])
    made.spawned = []

    def spawn(node):
        made.spawned.append(Process())
        return made.spawned[-1]

    monkeypatch.setattr(made, "_spawn", spawn)
    made.start()
    return made


def look(fleet, times=3):
    for _ in range(times):
        fleet.look()


def test_workers_that_live_are_left_alone(fleet):
    look(fleet)
    assert len(fleet.spawned) == 1


def test_killed_workers_are_started_again_each_time(fleet):
    for count in (2, 3):
        fleet.spawned[-1].code = -9
        look(fleet)
        assert len(fleet.spawned) == count


def test_workers_that_were_told_to_end_are_left_alone(fleet):
    fleet.spawned[-1].code = 0
    look(fleet)
    assert len(fleet.spawned) == 1


def test_workers_that_gave_up_end_it(fleet):
    fleet.spawned[-1].code = 1
    with pytest.raises(Ended, match="node-a gave up"):
        fleet.look()


@pytest.mark.parametrize(
    "stubborn,is_urgent,is_said", [(1, False, False), (2, True, False), (2, False, True)]
)
def test_that_it_ends_what_nobody_asked_it_to_end_at_once_is_said(
    fleet, monkeypatch, caplog, stubborn, is_urgent, is_said
):
    monkeypatch.setattr(children, "FINISH_SECONDS", 0.0)
    fleet.spawned[-1].stubborn = stubborn
    fleet.stop(lambda: is_urgent)
    assert fleet.spawned[-1].code == 0
    assert ("node-a did not end within 0 s" in caplog.text) == is_said
