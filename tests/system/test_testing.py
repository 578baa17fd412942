"""broker.testing, as the tests of a program that uses the broker see it."""

from __future__ import annotations

import pytest

from broker.errors import JobFailed, Refused
from broker.producer import JobEvents
from broker.rules.event import Remove
from broker.testing import MemoryBroker
from workers import Permanent

pytest_plugins = ["pytester"]


@pytest.fixture
def memory_broker():
    with MemoryBroker() as broker:
        yield broker


def rules(broker, key):
    return [entry.rule for entry in broker.log(key.origin).entries() if entry.job == key.job]


def test_a_job_runs_inline_by_the_very_events_of_the_fleet(memory_broker):
    memory_broker.engine("double", lambda ctx, payload: {"n": payload["n"] * 2})
    job = memory_broker.submit("double", {"n": 21})
    assert memory_broker.run_jobs() == [job.key]
    assert job.result() == {"n": 42}
    record = job.record()
    assert (record.state, record.node, record.attempt, record.tries) == (
        "completed",
        "memory",
        1,
        1,
    )
    assert rules(memory_broker, job.key) == ["submitted", "placed", "started", "finished"]


def test_the_engine_is_given_a_context(memory_broker):
    seen = []

    def engine(ctx, payload):
        seen.append((ctx.key, ctx.attempt, ctx.tries, ctx.model, ctx.cancelled, payload))
        ctx.progress(0.5)
        ctx.write(b"half \xff")

    memory_broker.engine("e", engine)
    job = memory_broker.submit("e", ["p"], model="llama3")
    memory_broker.run_jobs()
    assert seen == [(str(job.key), 1, 1, "llama3", False, ["p"])]
    assert [chunk.text for chunk in job.output()] == ["0.5", "half \ufffd"]


def test_a_failure_is_retried_without_waiting_for_its_backoff(memory_broker):
    tries = []

    def engine(ctx, payload):
        tries.append((ctx.attempt, ctx.tries))
        if len(tries) < 3:
            raise OSError("flaky")
        return "at last"

    memory_broker.engine("flaky", engine)
    job = memory_broker.submit("flaky")
    assert memory_broker.run_jobs() == [job.key] * 3
    assert (tries, job.result()) == ([(1, 1), (2, 2), (3, 3)], "at last")


def test_what_fails_for_good_is_told_as_in_the_fleet(memory_broker):
    def engine(ctx, payload):
        raise payload_error

    payload_error = ValueError("bad")
    memory_broker.engine("e", engine)
    job = memory_broker.submit("e", attempts=2)
    assert len(memory_broker.run_jobs()) == 2
    assert (job.record().state, job.record().error) == ("failed", "ValueError: bad")
    with pytest.raises(JobFailed):
        job.result()


def test_a_permanent_failure_is_not_tried_again(memory_broker):
    def engine(ctx, payload):
        raise Permanent("never")

    memory_broker.engine("e", engine)
    job = memory_broker.submit("e", attempts=5)
    assert len(memory_broker.run_jobs()) == 1
    assert (job.record().state, job.record().reason) == ("failed", "permanent")


def test_a_result_that_is_no_json_fails_the_job(memory_broker):
    memory_broker.engine("e", lambda ctx, payload: object())
    job = memory_broker.submit("e")
    assert len(memory_broker.run_jobs()) == 1
    assert (job.record().state, job.record().reason) == ("failed", "permanent")


def test_a_delayed_job_runs_when_its_time_comes(memory_broker):
    memory_broker.engine("e", lambda ctx, payload: None)
    job = memory_broker.submit("e", delay=3600)
    assert memory_broker.run_jobs(jump=False) == []
    memory_broker.advance(1800)  # the clock goes on by itself, too
    assert memory_broker.run_jobs(jump=False) == []
    memory_broker.advance(1800)
    assert memory_broker.run_jobs(jump=False) == [job.key]


def test_jumping_runs_what_is_delayed_in_its_order(memory_broker):
    memory_broker.engine("e", lambda ctx, payload: None)
    delays = (3600, 0, 1800)
    jobs = [memory_broker.submit("e", delay=delay) for delay in delays]
    ran = memory_broker.run_jobs()
    assert ran == [jobs[1].key, jobs[2].key, jobs[0].key]
    for delay, record in zip(delays, (job.record() for job in jobs), strict=True):
        assert record.started_at - record.created_at >= delay * 1000


def test_a_job_of_an_engine_that_nobody_gave_stays_queued(memory_broker):
    memory_broker.engine("known", lambda ctx, payload: None)
    unknown = memory_broker.submit("unknown", priority=9)
    memory_broker.submit("unknown", delay=5)
    known = memory_broker.submit("known")
    assert memory_broker.run_jobs() == [known.key]
    assert unknown.record().state == "queued"
    assert memory_broker.clock.ahead_ms == 0


def test_a_cancelled_job_never_runs(memory_broker):
    memory_broker.engine("e", lambda ctx, payload: None)
    job = memory_broker.submit("e")
    assert job.cancel().applied
    assert memory_broker.run_jobs() == []


@pytest.mark.parametrize("ending", ["returns", "raises"])
def test_an_engine_that_sees_the_wish_ends_as_cancelled(memory_broker, ending):
    def engine(ctx, payload):
        memory_broker.cancel(ctx.key)
        assert ctx.cancelled
        if ending == "raises":
            raise RuntimeError("interrupted")

    memory_broker.engine("e", engine)
    job = memory_broker.submit("e")
    memory_broker.run_jobs()
    assert (job.record().state, job.record().error) == ("cancelled", "")


def test_an_engine_whose_job_was_removed_by_force_has_no_last_word(memory_broker):
    def engine(ctx, payload):
        memory_broker.remove(ctx.key, force=True)
        assert ctx.cancelled
        return "too late"

    memory_broker.engine("e", engine)
    memory_broker.submit("e")
    assert len(memory_broker.run_jobs()) == 1
    assert memory_broker.jobs() == []


def test_an_engine_may_submit_further_jobs(memory_broker):
    memory_broker.engine("parent", lambda ctx, n: [memory_broker.submit("child", i).id for i in range(n)])  # fmt: skip
    memory_broker.engine("child", lambda ctx, payload: payload)
    memory_broker.submit("parent", 3)
    assert len(memory_broker.run_jobs()) == 4


def test_jobs_that_make_each_other_for_ever_are_stopped(memory_broker, monkeypatch):
    monkeypatch.setattr("broker.testing.JOBS_MAX", 5)
    memory_broker.engine("e", lambda ctx, payload: memory_broker.submit("e").id)
    memory_broker.submit("e")
    with pytest.raises(RuntimeError, match="5 jobs ran"):
        memory_broker.run_jobs()


def test_refusals_are_those_of_the_fleet(memory_broker):
    memory_broker.submit("e", {"a": 1}, id="same")
    assert memory_broker.submit("e", {"a": 1}, id="same").id == "same"
    with pytest.raises(Refused, match="conflict"):
        memory_broker.submit("e", {"a": 2}, id="same")


def test_reports_are_merged_by_the_same_lua(memory_broker):
    with JobEvents(memory_broker, "ollama") as events:
        job = events.create()
        memory_broker.report(Remove(key=job.key))
        events.dispatch(job, "a")
    assert memory_broker.jobs() == []


def test_two_brokers_share_nothing(memory_broker):
    memory_broker.submit("e")
    with MemoryBroker() as other:
        assert other.jobs() == []


def test_a_users_suite_needs_one_line(pytester):
    pytester.makeconftest(
        """
        import pytest

        pytest_plugins = ["broker.testing"]

        @pytest.fixture
        def broker_engines():
            return {"upper": lambda ctx, payload: payload.upper()}
        """
    )
    pytester.makepyfile(
        """
        def test_mine(memory_broker):
            job = memory_broker.submit("upper", "a")
            memory_broker.run_jobs()
            assert job.result() == "A"

        def test_each_test_has_its_own(memory_broker):
            assert memory_broker.jobs() == []
            memory_broker.engine("lower", lambda ctx, payload: payload.lower())
            job = memory_broker.submit("lower", "A")
            assert memory_broker.run_jobs() == [job.key]
        """
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=2)
