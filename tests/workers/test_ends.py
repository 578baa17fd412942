"""How an attempt may end, and what is said of it: a real worker, a real queue, a real process for each job."""

from __future__ import annotations

import pytest

from tests.workers.fleet import alive, until

NEVER_SAID = "its process ended without a word"


def test_a_job_runs_and_its_result_is_kept(fleet):
    fleet.worker("echo")
    job = fleet.hand(fleet.submit("echo", {"n": 1}, model="big"))
    record = fleet.ended(job)
    assert (record.state, record.rule, record.tries, record.deaths) == (
        "completed",
        "finished",
        1,
        0,
    )
    assert job.result() == {"echo": {"n": 1}, "attempt": 1, "tries": 1, "model": "big"}
    assert fleet.rules(job) == ["submitted", "placed", "started", "finished"]


def test_nothing_stays_in_rq(fleet):
    fleet.worker("echo")
    for n in range(3):
        fleet.hand(fleet.submit("echo", n))
    until(lambda: len(fleet.broker.jobs(state="completed")) == 3)
    until(lambda: not fleet.leftovers())


def test_output_and_progress_come_by_the_lane(fleet):
    worker = fleet.worker("talk")
    job = fleet.hand(fleet.submit("talk"))
    fleet.ended(job)
    said = [(chunk.what, chunk.text, chunk.attempt) for chunk in job.output()]
    assert said == [
        ("chunk", "hello ", 1),
        ("progress", "0.5", 1),
        ("chunk", "wörld", 1),
        ("progress", "1", 1),
    ]
    until(lambda: "printed" in worker.log.read_text())


def test_a_coroutine_is_run_to_its_end(fleet):
    fleet.worker("later")
    assert fleet.run("later").state == "completed"


def test_a_failure_is_tried_again_after_a_pause_until_the_tries_are_used_up(fleet):
    fleet.worker("raise")
    job = fleet.submit("raise", "boom", attempts=2)
    fleet.hand(job)
    first = until(lambda: (record := job.record()).rule == "requeued" and record)
    assert (first.state, first.attempt, first.tries, first.node) == ("queued", 2, 1, "")
    assert first.due > 0
    last = fleet.finish(job)
    assert (last.state, last.tries, last.reason, last.deaths) == ("failed", 2, "error", 0)
    assert last.error == "ValueError: boom"
    assert "in fail" in fleet.broker.view.result(job.key)["error"]  # the traceback


def test_a_job_that_works_at_last_is_completed(fleet):
    fleet.worker("flaky")
    record = fleet.run("flaky", 2)
    assert (record.state, record.tries, record.error) == ("completed", 2, "")


def test_permanent_is_not_tried_again(fleet):
    fleet.worker("permanent")
    record = fleet.run("permanent")
    assert (record.state, record.tries, record.reason, record.error) == (
        "failed",
        1,
        "permanent",
        "no way",
    )


def test_a_payload_may_be_null_but_not_gone(fleet):
    fleet.worker("echo")
    job = fleet.submit("echo")
    fleet.finish(job)
    assert job.result()["echo"] is None
    lost = fleet.submit("echo")
    fleet.rq.delete(fleet.broker.store.keys.of_job(lost.key).spec)
    record = fleet.finish(lost)
    assert (record.state, record.reason, record.tries) == ("failed", "permanent", 1)


@pytest.mark.parametrize(
    "engine,payload,says",
    [("not-json", None, "result is not JSON"), ("huge", 1024 * 1024, "result has 1048578 bytes")],
)
def test_a_result_that_cannot_be_kept_is_a_permanent_failure(fleet, engine, payload, says):
    fleet.worker(engine)
    record = fleet.run(engine, payload)
    assert (record.state, record.tries, record.reason) == ("failed", 1, "permanent")
    assert record.error.startswith(says)


def test_a_result_just_within_the_bound_is_kept(fleet):
    fleet.worker("huge")
    assert fleet.run("huge", 1024 * 1024 - 2).state == "completed"


@pytest.mark.parametrize(
    "engine,payload,says",
    [
        ("exit", 0, f"{NEVER_SAID} (exit code 0)"),
        ("exit", 7, f"{NEVER_SAID} (exit code 7)"),
    ],
)
def test_a_process_that_leaves_without_a_word_died(fleet, engine, payload, says):
    fleet.worker(engine)
    record = fleet.run(engine, payload, attempts=1)
    assert (record.state, record.reason, record.deaths, record.error) == ("failed", "died", 1, says)
    until(lambda: not fleet.leftovers())


def test_the_third_death_is_poison(fleet):
    fleet.worker("exit")
    record = fleet.run("exit", 1, attempts=10)
    assert (record.state, record.reason, record.deaths, record.tries) == ("failed", "poison", 3, 3)


@pytest.mark.parametrize(
    "engine,says",
    [("sysexit", "SystemExit: enough"), ("late-import", "ModuleNotFoundError: No module named")],
)
def test_a_job_that_ends_its_interpreter_or_cannot_import_only_fails(fleet, engine, says):
    fleet.worker(engine)
    record = fleet.run(engine, attempts=1)
    assert (record.state, record.deaths) == ("failed", 0)
    assert record.error.startswith(says)


def test_what_a_job_leaves_running_ends_with_it(fleet):
    fleet.worker("litter")
    job = fleet.hand(fleet.submit("litter"))
    fleet.ended(job)
    child = job.result()
    until(lambda: not alive(child))


def test_a_hand_off_that_came_twice_runs_once(fleet):
    """After a job's end its RQ id is free again; the start refuses it, and nothing is left."""
    fleet.worker("echo")
    job = fleet.hand(fleet.submit("echo", 1))
    record = fleet.ended(job)
    until(lambda: not fleet.leftovers())
    fleet.enqueue(job.key, record.created_at, 1)
    fleet.enqueue(job.key, record.created_at, 2)
    until(lambda: not fleet.leftovers())
    assert fleet.rules(job) == ["submitted", "placed", "started", "finished"]
    assert job.record().tries == 1
