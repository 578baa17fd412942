"""Beats with Redis's time; nodes and workers that come, leave, fall silent and are forgotten."""

from __future__ import annotations

import pytest

from broker.errors import Invalid, Unavailable
from broker.store.nodes import REPLACED_MS, SILENCE_MS_MAX, Nodes, WorkerInfo
from tests.clock import StillClock


@pytest.fixture
def clock(store):
    store.clock = StillClock(store.clock)
    return store.clock


@pytest.fixture
def nodes(store, clock):
    return Nodes(store)


def worker(name="w1", node="node-a", engine="echo", **more):
    return WorkerInfo(name=name, node=node, engine=engine, pid=4711, started_at=1_000, **more)


def test_a_beat_makes_worker_and_node_known_at_redis_time(store, nodes):
    before = store.clock.now()
    nodes.beat(worker(job="node-a/echo//7"))
    after = store.clock.now()

    [seen] = nodes.workers(after)
    [node] = nodes.nodes(after)
    assert (seen.name, seen.node, seen.engine, seen.pid) == ("w1", "node-a", "echo", 4711)
    assert (seen.job, seen.slots, seen.started_at) == ("node-a/echo//7", 1, 1_000)
    assert before <= seen.beaten_at == node.beaten_at <= after
    assert seen.silent_ms == after - seen.beaten_at
    assert (node.name, node.flag, node.workers) == ("node-a", "", (seen,))


def test_a_later_beat_counts(clock, nodes):
    nodes.beat(worker())
    [first] = nodes.workers(0)
    clock.ahead_ms += 5_000
    nodes.beat(worker(job="busy"))

    [second] = nodes.workers(0)
    assert second.beaten_at >= first.beaten_at + 5_000
    assert second.job == "busy"


def test_a_beat_is_one_round_trip(store, nodes):
    store.clock.now()
    sent = []
    pipeline = store.client.pipeline

    def counted(**how):
        sent.append(how)
        return pipeline(**how)

    store.client.pipeline = counted
    store.client.execute_command = None
    nodes.beat(worker())
    assert len(sent) == 1


@pytest.mark.parametrize("beating", [False, True])
def test_whether_beats_are_taken_is_asked_without_a_trace(store, nodes, beating):
    if beating:
        nodes.beat(worker())
    before = _dump(store)
    nodes.check_heard()
    assert _dump(store) == before
    store.client.config_set("maxmemory", 1)
    try:
        with pytest.raises(Unavailable, match="maxmemory"):
            nodes.check_heard()
    finally:
        store.client.config_set("maxmemory", 0)


def _dump(store):
    ours = store.client.scan_iter(f"{store.keys.namespace}:*")
    return {name: store.client.dump(name) for name in ours}


def test_what_a_worker_says_expires(store, nodes):
    nodes.beat(worker())
    nodes.tell("node-a", pressure=1)

    assert 0 < store.client.pttl(store.keys.worker("w1")) <= SILENCE_MS_MAX
    assert 0 < store.client.pttl(store.keys.node("node-a")) <= SILENCE_MS_MAX


def test_a_worker_that_leaves_is_forgotten_at_once_and_its_node_stays(store, nodes):
    nodes.beat(worker("w1"))
    nodes.beat(worker("w2"))
    nodes.leave("w1")

    assert [seen.name for seen in nodes.workers(0)] == ["w2"]
    assert not store.client.exists(store.keys.worker("w1"))
    nodes.leave("w2")
    assert [node.name for node in nodes.nodes(0)] == ["node-a"]


def test_workers_of_a_node_stand_with_it(nodes):
    nodes.beat(worker("w1", "node-a"))
    nodes.beat(worker("w2", "node-b", "ollama"))
    nodes.beat(worker("w3", "node-a"))

    of_node = {node.name: [seen.name for seen in node.workers] for node in nodes.nodes(0)}
    assert of_node == {"node-a": ["w1", "w3"], "node-b": ["w2"]}


def test_flags_are_set_and_cleared(nodes):
    nodes.beat(worker())
    nodes.set_flag("node-a", "drained")
    nodes.set_flag("node-b", "dead")

    assert nodes.flags() == {"node-a": "drained", "node-b": "dead"}
    assert [(node.name, node.flag) for node in nodes.nodes(0)] == [
        ("node-a", "drained"),
        ("node-b", "dead"),
    ]
    nodes.set_flag("node-a", None)
    assert nodes.flags() == {"node-b": "dead"}


@pytest.mark.parametrize("node, flag", [("node-a", "asleep"), ("Node A", "dead")])
def test_a_wrong_flag_or_name_is_told(nodes, node, flag):
    with pytest.raises(Invalid):
        nodes.set_flag(node, flag)


@pytest.mark.parametrize(
    "wrong",
    [{"node": "Node A"}, {"name": ""}, {"name": "w" * 65}, {"engine": ""}, {"engine": "e" * 65}],
)
def test_a_beat_with_a_wrong_name_is_told(wrong):
    with pytest.raises(Invalid):
        worker(**wrong)


def test_a_node_tells_its_pressure_and_models(nodes):
    nodes.beat(worker())
    nodes.tell("node-a", pressure=3, models=["llama3:8b", "a, b"])

    [node] = nodes.nodes(0)
    assert (node.pressure, node.models) == (3, {"llama3:8b", "a, b"})


def test_nonsense_about_one_node_does_not_hide_the_others(store, nodes):
    nodes.beat(worker("w1", "node-a"))
    nodes.beat(worker("w2", "node-b"))
    store.client.hset(store.keys.node("node-a"), mapping={"pressure": "high", "models": "{"})
    store.client.hset(store.keys.worker("w1"), "pid", "x")

    first, second = nodes.nodes(0)
    assert (first.pressure, first.models, first.workers[0].pid) == (0, frozenset(), 0)
    assert second.name == "node-b"


@pytest.mark.parametrize(
    "write",
    [
        lambda client, keys: client.hset(keys.worker("w1"), "job", b"\xff"),
        lambda client, keys: client.hset(keys.worker("w1"), "slots", "9" * 5_000),
        lambda client, keys: client.hset(keys.node("node-a"), "models", "[" * 100_000),
        lambda client, keys: client.zadd(keys.workers, {b"\xff": 1}),
        lambda client, keys: client.zadd(keys.workers, {"w1": "inf"}),
        lambda client, keys: client.zadd(keys.nodes, {b"\xff": 1, "node-c": "inf"}),
        lambda client, keys: client.hset(keys.nodeflags, "node-a", b"\xff"),
    ],
    ids=["job", "slots", "models", "worker", "worker's beat", "node", "flag"],
)
def test_what_another_program_wrote_hides_no_node(store, nodes, write):
    nodes.beat(worker("w1", "node-a"))
    nodes.beat(worker("w2", "node-b"))
    write(store.client, store.keys)

    found = {node.name: node for node in nodes.nodes(store.clock.now())}
    assert found.keys() >= {"node-a", "node-b"}
    assert [seen.name for seen in found["node-b"].workers] == ["w2"]
    assert nodes.forget(store.clock.now(), busy=()) == []
    assert nodes.forget_replaced(REPLACED_MS) in ([], ["w1"])
    assert nodes.remove("node-a")


def test_a_removed_node_leaves_nothing_and_comes_back_with_a_beat(store, nodes):
    nodes.beat(worker("w1", "node-a"))
    nodes.beat(worker("w2", "node-b"))
    nodes.set_flag("node-a", "drained")
    nodes.tell("node-a", pressure=1)

    assert nodes.remove("node-a")
    assert not nodes.remove("node-a")
    assert [node.name for node in nodes.nodes(0)] == ["node-b"]
    assert nodes.flags() == {}
    assert not store.client.exists(store.keys.worker("w1"), store.keys.node("node-a"))

    nodes.beat(worker("w1", "node-a"))
    assert [node.name for node in nodes.nodes(0)] == ["node-a", "node-b"]


def test_nodes_silent_for_a_day_are_forgotten_unless_they_have_jobs(clock, nodes):
    for name in ("node-a", "node-b"):
        nodes.beat(worker(f"w-{name}", name))
    later = clock.now() + SILENCE_MS_MAX + 1
    clock.ahead_ms += SILENCE_MS_MAX + 1
    nodes.beat(worker("w-node-c", "node-c"))

    assert nodes.forget(later - 1_000, busy=()) == []
    assert nodes.forget(later, busy={"node-b"}) == ["node-a"]
    assert [node.name for node in nodes.nodes(later)] == ["node-b", "node-c"]


def test_a_node_that_is_forgotten_keeps_its_flag_and_one_that_is_removed_does_not(clock, nodes):
    """Drained for a repair of two days, it must not come back open."""
    nodes.beat(worker("w1", "node-a"))
    nodes.set_flag("node-a", "drained")
    clock.ahead_ms += SILENCE_MS_MAX + 1

    assert nodes.forget(clock.now(), busy=()) == ["node-a"]
    assert nodes.flags() == {"node-a": "drained"}
    assert nodes.remove("node-a")
    assert nodes.flags() == {}


def test_workers_silent_for_a_day_go_with_the_next_beat(store, clock, nodes):
    nodes.beat(worker("w1"))
    clock.ahead_ms += SILENCE_MS_MAX + 10
    nodes.beat(worker("w2"))

    assert store.client.zrange(store.keys.workers, 0, -1) == [b"w2"]


def test_workers_that_their_node_beats_on_without_are_forgotten(store, clock, nodes):
    """Killed, and another one under another name in its place: it never says goodbye, and never comes back."""
    nodes.beat(worker("killed", "node-a"))
    nodes.beat(worker("alone", "node-b"))
    clock.ahead_ms += REPLACED_MS
    nodes.beat(worker("new", "node-a"))
    assert nodes.forget_replaced(REPLACED_MS) == []

    clock.ahead_ms += 1
    nodes.beat(worker("new", "node-a"))
    assert nodes.forget_replaced(REPLACED_MS + 1) == []
    assert nodes.forget_replaced(REPLACED_MS) == ["killed"]
    assert nodes.forget_replaced(REPLACED_MS) == []
    assert [seen.name for seen in nodes.workers(clock.now())] == ["alone", "new"]
    assert not store.client.exists(store.keys.worker("killed"))

    # One that was only frozen comes back with its next beat.
    nodes.beat(worker("killed", "node-a"))
    assert [seen.name for seen in nodes.workers(clock.now())] == ["alone", "killed", "new"]
