"""What goes wrong around a sweeper: its own deafness, a silent fleet, damage."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.errors import Unavailable
from broker.roles import sweeper as sweeper_module
from broker.roles.handoff import Handoff
from broker.store.connection import run_id
from broker.store.server import PrivateRedis
from broker.store.store import Store
from tests.roles.fleet import ORIGIN, PATIENT, settle
from tests.roles.sweeping import (
    BEAT,
    BRAKE,
    DUE,
    GRACE,
    GUESS,
    START,
    SUSPECT,
    attentive,
    listened,
    place,
    placed,
    prepare,
    rules_of,
    running,
    shown,
    wait,
)

# --- it may be itself who is deaf -------------------------------------------------------------------------------


def test_nobody_is_judged_until_a_new_sweeper_has_listened_for_a_whole_budget(fleet):
    fleet.workers_of("node-a")
    fleet.know_origin()
    [key] = running(fleet, "7")
    wait(fleet, GUESS + START)
    sweeper = fleet.sweeper()
    assert settle(sweeper) == 0
    wait(fleet, GUESS - 1)
    assert settle(sweeper) == 0
    assert shown(fleet, key)[0] == "running"
    wait(fleet, 1)
    assert settle(sweeper) == 1
    assert shown(fleet, key)[0] == "failed~"


@pytest.mark.parametrize("rule", DUE)
def test_nor_after_a_call_that_failed(fleet, monkeypatch, rule):
    what, patience = DUE[rule]
    fleet.workers_of("node-a")
    sweeper = attentive(fleet)
    key = prepare(fleet, sweeper, what)
    wait(fleet, patience)
    with monkeypatch.context() as broken:

        def away(*_):
            raise Unavailable("Redis is away")

        broken.setattr(sweeper._nodes, "nodes", away)
        with pytest.raises(Unavailable):
            sweeper.step()
    assert settle(sweeper) == 0
    wait(fleet, GUESS - 1)
    assert settle(sweeper) == 0
    assert rules_of(fleet, key)[-1] != rule
    wait(fleet, 1)
    settle(sweeper)
    assert rules_of(fleet, key)[-1] == rule


def test_nor_after_a_call_that_was_answered_late(fleet, monkeypatch):
    """Redis stood still, say: the beats that it did not take are not missing."""
    fleet.workers_of("node-a")
    sweeper = attentive(fleet)
    [key] = running(fleet, "7")
    wait(fleet, GUESS - SUSPECT)
    fleet.see(key)
    read = sweeper._watcher.changes

    def late(*args):
        monkeypatch.undo()
        wait(fleet, GUESS)
        return read(*args)

    monkeypatch.setattr(sweeper._watcher, "changes", late)
    settle(sweeper)
    assert shown(fleet, key)[0] == "running"
    wait(fleet, GUESS - 1)
    assert settle(sweeper) == 0
    wait(fleet, 1)
    assert settle(sweeper) == 1


def test_nor_after_the_server_began_anew(fleet, monkeypatch):
    fleet.workers_of("node-a")
    sweeper = attentive(fleet)
    [key] = running(fleet, "7")
    wait(fleet, GUESS)
    monkeypatch.setattr(sweeper_module, "run_id", lambda client: "another")
    assert settle(sweeper) == 0
    wait(fleet, GUESS - 1)
    assert settle(sweeper) == 0
    assert shown(fleet, key)[0] == "running"
    wait(fleet, 1)
    assert settle(sweeper) == 1


def test_a_server_that_began_anew_says_so(tmp_path):
    told = []
    for _ in range(2):
        with PrivateRedis(tmp_path) as server:
            store = Store.from_url(server.url)
            told += [run_id(store.client), run_id(store.client)]
            store.close()
    assert told[0] == told[1] != told[2] == told[3]


def test_a_failure_forgets_nobody(fleet, monkeypatch):
    """What was looked at when the call failed is looked at again."""
    fleet.workers_of("node-a", count=3)
    sweeper = attentive(fleet)
    keys = running(fleet, *"123")
    wait(fleet, GUESS)

    def away(*_):
        raise Unavailable("Redis is away")

    for name in ("get_many", "apply"):
        with monkeypatch.context() as broken:
            broken.setattr(sweeper._view, name, away)
            with pytest.raises(Unavailable):
                sweeper.step()
        settle(sweeper)
        wait(fleet, GUESS)
    assert settle(sweeper) == 3
    assert {shown(fleet, key)[0] for key in keys} == {"failed~"}


def test_what_was_to_be_cleared_away_when_rq_was_away_is_cleared_away_later(fleet, monkeypatch):
    fleet.workers_of("node-a")
    sweeper = attentive(fleet)
    placed(fleet, "7")
    wait(fleet, START)
    fleet.beat()
    with monkeypatch.context() as broken:

        def away(*_):
            raise Unavailable("Redis is away")

        broken.setattr(Handoff, "discard", away)
        assert sweeper.step() == 1
        for _ in range(2):
            with pytest.raises(Unavailable):
                sweeper.step()
    assert len(fleet.handed_over("node-a")) == 1
    settle(sweeper)
    assert fleet.handed_over("node-a") == []


def test_damage_in_rq_holds_up_nobody_who_is_to_be_judged(fleet, caplog):
    fleet.workers_of("node-a", count=3)
    sweeper = attentive(fleet)
    [key] = placed(fleet, "1")
    [other] = running(fleet, "2")
    queue = fleet.queue("node-a")
    fleet.store.client.set(queue.key, "no such thing")
    fleet.store.client.set(f"rq:workers:{queue.name}", "no such thing")
    fleet.store.client.sadd("rq:queues", queue.key)
    wait(fleet, START)
    fleet.beat()
    for _ in range(3):
        settle(sweeper)
    assert shown(fleet, key) == ("queued", 2, "")
    assert shown(fleet, other)[0] == "failed~"
    assert caplog.text.count("something stays in RQ that is over") == 1


@pytest.mark.parametrize("silent_ms", [SUSPECT, GUESS, 3 * GUESS])
def test_after_a_full_redis_it_listens_from_when_there_is_room(fleet, silent_ms):
    """While it takes no write it takes no beat, and workers beat anew only some moments later."""
    fleet.workers_of("node-a", count=2)
    sweeper = attentive(fleet)
    [key] = running(fleet, "7")
    settle(sweeper)
    fleet.store.client.config_set("maxmemory", 1)
    try:
        for _ in range(3):
            wait(fleet, silent_ms // 3)
            with pytest.raises(Unavailable):
                sweeper.step()
    finally:
        fleet.store.client.config_set("maxmemory", 0)
    assert settle(sweeper) == 0
    wait(fleet, GUESS - 1)
    assert settle(sweeper) == 0
    assert shown(fleet, key) == ("running", 1, "node-a")
    wait(fleet, 1)
    assert settle(sweeper) == 1
    assert shown(fleet, key)[0] == "failed~"


@pytest.mark.parametrize("by_ms", [2 * (BRAKE + GUESS), GUESS])
def test_where_redis_clock_was_set_or_the_machine_slept_it_listens_first(fleet, by_ms):
    """Each process notices it at its own time: until then it stamps its beats by the old one."""
    fleet.workers_of("node-a", count=2)
    awake = {"ahead_ms": 0}
    sweeper = attentive(fleet, here=lambda: (fleet.clock.ahead_ms - awake["ahead_ms"]) / 1000)
    [key] = running(fleet, "7")
    settle(sweeper)
    awake["ahead_ms"] = by_ms
    wait(fleet, by_ms)
    assert settle(sweeper) == 0
    wait(fleet, GUESS - 1)
    assert settle(sweeper) == 0
    assert shown(fleet, key) == ("running", 1, "node-a")
    wait(fleet, 1)
    assert settle(sweeper) == 1
    assert shown(fleet, key)[0] == "failed~"


# --- a fleet that is silent together ----------------------------------------------------------------------------


@pytest.mark.parametrize("rule", DUE)
def test_while_most_of_a_fleet_is_silent_together_nobody_is_judged(fleet, rule):
    what, patience = DUE[rule]
    fleet.workers_of("node-a", count=3)
    fleet.workers_of("node-b")
    sweeper = attentive(fleet)
    key = prepare(fleet, sweeper, what)
    fleet.beat()
    survivor = fleet.workers[3]

    wait(fleet, patience)
    fleet.nodes.beat(survivor)
    assert settle(sweeper) == 0
    wait(fleet, BRAKE + GUESS - patience - 1)
    fleet.nodes.beat(survivor)
    assert settle(sweeper) == 0
    assert rules_of(fleet, key)[-1] != rule
    wait(fleet, 1)
    settle(sweeper)
    assert rules_of(fleet, key)[-1] == rule


def test_once_they_are_heard_again_those_who_are_not_are_judged_after_a_budget(fleet):
    fleet.workers_of("node-a", count=4)
    sweeper = attentive(fleet)
    one, other = running(fleet, "1", "2")
    wait(fleet, GUESS)
    assert settle(sweeper) == 0
    fleet.beat(fleet.workers[0].name)
    fleet.see(other)
    assert settle(sweeper) == 0  # a fleet wakes one after another
    wait(fleet, GUESS)
    fleet.beat(fleet.workers[0].name)
    fleet.see(other)
    assert settle(sweeper) == 1
    assert [shown(fleet, key)[0] for key in (one, other)] == ["failed~", "running"]


def test_whoever_wakes_last_of_a_fleet_that_stood_still_is_not_judged(fleet):
    fleet.workers_of("node-a", count=4)
    sweeper = attentive(fleet)
    keys = running(fleet, "1", "2", "3")
    wait(fleet, 3 * GUESS)
    assert settle(sweeper) == 0
    for worker, key in zip(fleet.workers, keys, strict=False):
        fleet.nodes.beat(worker)
        settle(sweeper)
        fleet.see(key)
    assert settle(sweeper) == 0
    assert [shown(fleet, key)[0] for key in keys] == ["running"] * 3


def test_nor_are_the_jobs_of_those_who_all_beat_for_themselves_but_not_yet_for_their_jobs(fleet):
    fleet.workers_of("node-a", count=4)
    sweeper = attentive(fleet)
    keys = running(fleet, "1", "2", "3")
    wait(fleet, GUESS)
    assert settle(sweeper) == 0
    fleet.beat()
    assert settle(sweeper) == 0
    fleet.see(*keys)
    wait(fleet, GUESS - 1)
    fleet.beat()
    assert settle(sweeper) == 0
    fleet.see(keys[0])
    wait(fleet, 1)
    assert settle(sweeper) == 2
    assert [shown(fleet, key)[0] for key in keys] == ["running", "failed~", "failed~"]


def test_it_says_once_that_it_waits_and_once_that_it_does_no_more(fleet, caplog):
    fleet.workers_of("node-a", count=4)
    sweeper = attentive(fleet)
    wait(fleet, SUSPECT + 1)
    for _ in range(5):
        settle(sweeper)
    fleet.beat()
    for _ in range(5):
        settle(sweeper)
    said = [record.getMessage() for record in caplog.records if "most workers" in record.message]
    assert said == [
        "most workers fell silent together: nobody is judged",
        "most workers are heard or given up",
    ]


def test_workers_that_are_killed_and_replaced_one_after_another_are_no_silent_fleet(fleet):
    fleet.workers_of("node-a", count=4)
    sweeper = attentive(fleet)
    keys = []
    for turn in range(20):
        keys += running(fleet, turn, attempts=1)
        fleet.workers[0] = replace(fleet.workers[0], name=f"successor-{turn}")
        for _ in range(2):
            wait(fleet, BEAT)
            fleet.beat()
            settle(sweeper)
    assert {shown(fleet, key)[0] for key in keys[:-8]} == {"failed"}


def test_the_operators_word_ends_the_waiting_for_a_node(fleet):
    fleet.workers_of("node-a", count=4)
    fleet.workers_of("node-b")
    sweeper = attentive(fleet)
    [key] = running(fleet, "7")
    assert fleet.node_of(key) == "node-a"
    wait(fleet, GUESS)
    fleet.nodes.beat(fleet.workers[4])
    assert settle(sweeper) == 0
    fleet.nodes.set_flag("node-a", "dead")
    settle(sweeper)
    assert shown(fleet, key) == ("queued", 2, "")


# --- damage -----------------------------------------------------------------------------------------------------


def test_one_damaged_record_stops_nobody_else(fleet, caplog):
    fleet.workers_of("node-a", count=3)
    sweeper = attentive(fleet)
    keys = running(fleet, *"123")
    settle(sweeper)
    broken = fleet.store.keys.of_job(keys[1]).job
    fleet.store.client.hset(broken, "last_seen", "yesterday")
    wait(fleet, GUESS)
    for _ in range(5):
        settle(sweeper)
    assert [shown(fleet, key)[0] for key in (keys[0], keys[2])] == ["failed~", "failed~"]
    assert caplog.text.count(f"the record of {keys[1]} cannot be read") == 1

    fleet.store.client.hset(broken, "last_seen", fleet.clock.now() - GUESS)
    wait(fleet, BEAT)
    settle(sweeper)
    assert shown(fleet, keys[1])[0] == "failed~"


def test_a_record_that_got_lost_and_came_back_is_judged_as_before(fleet):
    """As an audit brings it back, of which no log tells."""
    fleet.workers_of("node-a")
    sweeper = attentive(fleet)
    [key] = running(fleet, "7")
    name = fleet.store.keys.of_job(key).job
    fleet.store.client.rename(name, f"{name}:kept")
    wait(fleet, GUESS)
    assert settle(sweeper) == 0
    fleet.store.client.rename(f"{name}:kept", name)
    wait(fleet, BEAT)
    assert settle(sweeper) == 1
    assert shown(fleet, key)[0] == "failed~"


@pytest.mark.parametrize("book", ["live", "meta", "log"])
def test_one_damaged_origin_stops_nobody_else(fleet, caplog, monkeypatch, book):
    fleet.workers_of("node-a", count=2)
    fleet.submit("known", engine="nobody", origin="broken")
    sweeper = attentive(fleet)
    [lost], [key] = running(fleet, "1", origin="broken"), running(fleet, "2")
    settle(sweeper)
    name = getattr(fleet.store.keys.of("broken"), book)
    fleet.store.client.rename(name, f"{name}:kept")
    fleet.store.client.set(name, "no such thing")
    tried = []
    apply = sweeper._view.apply
    monkeypatch.setattr(sweeper._view, "apply", lambda said: tried.append(said) or apply(said))
    wait(fleet, GUESS)
    for _ in range(5):
        settle(sweeper)
    assert shown(fleet, key)[0] == "failed~"
    assert shown(fleet, lost)[0] == "running"
    assert "broken" in caplog.text
    assert len(tried) == 2  # and not at each step

    fleet.store.client.rename(f"{name}:kept", name)
    wait(fleet, BEAT)
    settle(sweeper)
    assert shown(fleet, lost)[0] == "failed~"


def test_a_list_of_workers_that_is_none_lets_nobody_be_judged(fleet):
    """Without it nobody could tell a silent job from a silent fleet."""
    fleet.workers_of("node-a")
    sweeper = attentive(fleet)
    [key] = running(fleet, "7")
    wait(fleet, GUESS)
    fleet.store.client.rename(fleet.store.keys.workers, "kept")
    fleet.store.client.set(fleet.store.keys.workers, "no such thing")
    for _ in range(3):
        with pytest.raises(Exception, match="WRONGTYPE"):
            sweeper.step()
    fleet.store.client.rename("kept", fleet.store.keys.workers)
    assert settle(sweeper) == 0
    assert shown(fleet, key)[0] == "running"
    wait(fleet, GUESS)
    assert settle(sweeper) == 1


def test_a_log_that_was_lost_is_no_reason_to_forget_anybody(fleet):
    fleet.workers_of("node-a")
    sweeper = attentive(fleet)
    [key] = running(fleet, "7")
    settle(sweeper)
    fleet.store.client.delete(fleet.store.keys.of(ORIGIN).log)
    settle(sweeper)
    wait(fleet, GUESS)
    assert settle(sweeper) == 1
    wait(fleet, GRACE)
    settle(sweeper)
    assert shown(fleet, key) == ("queued", 2, "")


def test_a_redis_that_was_emptied_leaves_nothing_to_judge(fleet):
    fleet.workers_of("node-a", count=2)
    sweeper = attentive(fleet)
    running(fleet, "1")
    placed(fleet, "2")
    settle(sweeper)
    fleet.store.client.flushdb()
    settle(sweeper)
    assert len(sweeper._jobs) == 0
    # The workers beat, and there are jobs again.
    fleet.know_origin()
    wait(fleet, PATIENT.beat_ms)
    place(fleet)
    [key] = running(fleet, "3")
    listened(fleet, sweeper)
    assert shown(fleet, key)[0] == "failed~"
