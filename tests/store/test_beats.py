"""Beats and what workers say of themselves are held against each other; coming and going is no damage."""

from __future__ import annotations

import threading

import pytest

from broker.rules.audit import DRIFT, FORGET
from broker.store.beats import FORGOTTEN_MS, NEARLY_MS, Beats
from broker.store.nodes import Nodes, WorkerInfo
from broker.store.store import Store
from tests.clock import StillClock


@pytest.fixture
def nodes(store):
    store.clock = StillClock(store.clock)
    made = Nodes(store)
    for name in ("w1", "w2"):
        made.beat(worker(name))
    return made


def worker(name):
    return WorkerInfo(name=name, node="n1", engine="echo", pid=1, started_at=1)


def found(store, telling=("w1", "w2")):
    findings = [finding for piece in Beats(store, telling).walk() for finding in piece]
    assert {(finding.kind, finding.what) for finding in findings} <= {(DRIFT, FORGET)}
    return {finding.key: finding.text for finding in findings}


def test_workers_that_beat_and_tell_are_fine(store, nodes):
    assert found(store) == {}
    assert found(store, ["w1", "w2", "left-since"]) == {}
    nodes.leave("w1")
    assert found(store) == {}


def test_a_beat_of_which_nothing_is_told_is_found(store, nodes):
    key = store.keys.worker("w1")
    store.client.delete(key)
    assert found(store, ["w2"]) == {
        key: "worker w1 is among those that beat, but says nothing of itself"
    }
    store.clock.ahead_ms = FORGOTTEN_MS - 1
    assert list(found(store)) == [key]
    store.clock.ahead_ms = FORGOTTEN_MS
    assert found(store) == {}


def test_a_word_of_a_worker_that_is_not_among_those_that_beat_is_found(store, nodes):
    key = store.keys.worker("w1")
    store.client.zrem(store.keys.workers, "w1")
    assert found(store) == {
        key: "worker w1 says something of itself, but is not among those that beat"
    }
    store.client.persist(key)
    assert list(found(store)) == [key]
    store.client.pexpire(key, NEARLY_MS)
    assert found(store) == {}


@pytest.mark.parametrize("index", [False, True])
def test_what_is_whole_at_the_second_look_is_no_finding(store, nodes, monkeypatch, index):
    """The first beat of a worker is several writes, and so is its leaving."""
    if index:
        store.client.zrem(store.keys.workers, "w1")
    else:
        store.client.delete(store.keys.worker("w1"))
    look = Beats._unfit
    looks = []

    def beat_between(self, names):
        unfit = look(self, names)
        looks.append(unfit)
        nodes.beat(worker("w1"))
        return unfit

    monkeypatch.setattr(Beats, "_unfit", beat_between)
    assert found(store) == {}
    assert [list(unfit) for unfit in looks] == [["w1"], []]


def test_workers_that_come_and_go_meanwhile_are_no_finding(store, nodes):
    over = threading.Event()

    def churn(n):
        own = Store.from_url(store.url, store.keys.namespace)
        here = Nodes(own)
        turn = 0
        while not over.is_set():
            turn += 1
            name = f"passing{n}-{turn}"
            here.beat(worker(name))
            here.leave(name)
        own.close()

    threads = [threading.Thread(target=churn, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(300):
            names = [
                key.decode().rpartition(":")[2] for key in store.client.keys(store.keys.worker("*"))
            ]
            assert found(store, names) == {}
    finally:
        over.set()
        for thread in threads:
            thread.join()
