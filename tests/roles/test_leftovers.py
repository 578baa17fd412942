"""What RQ keeps of attempts that are over is found, once it is late, and only that."""

from __future__ import annotations

import pytest
from rq import Queue
from rq.serializers import JSONSerializer

from broker.roles.handoff import Handoff
from broker.roles.leftovers import Leftovers
from broker.rules.audit import DISCARD, DRIFT
from broker.rules.event import Intent, Remove, Unplace
from broker.rules.liveness import Budgets
from broker.store.audited import Audited
from broker.store.keys import aside
from tests.roles.audits import go_round
from tests.roles.sweeping import placed, running, wait
from tests.roles.test_sweeper import rq_keys, take_in_hand

BUDGETS = Budgets()
PATIENCE = 2 * BUDGETS.guess_ms + BUDGETS.brake_ms


@pytest.fixture
def handoff(fleet):
    fleet.store.client.flushdb()
    fleet.workers_of("node-a", count=4)
    made = Handoff(fleet.store.keys.namespace, fleet.store.url)
    yield made
    made.close()


@pytest.fixture
def leftovers(fleet, handoff):
    return Leftovers(fleet.store, handoff, BUDGETS)


def look(leftovers):
    return [finding for page in leftovers.look() for finding in page]


def late(fleet, leftovers):
    """What was one too many, and still is after as long as anybody may take to clear it away."""
    assert look(leftovers) == []
    wait(fleet, PATIENCE - 1)
    assert look(leftovers) == []
    wait(fleet, 1)
    return look(leftovers)


def give_up(fleet, key):
    """The attempt is over, and nobody clears it away."""
    fleet.say(Unplace(key=key, rev=fleet.view.get(key).rev, term=10**14))


def test_attempts_under_way_are_none_however_long_they_take(fleet, leftovers):
    taken, begun, _ = placed(fleet, "1", "2", "3")
    for key in (taken, begun):
        take_in_hand(fleet, key)
    fleet.start(begun)
    assert late(fleet, leftovers) == []


def test_an_attempt_that_was_given_up_is_found_in_its_queue_and_forgotten(fleet, leftovers):
    key, other = placed(fleet, "7", "8")
    give_up(fleet, key)
    [finding] = late(fleet, leftovers)
    assert (finding.kind, finding.what) == (DRIFT, DISCARD)
    assert (finding.origin, finding.job) == (key.origin, key.job)
    assert "is over" in finding.text
    assert leftovers.discard(finding)
    assert fleet.handed_over("node-a") == [str(other)]
    assert look(leftovers) == []
    assert not leftovers.discard(finding)


@pytest.mark.parametrize("end", ["given up", "cancelled", "removed", "finished"])
def test_what_a_dead_worker_had_in_hand_is_found_and_forgotten(fleet, leftovers, end):
    [key] = placed(fleet, "7")
    take_in_hand(fleet, key)
    if end == "given up":
        give_up(fleet, key)
    elif end == "finished":
        fleet.start(key)
        fleet.finish(key)
    else:
        fleet.say(Intent(key=key) if end == "cancelled" else Remove(key=key))
    [finding] = late(fleet, leftovers)
    assert (finding.origin, finding.job) == (key.origin, key.job)
    assert leftovers.discard(finding)
    assert rq_keys(fleet) == []


def test_an_older_attempt_is_found_beside_the_current_one(fleet, leftovers):
    [key] = placed(fleet, "7")
    give_up(fleet, key)
    wait(fleet, 1)
    fleet.beat()
    fleet.dispatchers[0].step()
    assert fleet.handed_over("node-a") == [str(key)] * 2
    [finding] = late(fleet, leftovers)
    leftovers.discard(finding)
    assert fleet.handed_over("node-a") == [str(key)]
    assert fleet.view.get(key).attempt == 2
    assert finding.key.endswith("-1")


def test_an_entry_of_which_rq_lost_the_job_is_found(fleet, leftovers):
    running(fleet, "7")
    [id] = fleet.queue("node-a").job_ids
    fleet.store.client.delete(f"rq:job:{id}")
    [finding] = late(fleet, leftovers)
    assert (finding.origin, finding.job) == ("", "")
    assert id in finding.text
    assert leftovers.discard(finding)
    assert rq_keys(fleet) == []


@pytest.mark.parametrize("lost", ["rq:execution:*", "rq:execution*", "rq:[jew][oxi]*"])
def test_what_only_its_worker_still_holds_is_found_and_forgotten(fleet, leftovers, lost):
    """RQ's notes on an attempt expire; what a worker has in hand lasts for as long as it takes jobs."""
    client = fleet.store.client
    [key] = placed(fleet, "7")
    take_in_hand(fleet, key)
    give_up(fleet, key)
    client.sadd(f"rq:workers:{fleet.queue('node-a').name}", "rq:worker:w1")
    client.delete(*[name for name in client.keys(lost) if not name.startswith(b"rq:worker")])
    [finding] = late(fleet, leftovers)
    assert leftovers.discard(finding)
    assert rq_keys(fleet) == []
    assert not client.exists("rq:worker:w1:executions")


def test_what_was_cleared_away_in_time_and_came_again_is_counted_anew(fleet, leftovers):
    [key] = placed(fleet, "7")
    give_up(fleet, key)
    queue = fleet.queue("node-a")
    [id] = queue.job_ids
    assert look(leftovers) == []
    fleet.store.client.lrem(queue.key, 0, id)
    wait(fleet, PATIENCE)
    assert look(leftovers) == []
    fleet.store.client.rpush(queue.key, id)
    assert len(late(fleet, leftovers)) == 1


def test_what_others_keep_in_rq_is_none_of_ours(fleet, leftovers):
    client, queue = fleet.store.client, fleet.queue("node-a")
    placed(fleet, "7")
    client.rpush(queue.key, "somebody-elses")
    client.sadd("rq:queues", "rq:queue:other:node-a:echo")
    client.rpush("rq:queue:other:node-a:echo", "b-1-1")
    assert late(fleet, leftovers) == []


# --- keys of RQ's that nobody can read --------------------------------------------------------------------------------


def break_queue(fleet, node, which):
    queue = fleet.queue(node)
    name = {
        "queue": queue.key, "taken": queue.intermediate_queue_key, "begun": queue.started_job_registry.key,
    }[which]  # fmt: skip
    fleet.store.client.delete(name)
    fleet.store.client.set(name, "x")
    return name


@pytest.mark.parametrize("which", ["queue", "taken", "begun"])
def test_a_key_of_a_wrong_type_is_named_and_set_aside_and_hides_no_other_queue(
    fleet, handoff, which
):
    fleet.workers_of("node-b")
    given_up, *_ = placed(fleet, "1", "2", "3", "4", "5")
    name = break_queue(fleet, "node-b" if fleet.node_of(given_up) == "node-a" else "node-a", which)
    give_up(fleet, given_up)
    auditor = fleet.auditor(handoff=handoff)
    seen = go_round(auditor)
    assert (seen.drift, seen.unread, seen.repaired) == (1, 0, 1)
    [repair] = Audited(fleet.store).repairs(9)
    assert (repair.what, repair.text.split(" is ")[0]) == ("set_aside", name)
    assert fleet.store.client.type(aside(name)) == b"string"
    assert not fleet.store.client.exists(name)
    fleet.clock.ahead_ms += 3_600_000
    fleet.beat()
    go_round(auditor)
    assert "discard" in [repair.what for repair in Audited(fleet.store).repairs(9)]


def test_a_key_of_another_ones_queue_is_left_alone(fleet, handoff, leftovers):
    other = Queue("other:node-a:echo", connection=fleet.store.client, serializer=JSONSerializer)
    fleet.store.client.sadd("rq:queues", other.key)
    fleet.store.client.set(other.started_job_registry.key, "x")
    assert look(leftovers) == []
