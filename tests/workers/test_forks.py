"""The fork beside a thread: the way in which horses hang. And the races of names and numbers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests.workers.fleet import ROOT, alive, until
from workers.line import Line
from workers.pulse import Watch
from workers.system import kill_group

FORKS = 300


def test_no_horse_hangs_under_a_beat_of_half_a_millisecond(fleet):
    jobs = fleet.broker.submit_many("locked", range(FORKS), attempts=1)
    for job in jobs:
        fleet.hand(job)
    fleet.worker("locked", imports="tests.workers.busy_beat")
    until(lambda: len(fleet.broker.jobs(state="queued")) == 0, seconds=90, every=0.5)
    until(lambda: len(fleet.broker.jobs(state="running")) == 0)
    ended = fleet.broker.jobs()
    assert {listed.record.state for listed in ended} == {"completed"}
    assert len(ended) == FORKS


def test_a_horse_can_only_hang_once_it_was_forked():
    """The fork waits for a beat in flight, which may last longer than a horse has for its first step."""
    watch = Watch(SimpleNamespace(key="k"), Line(), timeout_ms=0, start_ms=0, stop_ms=0)
    watch.step()
    assert not watch.hung
    with subprocess.Popen(["sleep", "60"]) as horse:
        watch.forked(horse.pid)
        watch.step()
    assert watch.hung
    assert horse.returncode == -signal.SIGKILL


@pytest.mark.parametrize("leads", [True, False])
def test_a_kill_never_hits_our_own_group(leads):
    """Right after the fork a child is still in our group."""
    child = os.fork()
    if child == 0:
        if leads:
            os.setpgrp()
        signal.pause()
        os._exit(0)
    until(lambda: (os.getpgid(child) == child) == leads)
    kill_group(child)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL


@pytest.mark.parametrize("pid", [0, 1, -1])
def test_a_kill_of_no_child_is_no_kill(pid):
    kill_group(pid)
    assert alive(os.getpid())


def test_a_child_whose_parent_died_too_early_ends(tmp_path):
    """The kernel sends no signal for a parent that was gone before it was asked: the child looks itself."""
    code = "from workers.system import die_with_parent; die_with_parent(1234567); print('alive')"
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stdout) == (1, "")


def test_a_fork_that_fails_is_told_as_it_was_and_the_worker_lives(fleet):
    worker = fleet.worker("echo", imports="tests.workers.failing_fork")
    record = fleet.run("echo", attempts=1)
    assert (record.state, record.reason, record.deaths) == ("failed", "error", 0)
    assert record.error.startswith("it could not be run: ")
    assert "Resource temp" in record.error
    assert fleet.run("echo", 1).state == "completed"
    assert worker.poll() is None
