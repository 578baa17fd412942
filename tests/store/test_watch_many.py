"""Many readers, slow readers, closed and killed readers: none of them costs another anything."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
import redis

from broker.store import doorbell, watch
from broker.store.log import CHUNK_MAX
from broker.store.store import Store
from broker.store.watch import LOOK_SECONDS, Watcher
from tests.store.readers import Desk, blocked, changes_until, patient, report, until

PAIRS = 1_000


@pytest.fixture
def desk(store):
    return Desk(store)


def write_pairs(desk):
    """Event A (running) and event B (completed) for each of many jobs, B right after A."""
    for at in range(0, PAIRS, 50):
        desk.view.apply(
            [report(id, state) for id in range(at, at + 50) for state in ("running", "completed")]
        )


def test_ten_readers_see_a_before_b_in_each_of_a_thousand_pairs(desk, redis_url, namespace):
    def read(_):
        with (
            closing(Store.from_url(patient(redis_url), namespace)) as store,
            Watcher(store) as watcher,
        ):
            watcher.snapshot()
            ready.wait()
            told = changes_until(watcher, lambda told: len(told) >= 2 * PAIRS)
            return [(change.key.id, change.record.state) for change in told]

    desk.report("before", "completed")
    ready = threading.Barrier(11)
    with ThreadPoolExecutor(10) as pool:
        readers = pool.map(read, range(10))
        ready.wait()
        write_pairs(desk)
        expected = [(str(id), state) for id in range(PAIRS) for state in ("running", "completed")]
        for told in readers:
            assert told == expected


def test_a_sleeping_reader_delays_nobody_and_misses_nothing(desk, store):
    desk.report("before", "completed")
    with Watcher(store) as awake, Watcher(store) as asleep:
        awake.snapshot()
        asleep.snapshot()
        desk.report("one")
        seconds = []
        for number in range(100):
            begun = time.monotonic()
            desk.report(number)
            changes_until(awake, lambda told, id=str(number): id in {c.key.id for c in told})
            seconds.append(time.monotonic() - begun)
        # Milliseconds: each is told by its ring. Who had to wait for the next look at all logs would need a second.
        assert statistics.median(seconds) < LOOK_SECONDS / 2
        told = changes_until(asleep, lambda told: len(told) == 101)
        assert [change.key.id for change in told] == ["one", *map(str, range(100))]


def test_a_reader_that_fell_behind_is_served_in_bounded_chunks(desk, store):
    desk.report("before", "completed")
    with Watcher(store) as watcher:
        watcher.snapshot()
        write_pairs(desk)
        sizes = []
        until(lambda: sizes.append(len(watcher.changes(1_000))) or sum(sizes) == 2 * PAIRS)
        assert max(sizes) <= CHUNK_MAX


@pytest.fixture
def sleeps(monkeypatch):
    """How each sleep of a doorbell ended: in its own time, or hung up."""
    ends = []

    def ring(*args, ring=doorbell._ring):
        try:
            rung = ring(*args)
        except redis.ConnectionError:
            ends.append("hung up")
            raise
        ends.append("in its time")
        return rung

    monkeypatch.setattr(doorbell, "_ring", ring)
    return ends


def test_closing_ends_a_blocked_call_at_once(desk, store, sleeps, monkeypatch):
    """It hangs up on the sleep under way, which would else last for what are minutes here."""
    monkeypatch.setattr(doorbell, "SLEEP_MS_MAX", 600_000)
    monkeypatch.setattr(watch, "LOOK_SECONDS", 600)
    store.client.connection_pool.connection_kwargs["socket_timeout"] = 600
    desk.report("a")
    with ThreadPoolExecutor() as pool:
        for _ in range(5):
            watcher = Watcher(store)
            watcher.snapshot()
            waiting = pool.submit(watcher.changes, 600_000)
            until(lambda: blocked(store))
            watcher.close()
            assert waiting.result(60) == []
            assert sleeps[-1] == "hung up"
            assert watcher.changes(60_000) == []
            watcher.close()
            until(lambda: not blocked(store))


def test_closing_in_mid_burst_ends_it_once_without_an_error_or_an_empty_change(desk, store):
    done = threading.Event()

    def burst():
        for number in itertools.count():
            if done.is_set():
                return
            # A hundred jobs, moved on and on: what each turn lists does not grow with the time that the turns take.
            desk.report(number % 100, seq=number + 1, node=f"n{number}")

    def read(watcher, batches):
        while batch := watcher.changes(60_000):
            batches.append(batch)

    desk.report("before", "completed")
    with ThreadPoolExecutor() as pool:
        writing = pool.submit(burst)
        try:
            for turn in range(20):
                watcher = Watcher(store)
                watcher.snapshot()
                batches = []
                reading = pool.submit(read, watcher, batches)
                until(lambda told=batches: sum(map(len, told)) > 10)
                time.sleep(0.003 * turn)  # close at another moment of the burst each turn
                watcher.close()
                given = len(batches)
                reading.result(60)
                # The one on its way at most: who went on would be given more while the burst lasts, which is for ever.
                assert len(batches) <= given + 1
                assert all(change.key and change.record for batch in batches for change in batch)
        finally:
            done.set()
        writing.result()


def test_closing_before_and_between_calls_leaves_no_connection_behind(desk, store):
    desk.report("a")
    before = len(store.client.client_list())
    for _ in range(5):
        with Watcher(store) as watcher:
            watcher.snapshot()
            watcher.changes(5)
    until(lambda: len(store.client.client_list()) <= before + 1)


def watch_forever(url, namespace, reports):
    with Watcher(Store.from_url(patient(url), namespace)) as watcher:
        watcher.snapshot()
        reports.put("ready")
        while True:
            watcher.changes(60_000)


def test_a_killed_reader_leaves_nothing_behind(desk, store, redis_url, namespace):
    desk.report("a")
    keys = sorted(store.client.keys(f"{namespace}:*"))
    clients = len(store.client.client_list())
    spawn = multiprocessing.get_context("spawn")
    reports = spawn.Queue()
    reader = spawn.Process(target=watch_forever, args=(redis_url, namespace, reports))
    reader.start()
    assert reports.get(timeout=60) == "ready"
    until(lambda: blocked(store))
    os.kill(reader.pid, signal.SIGKILL)
    reader.join()
    until(lambda: len(store.client.client_list()) <= clients)
    assert sorted(store.client.keys(f"{namespace}:*")) == keys
    assert store.client.xinfo_groups(desk.keys.log) == []
