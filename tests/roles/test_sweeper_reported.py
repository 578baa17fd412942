"""Which reported jobs a sweeper guesses to have failed: of a node that is gone, or that nobody speaks of."""

from __future__ import annotations

import pytest

from tests.roles.fleet import settle
from tests.roles.sweeping import GRACE, GUESS, STALE, attentive, shown, wait


def spoken(fleet, key):
    """Its origin says once more that it runs."""
    record = fleet.view.get(key)
    fleet.report(key.id, "running", key.origin, created_at=record.created_at, node=record.node)


@pytest.mark.parametrize("where", ["node", "origin"])
def test_a_reported_job_went_with_the_node_it_was_on_or_came_from(fleet, where):
    fleet.workers_of("node-a")
    fleet.workers_of("node-b")
    place_of = {"node": "node-a"} if where == "node" else {"node": "node-b", "origin": "node-a"}
    key = fleet.report("7", **place_of)
    other = fleet.report("8", node="node-b")
    sweeper = attentive(fleet)
    spoken(fleet, key)
    wait(fleet, GUESS - 1)
    fleet.beat("node-a-echo-0")
    assert settle(sweeper) == 0
    wait(fleet, 1)
    assert settle(sweeper) == 1
    assert shown(fleet, key)[0] == "failed~"
    assert fleet.view.get(key).error == "node node-a went offline"
    assert shown(fleet, other)[0] == "running"

    for _ in range(5):
        wait(fleet, STALE)
        fleet.beat("node-a-echo-0")
        assert settle(sweeper) == 0  # it stays a guess
    spoken(fleet, key)
    assert shown(fleet, key)[0] == "running"


def test_who_speaks_on_after_its_node_fell_silent_is_not_guessed_again_at_once(fleet):
    """A program does not end with the workers of its machine."""
    fleet.workers_of("desk")
    key = fleet.report("7", origin="desk")
    sweeper = attentive(fleet)
    wait(fleet, GUESS)
    assert settle(sweeper) == 1
    wait(fleet, 1)
    for _ in range(6):
        spoken(fleet, key)
        wait(fleet, STALE // 10)
        assert settle(sweeper) == 0
    assert shown(fleet, key)[0] == "running"
    wait(fleet, STALE)
    assert settle(sweeper) == 1
    assert shown(fleet, key)[0] == "failed~"


def test_a_node_whose_workers_ended_in_good_order_says_nothing_of_a_program_there(fleet):
    fleet.workers_of("desk")
    key = fleet.report("7", origin="desk")
    sweeper = attentive(fleet)
    fleet.nodes.leave(fleet.workers.pop().name)
    wait(fleet, STALE)
    assert settle(sweeper) == 0
    assert shown(fleet, key)[0] == "running"


@pytest.mark.parametrize("before,state", [(GUESS - 1, "failed~"), (GUESS, "running")])
def test_nor_does_a_worker_there_that_was_killed_long_before_the_others_ended(fleet, before, state):
    fleet.workers_of("desk", count=2)
    key = fleet.report("7", origin="desk")
    sweeper = attentive(fleet)
    wait(fleet, before)
    fleet.beat(fleet.workers[0].name)
    fleet.nodes.leave(fleet.workers[1].name)
    wait(fleet, STALE)
    settle(sweeper)
    assert shown(fleet, key)[0] == state


def test_who_promised_to_speak_and_does_not_stopped_reporting(fleet):
    fleet.workers_of("node-a")
    key = fleet.report("7", resync=True)
    sweeper = attentive(fleet)
    wait(fleet, STALE - GUESS - 1)
    fleet.beat()
    assert settle(sweeper) == 0
    wait(fleet, 1)
    assert settle(sweeper) == 1
    assert fleet.view.get(key).error == "stopped reporting"

    wait(fleet, GRACE)
    assert settle(sweeper) == 0
    assert shown(fleet, key)[0] == "failed~"  # and is never queued again


def test_who_never_promised_is_only_doubted(fleet):
    key = fleet.report("7")
    sweeper = attentive(fleet)
    for _ in range(5):
        wait(fleet, STALE)
        assert settle(sweeper) == 0
    assert shown(fleet, key)[0] == "running"


def test_each_word_about_a_job_counts_though_no_log_tells_it(fleet):
    key = fleet.report("7", resync=True)
    sweeper = attentive(fleet)
    length = len(fleet.log())
    for _ in range(5):
        wait(fleet, STALE - 1)
        spoken(fleet, key)
        assert settle(sweeper) == 0
    assert len(fleet.log()) == length
    assert shown(fleet, key)[0] == "running"


def test_an_origin_may_say_itself_how_long_it_is_silent(fleet):
    key = fleet.report("7", stale_after=GUESS + 20_000)
    sweeper = attentive(fleet)
    wait(fleet, 19_999)
    assert settle(sweeper) == 0
    wait(fleet, 1)
    assert settle(sweeper) == 1
    assert shown(fleet, key)[0] == "failed~"


def test_a_promise_that_is_made_later_holds_for_the_jobs_that_are_there(fleet):
    key = fleet.report("7")
    sweeper = attentive(fleet)
    fleet.report("8", stale_after=20_000)
    wait(fleet, STALE)
    settle(sweeper)
    assert shown(fleet, key)[0] == "failed~"


def test_an_origin_whose_promise_cannot_be_read_hides_no_other(fleet):
    broken = fleet.report("7", origin="broken", resync=True)
    key = fleet.report("7", resync=True)
    sweeper = attentive(fleet)
    meta = fleet.store.keys.of("broken").meta
    fleet.store.client.rename(meta, f"{meta}:kept")
    fleet.store.client.set(meta, "no such thing")
    wait(fleet, STALE)
    settle(sweeper)
    assert [shown(fleet, one)[0] for one in (key, broken)] == ["failed~", "running"]
