"""The fork beside a thread: the way in which horses hang. And the races of names and numbers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from tests.workers.fleet import ROOT, alive, until
from workers.line import Line
from workers.pulse import Pulse, Watch
from workers.system import kill_group

FORKS = 300
#: Some 15 are usual. A hang of one fork shows by its end, and not by this.
FORKS_SECONDS_MAX = 900.0


@pytest.mark.timeout(FORKS_SECONDS_MAX + 100)
def test_no_horse_hangs_under_a_beat_of_half_a_millisecond(fleet):
    jobs = fleet.broker.submit_many("locked", range(FORKS), attempts=1)
    for job in jobs:
        fleet.hand(job)
    fleet.worker("locked", imports="tests.workers.busy_beat")
    until(lambda: not fleet.broker.jobs(state="queued"), FORKS_SECONDS_MAX, every=0.5)
    until(lambda: not fleet.broker.jobs(state="running"))
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


def test_a_horse_that_stood_still_with_its_worker_did_not_hang(monkeypatch):
    here = [100.0]
    clock = SimpleNamespace(monotonic=lambda: here[0], sleep=time.sleep)
    monkeypatch.setattr("workers.pulse.time", clock)
    watch = Watch(SimpleNamespace(key="k"), Line(), timeout_ms=0, start_ms=3_000, stop_ms=0)
    with subprocess.Popen(["sleep", "60"]) as horse:
        watch.forked(horse.pid)
        here[0] += 3.1  # nobody looked: both were frozen
        watch.step()
        assert not watch.hung
        assert watch.next_at() == pytest.approx(here[0] + 3)
        for _ in range(4):
            here[0] += 1.0
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


@pytest.mark.parametrize("number", [signal.SIGALRM, signal.SIGTERM, signal.SIGINT])
def test_no_signal_comes_between_the_reaping_and_its_note(monkeypatch, number):
    """What RQ's alarm or an order to end raises there would lose the status, and leave a number to kill later."""

    class Raised(BaseException):
        pass

    def handler(signum, frame):
        raise Raised

    def wait4(*names, reap=os.wait4):
        reaped = reap(*names)
        signal.pthread_kill(threading.get_ident(), number)
        return reaped

    monkeypatch.setattr(os, "wait4", wait4)
    before = signal.signal(number, handler)
    try:
        watch = Watch(SimpleNamespace(key="k"), Line(), timeout_ms=0, start_ms=0, stop_ms=0)
        child = os.fork()
        if child == 0:
            os._exit(3)
        watch.forked(child)
        with pytest.raises(Raised):
            watch.wait()
    finally:
        signal.signal(number, before)
    assert watch.pid == 0
    assert os.waitstatus_to_exitcode(watch.status) == 3
    assert watch.wait() == (None, watch.status, None)
    assert number not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_a_horse_is_waited_for_where_it_cannot_be_looked_at_unreaped(monkeypatch):
    monkeypatch.delattr(os, "waitid")
    watch = Watch(SimpleNamespace(key="k"), Line(), timeout_ms=0, start_ms=0, stop_ms=0)
    with subprocess.Popen(["sh", "-c", "sleep 0.2; exit 4"]) as child:
        watch.forked(child.pid)
        assert watch.wait()[:2] == (child.pid, 4 << 8)
        child.returncode = 4
    assert watch.pid == 0


def test_the_thread_of_the_pulse_takes_no_signal_off_the_main_thread():
    """Python runs a handler in the main thread, whichever thread got the signal: its mask alone would not help."""
    masks = []

    class Masked(Pulse):
        def check(self):
            pass

        def run(self):
            masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, []))

    config = SimpleNamespace(budgets=SimpleNamespace(beat_ms=1_000))
    pulse = Masked(SimpleNamespace(config=config), None, None)
    pulse.start()
    until(lambda: masks)
    pulse.stop()
    assert masks[0] >= {signal.SIGALRM, signal.SIGTERM, signal.SIGINT}
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, []) & {signal.SIGALRM, signal.SIGTERM}
