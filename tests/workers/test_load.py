"""A fleet at work, with the real dispatcher: each job once, no slot twice, whatever is started anew meanwhile."""

from __future__ import annotations

import os
import signal
from collections import Counter

import pytest

from broker.roles.dispatcher import Dispatcher
from broker.rules.liveness import Budgets
from broker.store.store import Store
from tests.workers.fleet import BUDGETS, until


@pytest.fixture
def dispatcher(fleet):
    store = Store.from_url(fleet.url, fleet.namespace)
    budgets = Budgets(beat_ms=int(BUDGETS["BEAT_MS"]), start_ms=int(BUDGETS["START_MS"]))
    made = Dispatcher(store, budgets=budgets)
    yield made
    made.close()
    store.close()


def drive(dispatcher, condition, seconds=300):
    """Let the dispatcher step until the condition holds."""

    def stepped():
        dispatcher.step()
        return condition()

    return until(stepped, seconds)


def states(fleet):
    return Counter(listed.record.state for listed in fleet.broker.jobs())


def test_two_nodes_run_each_job_once_and_no_slot_is_used_twice(fleet, dispatcher):
    nodes = ("n1", "n2")
    for node in nodes:
        fleet.supervisor(("echo", 2), node=node)
    count = 60
    fleet.broker.submit_many("echo", range(count))
    drive(dispatcher, lambda: states(fleet)["completed"] == count)
    assert {listed.record.tries for listed in fleet.broker.jobs()} == {1}
    entries = fleet.broker.log("home").read("0-0", 1_000)
    running, most = Counter(), Counter()
    for entry in entries:
        node = entry.record.node
        running[node] += {"started": 1, "finished": -1}.get(entry.rule, 0)
        most[node] = max(most[node], running[node])
    assert all(0 < most[node] <= 2 for node in nodes), most  # by the log
    rules = Counter(entry.rule for entry in entries)
    assert rules == {"submitted": count, "placed": count, "started": count, "finished": count}


def test_never_more_jobs_at_a_time_than_slots(fleet, dispatcher, tmp_path):
    """As the jobs themselves see it."""
    folder = tmp_path / "alone"
    folder.mkdir()
    fleet.supervisor(("alone", 2))
    jobs = fleet.broker.submit_many("alone", [str(folder)] * 20)
    drive(dispatcher, lambda: states(fleet)["completed"] == 20)
    seen = {fleet.broker.result(job.key) for job in jobs}
    assert seen <= {1, 2}


def test_workers_that_are_started_anew_under_load_lose_nothing(fleet, dispatcher):
    """Warm stops of single slots, one after another, while jobs come in."""
    supervisor = fleet.supervisor(("echo", 2))
    count = 60
    fleet.broker.submit_many("echo", range(count))
    stopped = set()

    def done():
        completed = states(fleet)["completed"]
        due = min(3, completed // 15)
        if len(stopped) < due:
            fresh = [seen.pid for seen in fleet.slots(supervisor) if seen.pid not in stopped]
            if fresh:
                stopped.add(fresh[0])
                os.kill(fresh[0], signal.SIGTERM)
        return completed == count

    drive(dispatcher, done)
    assert len(stopped) >= 2
    records = [listed.record for listed in fleet.broker.jobs()]
    assert {record.tries for record in records} == {1}
    assert {record.deaths for record in records} == {0}
    # Its worker forgets a hand-off when its job has ended.
    until(lambda: not [key for key in fleet.rq.scan_iter("rq:job:b-*") if ours(fleet, key)])


def ours(fleet, key):
    return (fleet.rq.hget(key, "origin") or b"").startswith(fleet.namespace.encode() + b":")
