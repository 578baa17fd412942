"""RQ's own tools, against our workers."""

from __future__ import annotations

import subprocess

import redis
from rq import Queue
from rq import Worker as RqWorker
from rq.job import Job
from rq.serializers import JSONSerializer

from tests.workers.fleet import PATIENT, ROOT, RQ, until
from workers.notes import NotingWorker


def rq(fleet, *arguments):
    found = subprocess.run(
        [*RQ, *arguments, "--url", fleet.url],
        cwd=ROOT,
        env=fleet.environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_rq_info_shows_queues_and_workers(fleet):
    fleet.worker("nap")
    waiting = fleet.queue("echo")
    fleet.hand(fleet.submit("echo", 1))
    job = fleet.hand(fleet.submit("nap", 600))
    fleet.started(job)
    name = fleet.queue("nap").name
    until(lambda: "busy" in states(fleet, "nap"))
    shown = rq(fleet, "info", waiting.name, name)
    assert waiting.name in shown
    assert name in shown
    assert "n1-nap-0-" in shown
    assert "busy" in shown
    assert "n1-nap-0-" in rq(fleet, "info", "-w", "workers.Worker", "-P", str(ROOT), name)
    assert str(job.key) in [seen.description for seen in [*waiting.jobs, running(fleet)]]


def states(fleet, engine):
    return [seen.get_state() for seen in RqWorker.all(fleet.rq, queue=fleet.queue(engine))]


def running(fleet):
    [worker] = RqWorker.all(fleet.rq, queue=fleet.queue("nap"))
    [execution] = worker.get_current_executions(refresh=True)
    return Job.fetch(execution.job_id, fleet.rq, JSONSerializer)


def test_our_worker_runs_under_rqs_command_line(fleet):
    fleet.rq_worker(fleet.queue("echo").name)
    job = fleet.hand(fleet.submit("echo", 1))
    assert fleet.ended(job).state == "completed"
    [worker] = fleet.broker.workers()
    assert (worker.node, worker.engine) == ("n1", "echo")


def test_rqs_notes_are_kept_fresh_while_a_job_runs(fleet, tmp_path):
    mark = tmp_path / "pid"
    name = fleet.queue("polite").name
    fleet.rq_worker(name, "--job-monitoring-interval", "1", **PATIENT)
    job = fleet.hand(fleet.submit("polite", str(mark)))
    until(mark.exists)
    [worker] = until(lambda: RqWorker.all(fleet.rq, queue=fleet.queue("polite")))
    first = worker.last_heartbeat

    def beaten():
        worker.refresh()
        return worker.last_heartbeat > first

    until(beaten)
    assert job.record().state == "running"
    job.cancel()
    fleet.ended(job)
    until(lambda: not fleet.leftovers())


def test_a_burst_ends_when_the_queue_is_empty(fleet):
    jobs = [fleet.hand(fleet.submit("echo", n)) for n in range(2)]
    worker = fleet.rq_worker(fleet.queue("echo").name, "--burst")
    assert worker.wait(180) == 0
    assert {job.record().state for job in jobs} == {"completed"}
    assert fleet.broker.workers() == []


def test_two_urls_that_lead_to_different_places_are_refused(fleet):
    elsewhere = f"{fleet.url}?db=1"
    worker = fleet.rq_worker(fleet.queue("echo").name, REDIS_URL=elsewhere)
    assert worker.wait(180) == 1
    assert "lead to different Redis servers" in worker.log.read_text()


def test_a_queue_of_no_engine_known_here_is_refused(fleet):
    worker = fleet.rq_worker("default")
    assert worker.wait(180) == 1
    assert "'default' is not that of an engine known here" in worker.log.read_text()


def test_rq_suspend_is_obeyed(fleet):
    fleet.worker("echo")
    fleet.rq.set("rq:suspended", 1)
    try:
        job = fleet.hand(fleet.submit("echo", 1))
        # The hand-off that a worker was already waiting for is still taken; the next one is not.
        until(lambda: "suspended" in states(fleet, "echo"))
        later = fleet.hand(fleet.submit("echo", 2))
        assert later.record().state == "queued"
    finally:
        fleet.rq.delete("rq:suspended")
    assert fleet.ended(job).state == fleet.ended(later).state == "completed"


def test_rq_info_lists_a_worker_whose_queue_never_got_a_job(fleet):
    """RQ lists workers by the queues registered, and elsewhere only an enqueue registers one."""
    fleet.rq.flushall()  # RQ looks at all queues, and fails at what a worker left that an earlier test killed
    idle = fleet.worker("echo")
    fleet.enqueue(fleet.submit("nap", 1).key, 1, 1)
    until(lambda: f" {idle.pid}): " in rq(fleet, "info"), every=0.3)


def test_a_flushed_redis_learns_the_worker_anew(redis_url, namespace):
    """Each heartbeat says all of it."""
    name = f"{namespace}:n1:echo"
    with redis.Redis.from_url(redis_url) as client:
        worker = NotingWorker([name], connection=client, worker_ttl=60)
        worker.register_birth()
        worker.set_state("idle")
        queue = Queue(name, connection=client)
        for beat in (NotingWorker.heartbeat, with_pipeline):
            client.delete(worker.key, "rq:workers", f"rq:workers:{name}")
            client.srem("rq:queues", queue.key)
            beat(worker)
            assert client.sismember("rq:queues", queue.key)
            [seen] = RqWorker.all(client, queue=queue)
            assert worker.key in RqWorker.all_keys(client)
            assert (seen.pid, seen.get_state(), seen.queue_names()) == (worker.pid, "idle", [name])
        worker.register_death()


def test_all_that_names_an_attempt_is_forgotten(redis_url, namespace):
    """A worker that died between the move and its first note leaves its entry, which RQ's maintenance notes to have
    seen; the next hand-off adds another.
    """
    with redis.Redis.from_url(redis_url) as client:
        queue = Queue(f"{namespace}:n1:echo", connection=client)
        worker = NotingWorker([queue], connection=client)
        job = Job(namespace, connection=client)
        client.rpush(queue.intermediate_queue_key, job.id, "other", job.id)
        queue.intermediate_queue.set_first_seen(job.id)
        worker.forget(job, queue)
        assert client.lrange(queue.intermediate_queue_key, 0, -1) == [b"other"]
        assert queue.intermediate_queue.get_first_seen(job.id) is None
        client.delete(queue.intermediate_queue_key)


def with_pipeline(worker):
    with worker.connection.pipeline() as pipe:
        worker.heartbeat(pipeline=pipe)
        pipe.execute()
