"""Jobs that must end before they are done: by a wish, by the clock, by a death."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.workers.fleet import BUDGETS, PATIENT, alive, ask_twice, until


@pytest.fixture
def mark(tmp_path):
    """A file into which an engine writes the pid of its process."""
    return tmp_path / "pid"


def horse(mark):
    return int(until(lambda: mark.exists() and mark.read_text()))


def begin(fleet, engine, mark, **options):
    """Hand a job over, and wait until its engine runs; give the job and the pid of its process."""
    job = fleet.hand(fleet.submit(engine, str(mark), **options))
    return job, horse(mark)


# --- wishes


def test_a_cancelled_job_that_is_queued_is_never_started(fleet):
    fleet.worker("echo")
    job = fleet.submit("echo")
    record = job.record()
    assert job.cancel().rule == "desired"
    fleet.enqueue(job.key, record.created_at, record.attempt)
    until(lambda: not fleet.leftovers())
    assert fleet.rules(job) == ["submitted", "desired"]


def test_a_cancelled_job_that_is_placed_is_never_started(fleet):
    job = fleet.hand(fleet.submit("echo"))
    assert job.cancel().rule == "desired"
    fleet.worker("echo")
    until(lambda: not fleet.leftovers())
    assert job.record().state == "cancelled"
    assert job.record().tries == 0


@pytest.mark.parametrize("more", [{}, {"CANCEL_FORCE": "1"}], ids=["asked", "forced"])
def test_a_job_cancelled_between_its_start_and_its_engine_does_nothing(fleet, mark, more):
    """No beat has told its worker yet; a forced one has lost its attempt, and says nothing."""
    fleet.worker("polite", imports="tests.workers.cancelling_fork", **PATIENT, **more)
    job = fleet.hand(fleet.submit("polite", str(mark)))
    assert fleet.ended(job).state == "cancelled"
    until(lambda: not fleet.leftovers())
    assert not mark.exists()
    last = ["desired"] if more else ["desired", "finished"]
    assert fleet.rules(job) == ["submitted", "placed", "started", *last]
    assert fleet.broker.view.refusals(job.key) == []


def test_a_running_job_that_looks_ends_as_cancelled_at_once(fleet, mark):
    fleet.worker("polite", **PATIENT)
    job, pid = begin(fleet, "polite", mark)
    assert job.cancel().rule == "desired"
    record = fleet.ended(job)
    assert (record.state, record.deaths, record.error) == ("cancelled", 0, "")
    until(lambda: not alive(pid))


def test_a_running_job_that_does_not_look_is_killed_after_the_grace(fleet, mark):
    fleet.worker("stubborn")
    job, pid = begin(fleet, "stubborn", mark)
    asked_at = time.monotonic()
    job.cancel()
    record = fleet.ended(job)
    # Not before. How long after is the machine's affair: of itself it would run on, and end as completed.
    assert (time.monotonic() - asked_at) * 1000 >= int(BUDGETS["STOP_MS"])
    assert (record.state, record.deaths) == ("cancelled", 0)
    assert not alive(pid)


def test_a_running_job_that_is_removed_ends_and_goes(fleet, mark):
    fleet.worker("polite", **PATIENT)
    job, pid = begin(fleet, "polite", mark)
    assert fleet.broker.remove(job.key).rule == "remove_requested"
    until(lambda: fleet.broker.view.get(job.key) is None)
    until(lambda: not alive(pid))
    assert fleet.rules(job)[-2:] == ["finished", "removed"]


def test_an_attempt_that_was_given_up_ends_without_a_word(fleet, mark):
    worker = fleet.worker("stubborn")
    job, pid = begin(fleet, "stubborn", mark)
    job.cancel(force=True)
    until(lambda: not alive(pid))
    until(lambda: not fleet.leftovers())
    assert fleet.rules(job) == ["submitted", "placed", "started", "desired"]
    assert fleet.broker.view.refusals(job.key) == []
    assert "given up elsewhere" in worker.log.read_text()


def test_a_guess_against_a_running_job_is_contradicted(fleet, mark):
    from broker.rules.event import Guess

    fleet.worker("polite", **PATIENT)
    job, _ = begin(fleet, "polite", mark)

    def guessed():
        record = job.record()
        guess = Guess(key=job.key, rev=record.rev, last_seen=record.last_seen, term=1)
        return fleet.broker.view.apply([guess])[0].rule == "guess_applied"

    until(guessed, every=0)
    until(lambda: job.record().rule == "guess_cleared")
    job.cancel()
    assert fleet.ended(job).state == "cancelled"


# --- the clock


def test_a_job_that_looks_ends_when_its_time_is_over(fleet):
    fleet.worker("polite", **PATIENT)
    job = fleet.hand(fleet.submit("polite", timeout=0.3, attempts=1))
    record = fleet.ended(job)
    assert (record.state, record.reason, record.error) == (
        "failed",
        "timeout",
        "timed out after 0.3 s",
    )
    assert record.deaths == 0


def test_a_job_that_does_not_look_is_killed_when_its_time_is_over(fleet, mark):
    fleet.worker("stubborn")
    job = fleet.hand(fleet.submit("stubborn", str(mark), timeout=1.0, attempts=1))
    record = fleet.ended(job)
    assert (record.state, record.reason, record.deaths) == ("failed", "timeout", 0)
    assert not mark.exists() or not alive(int(mark.read_text()))  # a slow machine never came so far


def test_a_timeout_may_be_tried_again(fleet):
    fleet.worker("polite", **PATIENT)
    job = fleet.hand(fleet.submit("polite", timeout=0.2, attempts=2))
    record = until(lambda: (record := job.record()).rule == "requeued" and record)
    assert (record.reason, record.attempt) == ("timeout", 2)


def test_a_horse_that_hangs_before_anything_runs_is_killed_after_the_start_deadline(fleet):
    """As one does that inherits a locked lock. Its parent beats on, so that no sweep would notice."""
    fleet.worker("echo", imports="tests.workers.hanging_fork", BROKER_BUDGETS__START_MS="500")
    record = fleet.run("echo", attempts=1)
    assert (record.state, record.reason, record.deaths) == ("failed", "hung", 1)


# --- deaths


def test_a_killed_horse_is_closed_by_its_parent(fleet, mark):
    worker = fleet.worker("stubborn")
    job, pid = begin(fleet, "stubborn", mark, attempts=2)
    os.kill(pid, signal.SIGKILL)
    # By its parent, since nobody sweeps here.
    record = until(lambda: (record := job.record()).rule == "requeued" and record)
    assert (record.reason, record.deaths, record.attempt) == ("died", 1, 2)
    assert record.error == "its process ended without a word (killed by SIGKILL)"
    assert worker.poll() is None
    until(lambda: not fleet.leftovers())


def test_a_horse_dies_with_its_parent(fleet, mark):
    worker = fleet.worker("stubborn")
    job, pid = begin(fleet, "stubborn", mark)
    worker.kill()
    until(lambda: not alive(pid))
    assert job.record().state == "running"  # nobody is left to say more: the sweep's case


def test_a_worker_asked_to_stop_finishes_its_job_and_leaves(fleet):
    worker = fleet.worker("nap")
    job = fleet.hand(fleet.submit("nap", 0.8))
    fleet.started(job)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(180) == 0
    assert job.result() == "rested"
    assert fleet.beats(worker.pid) == []
    assert not fleet.leftovers()


def test_an_idle_worker_asked_to_stop_leaves_soon(fleet):
    worker = fleet.worker("nap")
    worker.send_signal(signal.SIGINT)
    assert worker.wait(180) == 0
    assert fleet.beats(worker.pid) == []


def test_a_worker_asked_twice_gives_its_job_back(fleet, mark):
    heard = mark.with_name("heard")
    worker = fleet.worker("stubborn", imports="tests.workers.telling_stop", STOP_HEARD=str(heard))
    job, pid = begin(fleet, "stubborn", mark)
    ask_twice(worker, heard)
    assert worker.wait(180) == 1
    assert not alive(pid)
    record = job.record()
    assert (record.state, record.rule, record.reason, record.deaths) == (
        "queued",
        "requeued",
        "shutdown",
        0,
    )
    assert fleet.beats(worker.pid) == []
    assert not fleet.leftovers()
