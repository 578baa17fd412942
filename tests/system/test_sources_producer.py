"""What the source documents say of a producer, one test for each sentence, on a real Redis."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest

from broker.client import Broker
from broker.config import settings
from broker.producer import JobEvents


@pytest.fixture
def broker(store):
    return Broker(store, settings(node="desk"))


@pytest.fixture
def events(broker):
    with JobEvents(broker, "ollama") as events:
        yield events


@pytest.fixture
def told(broker):
    """What the log says of a job, as (seq, state, node)."""

    def told(job):
        entries = (entry for entry in broker.log("desk").entries() if entry.job == job.key.job)
        return [(entry.record.seq, entry.record.state, entry.record.node) for entry in entries]

    return told


def test_60_no_other_thread_writes_between_the_number_and_the_write(broker, events, told):
    """The request's own thread and the disconnect watcher race for the same job."""
    for _ in range(20):
        job = events.create()
        watcher = threading.Thread(target=events.finish, args=(job, "cancelled", "client left"))
        watcher.start()
        events.dispatch(job, "a")
        events.start(job, "a")
        events.finish(job, "completed")
        watcher.join(60)
        log = told(job)
        assert [seq for seq, *_ in log] == list(range(1, len(log) + 1))
        assert [state in {"completed", "cancelled"} for _, state, _ in log] == (
            [False] * (len(log) - 1) + [True]
        )
        assert broker.view.refusals(job.key) == []


def test_61_after_the_first_end_nothing_is_said(events, told):
    job = events.create()
    events.finish(job, "failed", "boom")
    events.finish(job, "completed")
    events.dispatch(job, "a")
    events.start(job)
    events.start(job, "a", attempt=1)
    assert told(job) == [(1, "queued", ""), (2, "failed", "")]


def test_62_a_repoint_to_the_current_placement_says_nothing(events, told):
    job = events.create()
    events.dispatch(job, "a")
    events.repoint(job, "a")
    assert told(job) == [(1, "queued", ""), (2, "queued", "a")]


@pytest.mark.parametrize("move", ["another node", "no node", "same node, new attempt"])
def test_63_a_running_job_that_moves_is_queued_with_started_at_null(broker, events, move):
    job = events.create()
    events.dispatch(job, "a")
    events.start(job)
    assert broker.get(job.key).started_at > 0
    if move == "no node":
        events.repoint(job, "")
    else:
        events.dispatch(job, "b" if move == "another node" else "a")
    record = broker.get(job.key)
    assert (record.state, record.started_at) == ("queued", 0)


def test_64_a_late_start_says_nothing(events, told):
    job = events.create()
    first = events.dispatch(job, "a")
    events.repoint(job, "")
    events.start(job, "a", attempt=first)
    events.dispatch(job, "b")
    events.start(job, "a", attempt=first)
    events.start(job, "b", attempt=first)
    assert [state for _, state, _ in told(job)] == ["queued"] * 4


def test_65_a_second_start_is_not_said_and_the_first_ones_time_kept(broker, events, told):
    job = events.create()
    attempt = events.dispatch(job, "a")
    events.start(job, "a", attempt=attempt)
    started_at = broker.get(job.key).started_at
    events.start(job, "a")
    assert (len(told(job)), broker.get(job.key).started_at) == (3, started_at)


def test_66_a_request_that_unwinds_still_says_exactly_one_end(events, told):
    job = events.create()
    with suppress(ConnectionResetError):
        try:
            events.dispatch(job, "a")
            events.start(job)
            raise ConnectionResetError("the upstream was cut")
        except ConnectionResetError as cut:
            events.finish(job, "failed", str(cut))
            raise
        finally:
            events.finish(job, "cancelled")
    assert [state for _, state, _ in told(job)] == ["queued", "queued", "running", "failed"]


def test_67_a_job_is_seen_queued_before_its_first_byte_and_running_only_then(broker, events):
    job = events.create()
    assert broker.get(job.key).state == "queued"
    events.dispatch(job, "a")
    assert broker.get(job.key).state == "queued"
    events.start(job)
    assert broker.get(job.key).state == "running"


def test_an_untracked_request_says_nothing(broker, events):
    assert events.dispatch(None, "a") == 0
    events.start(None)
    events.finish(None)
    assert broker.jobs() == []
