"""The load view: what a dispatcher knows of the jobs, entry by entry."""

from __future__ import annotations

import pytest

from broker.roles.load import Load
from broker.roles.plan import node_loads, plan_places
from broker.rules.key import Key
from broker.rules.record import REPORTED, SUBMITTED, Record
from broker.rules.replay import Change
from broker.store.nodes import NodeSeen, WorkerSeen

NOW = 1_000_000


def key(id="7", engine="echo"):
    return Key("home", engine, "", id)


def record(state="queued", rev="10-0", **more):
    more = {"kind": SUBMITTED, "created_at": NOW, "attempt": 1} | more
    return Record(state=state, rev=rev, **more)


def change(record, rev=None, *, synthesized=False):
    return Change(key(), record, rev or record.rev, "test", "test", "test", synthesized)


def node(name="node-a", *workers, **more):
    more = {"beaten_at": NOW, "silent_ms": 0} | more
    seen = [
        WorkerSeen(name=w, node=name, engine="echo", beaten_at=NOW, pid=1, job="") for w in workers
    ]
    return NodeSeen(name=name, workers=tuple(seen), **more)


def loads(load, *nodes):
    return node_loads(load, nodes, 3_000)


def test_what_the_log_tells_late_does_not_undo_what_is_known():
    load = Load()
    load.put(key(), record(rev="10-0", node="node-a"), NOW)
    load.follow(change(record(rev="9-5")), NOW)
    load.follow(change(None, "9-9"), NOW)

    assert load.get(key()).node == "node-a"
    assert not load.heads()


def test_revs_are_compared_as_numbers():
    load = Load()
    load.put(key(), record(rev="9-0"), NOW)
    load.follow(change(record(rev="10-0", node="node-a")), NOW)

    assert load.get(key()).node == "node-a"


@pytest.mark.parametrize("then", [record(rev="1-0", node="node-b"), None])
def test_a_new_listing_is_true_whatever_was_known(then):
    load = Load()
    load.put(key(), record(rev="10-0", node="node-a"), NOW)
    load.follow(change(then, "1-0", synthesized=True), NOW)

    assert load.get(key()) == then
    assert load.carried("node-a") == 0


def test_the_same_entry_twice_makes_a_job_wait_once():
    load = Load()
    for _ in range(2):
        load.follow(change(record()), NOW)
    [(kind, (_, first))] = load.heads().items()
    load.take(kind, first)

    assert not load.heads()


def test_guesses_count_by_what_they_replaced_and_those_of_reports_as_nothing():
    load = Load()
    guess = {"guessed_from": "running", "node": "node-a", "worker": "w1"}
    load.put(key("1"), record("failed", **guess), NOW)
    load.put(key("2"), record("failed", **guess, kind=REPORTED), NOW)
    load.put(key("3"), record("running", kind=REPORTED, node="node-a"), NOW)

    assert load.carried("node-a") == 2
    assert load.taken({"w1"}) == {("node-a", "echo"): 1}


def test_an_ended_job_is_nothing():
    load = Load()
    load.put(key(), record("running", node="node-a", worker="w1"), NOW)
    load.follow(change(record("completed", rev="11-0", node="node-a", worker="w1")), NOW)

    assert len(load) == 0
    assert load.carried("node-a") == 0
    assert not load.taken({"w1"})


def test_a_job_held_back_is_offered_again_when_its_time_comes():
    load = Load()
    load.put(key(), record(), NOW)
    [(kind, (_, first))] = load.heads().items()
    load.take(kind, first)
    load.hold_back(first, NOW + 100)

    load.release(NOW + 99)
    assert not load.heads()
    assert load.release(NOW + 100) == {"home"}
    assert load.heads()


def test_a_job_held_back_that_changed_meanwhile_is_not_offered():
    load = Load()
    load.put(key(), record(), NOW)
    load.hold_back(key(), NOW + 100)
    load.put(key(), record(rev="11-0", node="node-a"), NOW)
    load.release(NOW + 100)

    assert not load.heads()


def test_jobs_that_came_and_went_leave_nothing_whoever_waits_before_them():
    """`first` is the head and stays, so that no look at a head ever comes to what is behind it."""
    load = Load()
    load.put(key("first"), record(rev="1-0"), NOW)
    for n in range(2, 20_000):
        load.put(key(str(n)), record(rev=f"{n}-0", created_at=NOW + n, due=n % 2 * (NOW + n)), NOW)
        load.put(key(str(n)), None, NOW)

    assert len(load) == 1
    assert sum(map(len, load._waiting.values())) + len(load._delayed) < 1_100
    assert load.heads()[("echo", "")][1] == key("first")


def test_tidying_keeps_who_waits_who_is_delayed_and_who_is_held_back():
    load = Load()
    for n in range(20):
        load.put(key(f"waits-{n}"), record(rev=f"{n + 1}-0"), NOW)
        load.put(key(f"later-{n}"), record(rev=f"{n + 1}-1", due=NOW + 1), NOW)
    [(kind, (_, held))] = load.heads().items()
    load.take(kind, held)
    load.hold_back(held, NOW + 1)
    for n in range(10_000):
        load.put(key("busy"), record(rev=f"{n + 100}-0"), NOW)
    load.put(key("busy"), None, NOW)

    assert len(taken_one_by_one(load)) == 19
    load.release(NOW + 1)
    assert len(taken_one_by_one(load)) == 21


def taken_one_by_one(load):
    taken = []
    while heads := load.heads():
        for kind, (_, first) in heads.items():
            load.take(kind, first)
            taken.append(first)
    return taken


def test_a_thousand_times_more_waiting_jobs_do_not_make_a_plan_slower():
    """Counted, not timed: planning looks at the jobs that it places, not at all."""
    load = Load()
    for n in range(5_000):
        load.put(key(str(n)), record(rev=f"{n + 1}-0", created_at=NOW + n), NOW)
    looked = []
    offered = load._offered
    load._offered = lambda key, rev: looked.append(key) or offered(key, rev)

    places = plan_places(load, loads(load, node("node-a", *map(str, range(10)))), 1, 100)
    assert [place.key.id for place in places] == [str(n) for n in range(10)]
    assert len(looked) <= 2 * 10 + 2


def test_a_place_said_again_by_the_same_leader_has_the_same_mark():
    marks = []
    for term in (1, 1, 2):
        load = Load()
        load.put(key(), record(), NOW)
        [place] = plan_places(load, loads(load, node("node-a", "w1")), term, 100)
        marks.append(place.event_id)

    assert marks[0] == marks[1] != marks[2]
