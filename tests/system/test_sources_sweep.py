"""What the source documents say of sweeps: whom one selects, and whom it must leave alone. Cases 29-36, S12 and S14.

Their nodes sweep each other's jobs and never their own; here one sweeper stands for all, on a real Redis. So a job is
safe from it where its origin still speaks, or its node still beats, whoever asks.
"""

from __future__ import annotations

import pytest

from tests.roles.fleet import Fleet, settle
from tests.roles.sweeping import (
    BEAT,
    GRACE,
    GUESS,
    STALE,
    START,
    attentive,
    placed,
    rules_of,
    running,
    shown,
    wait,
)  # fmt: skip


@pytest.fixture
def fleet(store):
    made = Fleet(store)
    yield made
    made.close()


def guessed(fleet, keys):
    return [key.id for key in keys if fleet.view.get(key).inferred]


def test_29_only_what_is_silent_and_has_not_ended_is_selected(fleet):
    states = {"queued": "queued", "running": "running", "done": "completed", "broken": "failed"}
    silent = [fleet.report(id, state, resync=True) for id, state in states.items()]
    sweeper = attentive(fleet)
    heard = [fleet.report(f"heard-{id}", state, resync=True) for id, state in states.items()]
    wait(fleet, STALE - GUESS)
    assert settle(sweeper) == 2
    assert guessed(fleet, silent + heard) == ["queued", "running"]


def test_32_a_job_from_elsewhere_that_runs_on_a_node_that_fell_silent_is_swept(fleet):
    fleet.workers_of("node-a")
    fleet.workers_of("desk")
    key = fleet.report("7", origin="desk", node="node-a")
    sweeper = attentive(fleet)
    wait(fleet, GUESS)
    fleet.beat("node-a-echo-0")
    settle(sweeper)
    assert guessed(fleet, [key]) == ["7"]


def test_32_one_whose_origin_and_node_are_there_is_never_swept_for_being_silent(fleet):
    fleet.workers_of("desk")
    keys = [fleet.report("7", origin="desk", node="desk"), fleet.report("8", origin="desk")]
    sweeper = attentive(fleet)
    for _ in range(4):
        wait(fleet, STALE)
        fleet.beat()
        assert settle(sweeper) == 0
    assert guessed(fleet, keys) == []


def test_34_the_loss_of_a_node_touches_no_other_of_a_like_name(fleet):
    fleet.workers_of("node-a")
    fleet.workers_of("node-a2")
    fleet.workers_of("node")
    keys = [fleet.report(node, node=node) for node in ("node-a", "node-a2", "node")]
    sweeper = attentive(fleet)
    wait(fleet, GUESS)
    fleet.beat("node-a-echo-0")
    settle(sweeper)
    assert guessed(fleet, keys) == ["node-a"]


def test_36_a_lost_node_had_the_jobs_that_it_ran_and_those_that_came_from_it(fleet):
    fleet.workers_of("node-a")
    keys = [
        fleet.report("runs-there", node="node-a"),
        fleet.report("came-from-there", origin="node-a", node="elsewhere"),
        fleet.report("waits-there", "queued", node="node-a"),
        fleet.report("neither", node="elsewhere"),
        fleet.report("ended-there", "completed", node="node-a"),
    ]
    sweeper = attentive(fleet)
    wait(fleet, GUESS)
    settle(sweeper)
    assert guessed(fleet, keys) == ["runs-there", "came-from-there", "waits-there"]


def test_S12_a_worker_that_is_missing_from_the_list_is_no_dead_one(fleet):
    """It may just be coming. Only its own silence counts, and then it takes two looks, a grace apart."""
    fleet.workers_of("node-a")
    sweeper = attentive(fleet)
    [key] = running(fleet, "7")
    fleet.store.client.delete(fleet.store.keys.workers, fleet.store.keys.nodes)
    for _ in range(12):
        wait(fleet, BEAT)
        fleet.see(key)
        assert settle(sweeper) == 0
    assert shown(fleet, key) == ("running", 1, "node-a")

    wait(fleet, GUESS)
    settle(sweeper)
    assert shown(fleet, key) == ("failed~", 1, "node-a")
    fleet.see(key)  # here it is
    wait(fleet, BEAT)
    fleet.reassert(key)
    wait(fleet, GRACE - BEAT)
    fleet.see(key)
    assert settle(sweeper) == 0
    assert shown(fleet, key) == ("running", 1, "node-a")


def test_S14_what_is_just_being_handed_over_is_not_swept_as_unknown(fleet):
    """Its node may not have said anything yet, and no worker knows of it."""
    fleet.workers_of("node-a")
    sweeper = attentive(fleet)
    [key] = placed(fleet, "7")
    fleet.store.client.delete(fleet.store.keys.workers, fleet.store.keys.nodes)
    for _ in range(START // BEAT - 1):
        wait(fleet, BEAT)
        assert settle(sweeper) == 0
    assert shown(fleet, key) == ("queued", 1, "node-a")
    assert fleet.handed_over("node-a") == [str(key)]
    fleet.start(key)
    wait(fleet, BEAT)
    assert settle(sweeper) == 0
    assert rules_of(fleet, key) == ["submitted", "placed", "started"]
