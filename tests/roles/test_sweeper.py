"""Whom a sweeper judges, and what becomes of them: step by step on a real Redis, where the test is the clock."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rq.executions import Execution
from rq.job import Job
from rq.serializers import JSONSerializer

from broker.rules.event import Finish, Intent, Place, Start, Submit
from broker.rules.handoff import queue_name, rq_job_id
from broker.rules.key import Key
from tests.roles.fleet import ORIGIN, PATIENT, settle
from tests.roles.sweeping import (
    BEAT,
    GRACE,
    GUESS,
    START,
    SUSPECT,
    attentive,
    place,
    placed,
    rules_of,
    running,
    shown,
    wait,
)

# --- a holder that fell silent ----------------------------------------------------------------------------------


def test_a_job_whose_holder_is_silent_for_5_s_is_guessed_to_have_failed(fleet):
    fleet.workers_of("node-a")
    sweeper = attentive(fleet)
    [key] = running(fleet, "7")
    wait(fleet, GUESS - 1)
    assert settle(sweeper) == 0
    wait(fleet, 1)
    assert settle(sweeper) == 1

    record = fleet.view.get(key)
    assert shown(fleet, key) == ("failed~", 1, "node-a")
    assert (record.guessed_from, record.error, record.ended) == (
        "running",
        "node node-a went offline",
        False,
    )
    assert record.holder == "h-7"


def test_one_whose_holder_beats_is_never_guessed_however_often_it_was_due(fleet):
    fleet.workers_of("node-a")
    sweeper = attentive(fleet)
    [key] = running(fleet, "7")
    for _ in range(20):
        wait(fleet, GUESS - 1)
        fleet.see(key)
        assert settle(sweeper) == 0
    assert shown(fleet, key) == ("running", 1, "node-a")


def test_a_worker_that_lives_but_lost_its_job_is_no_excuse(fleet):
    fleet.workers_of("node-a")
    sweeper = attentive(fleet)
    [key] = running(fleet, "7")
    for _ in range(5):
        wait(fleet, GUESS // 5)
        fleet.beat()
    assert settle(sweeper) == 1
    assert shown(fleet, key)[0] == "failed~"


def test_after_the_grace_the_job_runs_elsewhere_under_the_next_number(fleet):
    fleet.workers_of("node-a")
    sweeper = attentive(fleet)
    [key] = running(fleet, "7")
    wait(fleet, GUESS)
    settle(sweeper)
    wait(fleet, GRACE - 1)
    assert settle(sweeper) == 0
    wait(fleet, 1)
    assert settle(sweeper) > 0
    record = fleet.view.get(key)
    assert shown(fleet, key) == ("queued", 2, "")
    assert (record.tries, record.deaths, record.due) == (1, 1, 0)

    fleet.workers.clear()
    fleet.workers_of("node-b")
    place(fleet)
    fleet.start(key)
    fleet.finish(key)
    assert shown(fleet, key) == ("completed", 2, "node-b")
    assert rules_of(fleet, key) == [
        "submitted",
        "placed",
        "started",
        "guess_applied",
        "requeued",
        "placed",
        "started",
        "finished",
    ]


def test_a_holder_that_contradicts_has_the_whole_grace_again(fleet):
    fleet.workers_of("node-a")
    sweeper = attentive(fleet)
    [key] = running(fleet, "7")
    wait(fleet, GUESS)
    settle(sweeper)
    wait(fleet, GRACE - 1)
    fleet.reassert(key)
    assert settle(sweeper) == 0
    assert shown(fleet, key) == ("running", 1, "node-a")

    wait(fleet, GUESS - 1)
    assert settle(sweeper) == 0
    wait(fleet, 1)
    assert settle(sweeper) == 1
    wait(fleet, GRACE - 1)
    assert settle(sweeper) == 0
    assert shown(fleet, key) == ("failed~", 1, "node-a")


def test_a_holder_that_beat_once_more_and_died_is_guessed_anew(fleet):
    """It would have contradicted with the next beat."""
    fleet.workers_of("node-a")
    sweeper = attentive(fleet)
    [key] = running(fleet, "7")
    wait(fleet, GUESS)
    settle(sweeper)
    wait(fleet, GRACE - 1)
    fleet.see(key)
    wait(fleet, GUESS - 1)
    assert settle(sweeper) == 0
    wait(fleet, 1)
    assert settle(sweeper) == 1
    wait(fleet, GRACE - 1)
    assert settle(sweeper) == 0
    wait(fleet, 1)
    settle(sweeper)
    assert rules_of(fleet, key)[3:] == ["guess_applied", "guess_applied", "requeued"]


def lose(fleet, sweeper, key):
    """Its holder dies, and the whole grace passes."""
    wait(fleet, GUESS)
    settle(sweeper)
    wait(fleet, GRACE)
    settle(sweeper)


def test_where_no_try_is_left_the_job_is_lost(fleet):
    fleet.workers_of("node-a")
    sweeper = attentive(fleet)
    [key] = running(fleet, "7", attempts=1)
    lose(fleet, sweeper, key)
    record = fleet.view.get(key)
    assert (record.state, record.reason, record.rule) == ("failed", "lost", "lost")
    assert record.error == "node node-a went offline"


def test_what_may_run_once_is_never_run_twice(fleet):
    fleet.workers_of("node-a")
    sweeper = attentive(fleet)
    [key] = running(fleet, "7", attempts=1, at_most_once=True)
    lose(fleet, sweeper, key)
    assert rules_of(fleet, key)[-2:] == ["guess_applied", "lost"]
    place(fleet)
    assert fleet.view.get(key).tries == 1


def test_what_nobody_wants_any_more_ends_as_cancelled(fleet):
    fleet.workers_of("node-a")
    sweeper = attentive(fleet)
    [key] = running(fleet, "7")
    fleet.say(Intent(key=key, desired="cancel"))
    lose(fleet, sweeper, key)
    assert (fleet.view.get(key).state, fleet.view.get(key).reason) == ("cancelled", "lost")


def test_a_job_that_is_to_be_removed_is_gone_with_its_holder(fleet):
    fleet.workers_of("node-a")
    sweeper = attentive(fleet)
    [key] = running(fleet, "7")
    fleet.say(Intent(key=key, desired="remove"))
    lose(fleet, sweeper, key)
    assert fleet.view.get(key) is None
    assert len(sweeper._jobs) == 0


def test_the_third_holder_that_dies_under_a_job_is_the_last(fleet):
    fleet.workers_of("node-a")
    sweeper = attentive(fleet)
    [key] = running(fleet, "7", attempts=9)
    for _ in range(2):
        lose(fleet, sweeper, key)
        assert shown(fleet, key)[0] == "queued"
        place(fleet)
        fleet.start(key)
    lose(fleet, sweeper, key)
    record = fleet.view.get(key)
    assert (record.state, record.reason, record.deaths, record.tries) == ("failed", "poison", 3, 3)


def test_each_engine_has_its_own_grace(fleet):
    fleet.workers_of("node-a", "slow")
    fleet.workers_of("node-a", "echo")
    sweeper = attentive(fleet, budgets=replace(PATIENT, graces={"slow": 2 * GRACE}))
    [slow], [quick] = running(fleet, "1", engine="slow"), running(fleet, "2")
    wait(fleet, GUESS)
    settle(sweeper)
    wait(fleet, GRACE)
    settle(sweeper)
    assert [shown(fleet, key)[0] for key in (slow, quick)] == ["failed~", "queued"]
    wait(fleet, GRACE)
    settle(sweeper)
    assert shown(fleet, slow)[0] == "queued"


def test_a_late_word_of_one_that_was_given_up_is_refused_by_name(fleet):
    fleet.workers_of("node-a")
    sweeper = attentive(fleet)
    [key] = running(fleet, "7")
    lost = fleet.view.get(key)
    lose(fleet, sweeper, key)
    place(fleet)
    fleet.start(key)
    word = Finish(
        key=key, created_at=lost.created_at, attempt=1, holder=lost.holder, state="completed"
    )
    assert fleet.view.apply([word])[0].rule == "stale_attempt"
    assert [refusal.rule for refusal in fleet.view.refusals(key)] == ["stale_attempt"]
    assert shown(fleet, key) == ("running", 2, "node-a")


# --- placed, and not started ------------------------------------------------------------------------------------


def test_a_job_that_nobody_starts_is_taken_back_and_no_try_is_counted(fleet):
    fleet.workers_of("node-a")
    sweeper = attentive(fleet)
    [key] = placed(fleet, "7", attempts=1, at_most_once=True)
    wait(fleet, START - 1)
    fleet.beat()
    assert settle(sweeper) == 0
    wait(fleet, 1)
    assert settle(sweeper) > 0
    assert shown(fleet, key) == ("queued", 2, "")
    assert fleet.view.get(key).tries == 0
    assert rules_of(fleet, key) == ["submitted", "placed", "unplaced"]


@pytest.mark.parametrize("flag", ["drained", "dead"])
def test_a_node_that_takes_nothing_any_more_gives_back_what_it_has_not_started(fleet, flag):
    fleet.workers_of("node-a", count=2)
    sweeper = attentive(fleet)
    [begun], [waiting] = running(fleet, "1"), placed(fleet, "2")
    fleet.nodes.set_flag("node-a", flag)
    settle(sweeper)
    assert shown(fleet, waiting) == ("queued", 2, "")
    assert shown(fleet, begun) == ("running", 1, "node-a")


def test_a_silent_node_does_so_after_5_s(fleet):
    fleet.workers_of("node-a")
    sweeper = attentive(fleet)
    [key] = placed(fleet, "7")
    wait(fleet, GUESS - 1)
    assert settle(sweeper) == 0
    wait(fleet, 1)
    settle(sweeper)
    assert shown(fleet, key) == ("queued", 2, "")


def test_one_that_started_in_time_is_left_alone(fleet):
    fleet.workers_of("node-a")
    sweeper = attentive(fleet)
    [key] = placed(fleet, "7")
    wait(fleet, START - 1)
    fleet.beat()
    fleet.start(key)
    wait(fleet, 1)
    assert settle(sweeper) == 0
    assert shown(fleet, key) == ("running", 1, "node-a")


# --- the operator's word on a node ------------------------------------------------------------------------------


def test_a_dead_node_is_waited_for_no_longer_than_until_it_is_silent(fleet):
    fleet.workers_of("node-a")
    sweeper = attentive(fleet)
    [key] = running(fleet, "7")
    fleet.nodes.set_flag("node-a", "dead")
    wait(fleet, SUSPECT - 1)
    assert settle(sweeper) == 0
    wait(fleet, 1)
    settle(sweeper)
    assert shown(fleet, key) == ("queued", 2, "")
    assert rules_of(fleet, key)[-2:] == ["guess_applied", "requeued"]


def test_that_word_ends_a_grace_that_has_begun(fleet):
    fleet.workers_of("node-a")
    sweeper = attentive(fleet)
    [key] = running(fleet, "7")
    wait(fleet, GUESS)
    settle(sweeper)
    fleet.nodes.set_flag("node-a", "dead")
    settle(sweeper)
    assert shown(fleet, key) == ("queued", 2, "")


def test_but_it_replaces_no_lapsed_beat(fleet):
    fleet.workers_of("node-a")
    sweeper = attentive(fleet)
    [key] = running(fleet, "7")
    fleet.nodes.set_flag("node-a", "dead")
    for _ in range(10):
        wait(fleet, BEAT)
        fleet.see(key)
        assert settle(sweeper) == 0
    assert shown(fleet, key) == ("running", 1, "node-a")


def test_a_node_that_is_known_by_its_flag_alone_harms_nobody(fleet):
    fleet.workers_of("node-a")
    for node, flag in (("gone", "dead"), ("shelf", "drained")):
        fleet.nodes.set_flag(node, flag)
    keys = [fleet.report(1, node="shelf"), fleet.report(2, origin="shelf")]
    dead = fleet.report(3, node="gone")
    sweeper = attentive(fleet)
    fleet.beat()
    settle(sweeper)
    assert [shown(fleet, key)[0] for key in keys] == ["running", "running"]
    assert shown(fleet, dead)[0] == "failed~"


# --- what RQ keeps ----------------------------------------------------------------------------------------------


def rq_keys(fleet):
    """Every key of RQ's that speaks of an attempt of ours, or holds one."""
    found = [key.decode() for key in fleet.store.client.keys("rq:*")]
    names = ("rq:job:", "rq:execution", "rq:queue:", "rq:intermediate:", "rq:wip:", "rq:results:")
    return sorted(key for key in found if key.startswith(names) or ":intermediate" in key)


def take_in_hand(fleet, key, worker="w1"):
    """What a worker does before it starts a job, as RQ's own class notes it."""
    client, record = fleet.store.client, fleet.view.get(key)
    queue = fleet.queue(record.node, key.engine)
    id = client.lmove(queue.key, queue.intermediate_queue_key).decode()
    assert id == rq_job_id(fleet.store.keys.namespace, key, record.created_at, record.attempt)
    job = Job.fetch(id, connection=client, serializer=JSONSerializer)
    with client.pipeline() as pipe:
        Execution.create(job, 60, pipe, worker_name=worker)
        pipe.execute()


@pytest.fixture
def rq_is_empty(fleet):
    fleet.store.client.flushdb()


@pytest.mark.usefixtures("rq_is_empty")
def test_what_stands_in_a_queue_for_an_attempt_that_was_taken_back_goes(fleet):
    fleet.workers_of("node-a", count=2)
    sweeper = attentive(fleet)
    key, other = placed(fleet, "1", "2")
    fleet.start(other)
    assert fleet.handed_over("node-a") == [str(key), str(other)]
    wait(fleet, START)
    fleet.beat()
    fleet.see(other)
    settle(sweeper)
    assert fleet.handed_over("node-a") == [str(other)]
    assert len([name for name in rq_keys(fleet) if name.startswith("rq:job:")]) == 1


@pytest.mark.usefixtures("rq_is_empty")
def test_all_that_rq_noted_of_an_attempt_that_was_given_up_goes(fleet):
    fleet.workers_of("node-a")
    sweeper = attentive(fleet)
    [key] = placed(fleet, "7")
    take_in_hand(fleet, key)
    fleet.start(key)
    assert len(rq_keys(fleet)) >= 5
    wait(fleet, GUESS)
    settle(sweeper)
    assert len(rq_keys(fleet)) >= 5  # a guess gives nothing up
    in_hand = Execution("", "", fleet.store.client, "w1").worker_executions_key
    assert fleet.store.client.scard(in_hand) == 1
    wait(fleet, GRACE)
    settle(sweeper)
    assert rq_keys(fleet) == []
    assert not fleet.store.client.exists(in_hand)


@pytest.mark.usefixtures("rq_is_empty")
def test_the_same_where_the_user_ended_the_attempt(fleet):
    fleet.workers_of("node-a", count=2)
    sweeper = attentive(fleet)
    cancelled, removed = placed(fleet, "1", "2")
    fleet.say(Intent(key=cancelled))
    fleet.say(Intent(key=removed, desired="remove"))
    settle(sweeper)
    assert fleet.view.get(removed) is None
    assert rq_keys(fleet) == []


@pytest.mark.usefixtures("rq_is_empty")
def test_the_attempt_that_followed_is_not_touched(fleet):
    fleet.workers_of("node-a")
    sweeper = attentive(fleet)
    [key] = placed(fleet, "7")
    wait(fleet, START)
    fleet.beat()
    sweeper.step()  # takes it back
    place(fleet)
    settle(sweeper)
    record = fleet.view.get(key)
    id = rq_job_id(fleet.store.keys.namespace, key, record.created_at, 2)
    assert [job.id for job in fleet.queue("node-a").jobs] == [id]


@pytest.mark.usefixtures("rq_is_empty")
def test_rqs_lists_of_workers_are_cleared_of_the_dead(fleet):
    client = fleet.store.client
    queue = queue_name(fleet.store.keys.namespace, "node-a", "echo")
    members = {"rq:worker:alive", "rq:worker:dead"}
    client.sadd("rq:queues", f"rq:queue:{queue}", "rq:queue:of somebody else")
    client.hset("rq:worker:alive", "birth", "now")
    for name in ("rq:workers", f"rq:workers:{queue}", "rq:workers:of somebody else"):
        client.sadd(name, *members)
    attentive(fleet)
    assert client.smembers("rq:workers") == client.smembers(f"rq:workers:{queue}")
    assert client.smembers("rq:workers") == {b"rq:worker:alive"}
    assert len(client.smembers("rq:workers:of somebody else")) == 2


# --- how much at a time -----------------------------------------------------------------------------------------


def begin_many(fleet, count):
    """Running jobs, without going through dispatcher and RQ."""
    keys = [Key(ORIGIN, "echo", "", str(n)) for n in range(count)]
    now = fleet.clock.now()
    submits = [Submit(key=key, created_at=now, digest="d") for key in keys]
    answers = fleet.view.apply(submits)
    answers = fleet.view.apply(
        [
            Place(key=key, node="node-a", rev=answer.rev, term=1)
            for key, answer in zip(keys, answers, strict=True)
        ]
    )
    starts = [
        Start(key=key, created_at=now, attempt=1, node="node-a", holder=key.id, worker="w")
        for key in keys
    ]
    assert {answer.rule for answer in fleet.view.apply(starts)} == {"started"}
    return keys


def test_a_step_is_bounded_however_many_are_due(fleet):
    sweeper = attentive(fleet)
    begin_many(fleet, 1_000)
    settle(sweeper)
    wait(fleet, GUESS)
    assert [sweeper.step() for _ in range(12)] == [100] * 10 + [0, 0]
    wait(fleet, GRACE)
    assert settle(sweeper) == 1_000
    assert [fleet.log().count(rule) for rule in ("guess_applied", "requeued")] == [1_000, 1_000]


def test_what_is_not_due_costs_no_reading(fleet, monkeypatch):
    sweeper = attentive(fleet)
    begin_many(fleet, 250)
    settle(sweeper)
    wait(fleet, BEAT)
    settle(sweeper)
    read = []
    get_many = sweeper._view.get_many
    monkeypatch.setattr(sweeper._view, "get_many", lambda keys: read.extend(keys) or get_many(keys))
    for _ in range(4):
        wait(fleet, BEAT - 1)
        settle(sweeper)
    assert read == []
    wait(fleet, 4)
    settle(sweeper)
    assert len(read) == 250
