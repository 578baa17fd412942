"""Whoever can write to Redis can write an RQ job. Our worker runs none but its own, and imports nothing it names."""

from __future__ import annotations

import json
import os
import uuid
import zlib

import pytest
from rq import Callback, Retry
from rq.job import Job as RqJob
from rq.repeat import Repeat
from rq.webhook import Webhook

from broker import FUNCTION
from tests.workers.fleet import NODE, Fleet, until
from workers import handoff


@pytest.fixture
def trap(tmp_path):
    """A file that a hostile job would make."""
    return tmp_path / "trapped"


@pytest.fixture(scope="module")
def fleet(redis_url, tmp_path_factory):
    """One worker for all of them: it has to survive each."""
    made = Fleet(redis_url, f"refusals{os.getpid()}", tmp_path_factory.mktemp("refusals"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def worker(fleet):
    return fleet.worker("echo")


@pytest.fixture
def own_fleet(redis_url, namespace, tmp_path):
    made = Fleet(redis_url, namespace, tmp_path)
    yield made
    made.close()


@pytest.fixture
def evil():
    """An RQ job id that no other test uses."""
    return f"evil-{uuid.uuid4()}"


def refused(fleet, worker, id, says):
    """The worker names it and throws it away, and goes on working."""
    until(lambda: not fleet.rq.exists(f"rq:job:{id}"))
    until(lambda: not fleet.leftovers())
    lines = [line for line in worker.log.read_text().splitlines() if "refused" in line]
    assert any(id in line and says in line for line in lines), lines
    assert fleet.run("echo", "and on").state == "completed"


def test_a_function_that_is_not_ours(fleet, worker, trap, evil):
    job = fleet.queue("echo").enqueue("os.system", f"touch {trap}", job_id=evil)
    refused(fleet, worker, job.id, "its function is 'os.system'")
    assert not trap.exists()


@pytest.mark.parametrize(
    "options,says",
    [
        ({"on_success": Callback("os.abort")}, "success_callback_name"),
        ({"on_failure": Callback("os.abort")}, "failure_callback_name"),
        ({"on_stopped": Callback("os.abort")}, "stopped_callback_name"),
        ({"webhooks": [Webhook("http://127.0.0.1:9/", "finished")]}, "webhooks"),
        ({"retry": Retry(max=2)}, "retries_left"),
        ({"repeat": Repeat(times=2)}, "repeats_left"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_hand_off_that_carries_more_than_a_name(fleet, worker, options, says):
    placed = fleet.submit("echo")
    record = fleet.place(placed)
    job = fleet.enqueue(placed.key, record.created_at, record.attempt, **options)
    refused(fleet, worker, job.id, says)
    assert placed.record().tries == 0


def test_a_hand_off_with_dependencies(fleet, worker, evil):
    """RQ keeps such a job back, but a hash can be written by hand."""
    placed = fleet.submit("echo")
    record = fleet.place(placed)
    queue = fleet.queue("echo")
    job = queue.create_job(FUNCTION, args=(str(placed.key), record.created_at, 1), job_id=evil)
    job.save()
    fleet.rq.hset(job.key, "dependency_ids", json.dumps(["another"]))
    fleet.rq.rpush(queue.key, job.id)
    refused(fleet, worker, evil, "dependency_ids")
    assert placed.record().tries == 0


def test_a_hand_off_whose_id_is_not_that_of_its_attempt(fleet, worker, evil):
    placed = fleet.submit("echo")
    record = fleet.place(placed)
    fleet.queue("echo").enqueue(
        FUNCTION, args=(str(placed.key), record.created_at, record.attempt), job_id=evil
    )
    refused(fleet, worker, evil, "its id is not that of the attempt")
    assert placed.record().tries == 0


@pytest.mark.parametrize("forged", [False, True])
def test_a_hand_off_in_another_engines_queue(fleet, worker, forged):
    placed = fleet.submit("nap", 0)
    record = fleet.place(placed)
    job = fleet.enqueue(placed.key, record.created_at, record.attempt)
    fleet.rq.lrem(fleet.queue("nap").key, 1, job.id)
    if forged:
        fleet.rq.hset(job.key, "origin", fleet.queue("echo").name)
    fleet.rq.rpush(fleet.queue("echo").key, job.id)
    refused(fleet, worker, job.id, "another queue")
    assert placed.record().tries == 0


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no json",
        b"\x80\x04K\x01.",  # a pickle
        json.dumps([FUNCTION, None, ["a", 1], {}]).encode(),
        json.dumps([FUNCTION, None, ["not/a/key", 1, 1], {}]).encode(),
        json.dumps([FUNCTION, None, ["home/echo//1", 1.5, True], {}]).encode(),
        json.dumps([FUNCTION, "an instance", ["home/echo//1", 1, 1], {}]).encode(),
        json.dumps([FUNCTION, None, ["home/echo//1", 1, 1], {"more": 1}]).encode(),
        json.dumps(["\x1b[2J\u202eevil", None, [], {}]).encode(),
        b"[" * 9_000,
        b" " * 50_000_000,
    ],
    ids=range(11),
)
def test_a_hand_off_that_cannot_be_read(fleet, worker, data, evil):
    fleet.rq.hset(
        f"rq:job:{evil}",
        mapping={"data": zlib.compress(data), "created_at": "yesterday", "status": "odd"},
    )
    fleet.rq.rpush(fleet.queue("echo").key, evil)
    refused(fleet, worker, evil, f"refused the RQ job {evil!r}")
    assert "\x1b[2J" not in worker.log.read_text()
    assert "\u202e" not in worker.log.read_text()


def test_a_hand_off_is_not_unpacked_without_bound():
    assert len(handoff._unpack(zlib.compress(b" " * 50_000_000))) == handoff.DATA_BYTES_MAX


@pytest.mark.parametrize("id", [b"two words", b"\xff\xfe", b"a/b", b"", b"gone-already"])
def test_an_entry_of_the_queue_that_names_no_job(fleet, worker, id):
    fleet.rq.rpush(fleet.queue("echo").key, id)
    until(lambda: not fleet.leftovers())
    assert fleet.run("echo", "and on").state == "completed"


def test_maintenance_calls_nothing_that_an_abandoned_job_names(own_fleet, trap, tmp_path, evil):
    """RQ's cleaning imports and calls the failure callback of a job whose worker died; ours has nothing to call."""
    (tmp_path / "evil_callback.py").write_text(f"open({str(trap)!r}, 'w')\ndef call(*args): pass\n")
    queue = own_fleet.queue("echo")
    job = queue.create_job(
        "os.getpid", job_id=evil, on_failure=Callback("evil_callback.call"), failure_ttl=0
    )
    job.save()
    own_fleet.rq.hset(job.key, "status", "started")
    own_fleet.rq.zadd(queue.started_job_registry.key, {f"{evil}:1": 1})
    own_fleet.worker("echo", PYTHONPATH=f"{tmp_path}")
    until(lambda: not own_fleet.rq.exists(queue.started_job_registry.key))
    until(lambda: not own_fleet.rq.exists(job.key))
    assert not trap.exists()


def test_a_stock_rq_worker_cannot_run_a_hand_off(own_fleet):
    """It neither starts nor fences an attempt: our function refuses to run in it."""
    from rq import SimpleWorker

    placed = own_fleet.hand(own_fleet.submit("echo"))
    queue = own_fleet.queue("echo")
    [id] = queue.job_ids
    stock = SimpleWorker([queue], connection=own_fleet.rq, serializer=queue.serializer)
    errors = []
    stock.push_exc_handler(lambda job, kind, value, trace: errors.append(str(value)))
    stock.work(burst=True, logging_level="CRITICAL")
    assert "only workers.Worker may run this" in errors[0]
    assert not RqJob.exists(id, own_fleet.rq)
    assert placed.record().state == "queued"
    assert placed.record().node == NODE
