"""JobEvents on a real Redis: what a program tells of its own jobs is what everybody sees."""

from __future__ import annotations

import asyncio
import threading

import pytest

from broker.client import Broker
from broker.config import settings
from broker.producer import AsyncJobEvents, JobEvents
from broker.rules.event import Report
from broker.store.server import PrivateRedis
from broker.store.store import Store


@pytest.fixture
def broker(store):
    return Broker(store, settings(node="desk"))


def seqs_of(broker, job):
    """The numbers of a job's events, in the log's order."""
    return [
        entry.record.seq
        for entry in broker.log("desk").entries()
        if entry.job == job.key.job and entry.record
    ]


def test_a_program_tells_of_its_jobs_and_the_log_has_them_in_order(broker):
    with JobEvents(broker, "ollama") as events:
        jobs = [events.create(model="llama3", requester="me") for _ in range(5)]

        def serve(job):
            attempt = events.dispatch(job, "node-a")
            events.start(job, "node-a", attempt=attempt)
            events.dispatch(job, "node-b")
            events.start(job, "node-a", attempt=attempt)
            events.start(job)
            events.finish(job, "completed")

        threads = [threading.Thread(target=serve, args=(job,)) for job in jobs]
        threads += [threading.Thread(target=events.finish, args=(jobs[0], "cancelled"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    records = [broker.get(job.key) for job in jobs]
    assert [record.state for record in records[1:]] == ["completed"] * 4
    assert {(record.node, record.seq, record.model) for record in records[1:]} == {
        ("node-b", 6, "llama3")
    }
    assert records[0].ended
    assert [key.origin for key in (job.key for job in jobs)] == ["desk"] * 5
    for job in jobs:
        seqs = seqs_of(broker, job)
        assert seqs == list(range(1, len(seqs) + 1))


def test_a_job_whose_process_restarts_is_another_job(broker):
    with JobEvents(broker, "ollama") as events:
        first = events.create()
    again = Report(key=first.key._replace(run="another"), created_at=1, state="running")
    assert broker.report(again).rule == "first_sighting"
    assert len(broker.jobs(engine="ollama")) == 2


def test_a_reassertion_moves_last_seen_and_writes_nothing(broker):
    with JobEvents(broker, "ollama", resync_seconds=0.0, retry_seconds=600.0) as events:
        job = events.create()
        before = broker.get(job.key)
        assert events.step() == 1
        after = broker.get(job.key)
    assert (after.rev, after.sightings) == (before.rev, before.sightings + 1)
    assert after.last_seen >= before.last_seen


def test_a_restart_of_redis_costs_no_event_and_no_order(tmp_path, namespace):
    options = {"appendonly": "yes", "appendfsync": "always"}
    with PrivateRedis(tmp_path, options=options) as server:
        broker = Broker(Store.from_url(server.url, namespace), settings(node="desk"))
        events = JobEvents(broker, "ollama", retry_seconds=600.0)
        job = events.create()
        assert events.dispatch(job, "a") == 1
    events.start(job)
    events.finish(job, "failed", "the disk is full")
    assert [report.seq for report in job.waiting] == [3, 4]
    with PrivateRedis(tmp_path, options=options) as server:
        events._broker = Broker(Store.from_url(server.url, namespace), settings(node="desk"))
        assert events.close() == 0
        assert seqs_of(events._broker, job) == [1, 2, 3, 4]
        assert events._broker.get(job.key).error == "the disk is full"
        events._broker.close()
    broker.close()


@pytest.fixture(params=["log", "meta", "origins"])
def damaged(request, broker):
    """A key that all jobs of the origin stand on is of a wrong type, until it is called."""
    keys = broker.store.keys
    name = keys.origins if request.param == "origins" else getattr(keys.of("desk"), request.param)
    broker.store.client.set(name, "spoilt")
    return lambda: broker.store.client.delete(name)


def test_words_wait_until_a_damaged_origin_is_mended(broker, damaged, caplog):
    with JobEvents(broker, "ollama", retry_seconds=600.0) as events:
        job = events.create()
        events.dispatch(job, "a")
        events.finish(job)
        assert [report.seq for report in job.waiting] == [1, 2, 3]
        assert events.step() == 0
        assert len(caplog.messages) == 1
        damaged()
        assert events.step() == 3
        assert not events.live
    assert seqs_of(broker, job) == [1, 2, 3]


def test_words_wait_until_a_damaged_job_is_mended_and_those_of_others_do_not(broker, caplog):
    with JobEvents(broker, "ollama", resync_seconds=0.0, retry_seconds=600.0) as events:
        job, other = events.create(), events.create()
        name = broker.store.keys.of_job(job.key).job
        broker.store.client.rename(name, "aside")
        broker.store.client.set(name, "spoilt")
        events.finish(job)
        events.finish(other)
        assert broker.get(other.key).state == "completed"
        assert events.step() == events.step() == 0
        assert [report.seq for report in job.waiting] == [2]
        assert len(caplog.messages) == 1
        broker.store.client.rename("aside", name)
    assert broker.get(job.key).state == "completed"
    assert seqs_of(broker, job) == [1, 2]


def test_words_wait_in_the_asyncio_form_too(broker, damaged):
    async def story():
        async with AsyncJobEvents(broker, "ollama", retry_seconds=600.0) as events:
            job = await events.create()
            await events.finish(job)
            assert len(job.waiting) == 2
            damaged()
        return job

    assert seqs_of(broker, asyncio.run(story())) == [1, 2]


def test_the_asyncio_form_uses_the_same_broker(broker):
    async def story():
        async with AsyncJobEvents(broker, "ollama") as events:
            job = await events.create()
            await asyncio.gather(events.dispatch(job, "a"), events.finish(job, "cancelled"))
        return job

    job = asyncio.run(story())
    assert (broker.get(job.key).state, broker.get(job.key).seq) == ("cancelled", 3)
