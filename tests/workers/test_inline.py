"""`--inline`: the job in the worker's own process, the beats in a child of it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.workers.fleet import alive, until


def beater(worker):
    """The small child process that beats."""
    children = Path(f"/proc/{worker.pid}/task/{worker.pid}/children")
    [pid] = until(lambda: children.read_text().split())
    return int(pid)


def test_jobs_run_one_after_another_without_a_fork(fleet):
    worker = fleet.worker("echo", "--inline")
    child = beater(worker)
    for n in range(3):
        assert fleet.run("echo", n).state == "completed"
    assert beater(worker) == child
    until(lambda: not fleet.leftovers())


def test_beats_go_on_while_a_job_holds_the_interpreter(fleet, tmp_path):
    """They come from another process, and name the job."""
    os.mkfifo(tmp_path / "door")
    fleet.worker("grip", "--inline")
    job = fleet.hand(fleet.submit("grip", str(tmp_path / "door")))
    record = fleet.started(job)
    until(lambda: job.record().last_seen > record.last_seen + 500)
    until(lambda: [seen for seen in fleet.broker.workers() if seen.job == str(job.key)])
    assert job.record().state == "running"
    door = os.open(tmp_path / "door", os.O_RDWR)
    assert fleet.ended(job).state == "completed"
    os.close(door)
    until(lambda: [seen for seen in fleet.broker.workers() if seen.job == ""])


def test_cancel_sets_the_flag_for_each_job_anew(fleet, tmp_path):
    fleet.worker("polite", "--inline")
    for n in range(2):
        mark = tmp_path / str(n)
        job = fleet.hand(fleet.submit("polite", str(mark)))
        until(mark.exists)
        assert job.record().state == "running"
        job.cancel()
        assert fleet.ended(job).state == "cancelled"


def test_a_timeout_is_refused_by_name(fleet):
    fleet.worker("echo", "--inline")
    record = fleet.run("echo", 1, timeout=5, attempts=1)
    assert (record.state, record.reason) == ("failed", "inline")
    assert record.error.startswith("an inline worker cannot enforce a timeout")


def test_a_failure_is_told_and_the_worker_goes_on(fleet):
    worker = fleet.worker("raise", "--inline")
    assert fleet.run("raise", "boom", attempts=1).error == "ValueError: boom"
    assert worker.poll() is None


def test_the_beats_die_with_the_worker(fleet):
    worker = fleet.worker("nap", "--inline")
    child = beater(worker)
    worker.kill()
    until(lambda: not alive(child))


def test_asked_to_stop_it_finishes_its_job_and_leaves(fleet):
    worker = fleet.worker("nap", "--inline")
    child = beater(worker)
    job = fleet.hand(fleet.submit("nap", 0.8))
    fleet.started(job)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(180) == 0
    assert job.record().state == "completed"
    assert not alive(child)
    assert fleet.broker.workers() == []


def test_the_supervisor_says_what_inline_means(fleet):
    supervisor = fleet.supervisor(("echo", 1), inline=True)
    assert "they cannot be killed, nor have a timeout" in supervisor.log.read_text()
    assert fleet.run("echo", 1).state == "completed"
