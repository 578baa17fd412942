"""Two hundred jobs over two nodes, with real processes: exactly once, in order, within the slots, and then replayed."""

from __future__ import annotations

from collections import Counter

import pytest

from broker import Broker, Key
from broker.rules.record import PROJECTION
from broker.store.server import PrivateRedis
from tests.ports import free_port
from tests.store.readers import patient
from tests.system.command import PATIENCE_MS
from tests.system.ledger import VARIABLE
from tests.system.machine import Machine
from tests.workers.fleet import until

JOBS = 200
NODES = ("node-a", "node-b")
SLOTS = 2
ORIGIN = "desk"


@pytest.fixture
def machine(tmp_path):
    made = Machine(tmp_path)
    yield made
    made.close()


@pytest.fixture
def redis(tmp_path):
    with PrivateRedis(tmp_path / "redis", free_port()) as made:
        yield made


def projected(records):
    """What a log tells of records: all but what moves without an entry."""
    return {key: [getattr(record, name) for name in PROJECTION] for key, record in records.items()}


def entries_of(broker):
    found, start = [], "0-0"
    while page := broker.log(ORIGIN).read(start, 1_000):
        found += page
        start = page[-1].rev
    return found


def most_at_once(notes):
    """How many were begun and not ended, at most, by the ledger."""
    now = most = 0
    for _, what in sorted((float(at), what) for what, _, _, at in notes):
        now += 1 if what == "begin" else -1
        most = max(most, now)
    return most


def most_carried(entries):
    """How many jobs each node carried at most: placed and not ended, at any place of the log."""
    carried, most, where = Counter(), Counter(), {}
    for entry in entries:
        node = entry.record.node if entry.record and not entry.record.ended else ""
        if (before := where.pop(entry.job, "")) != node:
            carried[before] -= 1
            carried[node] += 1
        where[entry.job] = node
        most[node] = max(most[node], carried[node])
    return most


def test_two_hundred_jobs_then_a_restart(machine, redis):
    url = f"redis://127.0.0.1:{redis.port}"
    notes = machine.home / "ledger"
    # A worker that stands still for a moment is no silent one: each job runs once.
    patience = {"BROKER_BUDGETS__SUSPECT_MS": str(PATIENCE_MS)}
    environment = {"REDIS_URL": url, VARIABLE: str(notes), **patience}
    serve = machine.start("serve", **environment)
    for node in NODES:
        machine.start("worker", "--node", node, "--import", "tests.system.ledger", **environment)

    with Broker.from_url(patient(url), node=ORIGIN) as broker:
        until(lambda: {worker.node for worker in broker.workers()} == set(NODES), 60)
        payloads = [{"n": n, "seconds": 0.01 * (n % 3)} for n in range(JOBS)]
        jobs = broker.submit_many("ledger", payloads)
        assert [job.result(timeout=60) for job in jobs] == [n**2 for n in range(JOBS)]

        # Each ran exactly once.
        lines = [line.split() for line in notes.read_text().splitlines()]
        told = Counter((what, key, attempt) for what, key, attempt, _ in lines)
        assert told == Counter(
            (what, str(job.key), "1") for job in jobs for what in ("begin", "end")
        )

        # Its events stand in order.
        entries = entries_of(broker)
        rules = {}
        for entry in entries:
            rules.setdefault(entry.job, []).append((entry.rule, entry.record.seq))
        in_order = [("submitted", 1), ("placed", 2), ("started", 3), ("finished", 4)]
        assert rules == {job.key.job: in_order for job in jobs}

        # No node ever had more than its slots, and both worked.
        assert most_carried(entries)["node-a"] <= SLOTS
        assert most_carried(entries)["node-b"] <= SLOTS
        assert most_at_once(lines) <= SLOTS * len(NODES)
        worked = Counter(job.record().node for job in jobs)
        assert min(worked[node] for node in NODES) >= JOBS // 10

        # The list is what the log adds up to.
        listed = {one.key: one.record for one in broker.jobs()}
        assert projected(listed) == projected(broker.replay(ORIGIN))
        assert len(listed) == JOBS

        # What was reported stands over a restart of Redis and of the broker, numbers included.
        key = Key("desk", "ollama", "", "7")
        report = {
            "event": "report",
            "origin": "desk",
            "engine": "ollama",
            "id": "7",
            "created_at": 1,
        }
        seventh = {**report, "state": "running", "node": "node-a", "seq": 7}
        assert broker.report(seventh).rule == "first_sighting"
        serve.terminate()
        assert serve.wait(60) == 0
        redis.stop()
        redis.start()
        machine.start("serve", **environment)

        sixth = {**report, "state": "queued", "node": "node-b", "seq": 6}
        outcome = broker.report(sixth)
        assert (outcome.outcome, outcome.rule) == ("refused", "stale_seq")
        assert (broker.get(key).seq, broker.get(key).node) == (7, "node-a")
        assert projected({one.key: one.record for one in broker.jobs()}) == projected(
            broker.replay(ORIGIN)
        )
        assert broker.submit("ledger", {"n": 12, "seconds": 0}).result(timeout=60) == 144

    for process in machine.started[1:]:
        process.terminate()
    until(lambda: all(process.poll() == 0 for process in machine.started))
