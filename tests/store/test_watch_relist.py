"""A watcher compares what it holds with a new list, by itself and in turn; it finds nothing, or says what it found."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from types import SimpleNamespace

import pytest
import redis

from broker.errors import Damaged, Unavailable
from broker.store import follow, watch
from broker.store.log import Log
from broker.store.store import Store
from broker.store.watch import Watcher
from tests.store.readers import ORIGIN, Desk, changes_until, key, logged, patient, until
from tests.system.sources import Moments, trim

ORIGINS = [f"node-{number}" for number in range(12)]


@pytest.fixture
def clock(monkeypatch):
    """The monotonic clock, as far as watchers look at it: it stands still until a test moves it."""
    made = SimpleNamespace(now=1_000.0)
    for module in (follow, watch):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


@pytest.fixture
def listed(monkeypatch):
    """The origins that were listed, in turn."""
    origins = []

    def scan(store, origin, scan=follow.scan):
        origins.append(origin)
        return scan(store, origin)

    monkeypatch.setattr(follow, "scan", scan)
    return origins


@pytest.fixture
def restless(store):
    """A watcher that lists an origin anew in each call."""
    with Watcher(store, relist_seconds=0) as watcher:
        yield watcher


@pytest.fixture
def fleet(store):
    for origin in ORIGINS:
        Desk(store, origin).report("a")


def lose_behind_its_back(desk, id):
    """A job goes without a word in the log."""
    desk.store.client.delete(desk.keys.of_job(key(id).job).job)
    desk.store.client.zrem(desk.keys.ids, key(id).member)


def test_one_origin_a_call_and_each_in_its_turn(fleet, restless, listed):
    restless.snapshot()
    restless.changes(0)  # reads on, before anything is compared
    listed.clear()
    for _ in range(2 * len(ORIGINS)):
        before = len(listed)
        assert restless.changes(0) == []
        assert len(listed) == before + 1
    assert sorted(listed[: len(ORIGINS)]) == sorted(ORIGINS)
    assert listed[: len(ORIGINS)] == listed[len(ORIGINS) :]


def test_each_origin_after_five_minutes_a_tenth_more_or_less_and_not_all_at_once(
    fleet, watcher, listed, clock
):
    watcher.snapshot()
    listed.clear()
    begun, moments = clock.now, {}
    clock.now += 269
    for _ in ORIGINS:
        watcher.changes(0)
    assert listed == []
    while clock.now < begun + 335:
        for _ in ORIGINS:
            watcher.changes(0)
        moments |= {origin: clock.now - begun for origin in listed if origin not in moments}
        clock.now += 4
    assert clock.now < begun + 340
    assert sorted(listed) == sorted(ORIGINS)
    assert len(set(moments.values())) > 3
    clock.now += 331
    for _ in ORIGINS:
        watcher.changes(0)
    assert sorted(listed) == sorted(2 * ORIGINS)


def test_a_call_that_waits_is_up_for_each_origin_that_is_due(fleet, store, listed, monkeypatch):
    """Some ten times a second, by Redis's own timer: enough for thousands of origins in five minutes."""
    with Watcher(store, relist_seconds=0.05) as watcher, ThreadPoolExecutor() as pool:
        watcher.snapshot()
        asked, wait = [], watcher._bell.wait
        monkeypatch.setattr(
            watcher._bell, "wait", lambda logs, ms: asked.append(ms) or wait(logs, ms)
        )
        listed.clear()
        waiting = pool.submit(watcher.changes, 600_000)
        try:
            until(lambda: set(listed) == set(ORIGINS))
        finally:
            watcher.close()
        assert waiting.result(60) == []
    # In ms, whatever became of it: no sleep is longer than until the next one is due.
    assert max(asked) <= 55


def test_a_drift_is_counted_told_mended_and_warned_of_once(desk, store, caplog):
    desk.report_many("abc")
    with Watcher(store, relist_seconds=0) as watcher:
        watcher.snapshot()
        watcher.changes(0)
        lose_behind_its_back(desk, "b")
        [change] = watcher.changes(0)
        assert (change.key, change.record, change.synthesized) == (key("b"), None, True)
        assert watcher.drift == 1
        for _ in range(5):
            assert watcher.changes(0) == []
        assert watcher.drift == 1
        assert watcher.records == desk.records()
    [warning] = [entry for entry in caplog.records if entry.levelno == logging.WARNING]
    assert warning.getMessage() == "1 jobs of desk were held wrongly: desk/ollama//b"


def test_a_call_that_waits_relists_when_it_is_time(desk, store):
    desk.report_many("ab")
    with Watcher(store, relist_seconds=0.2) as watcher:
        watcher.snapshot()
        watcher.changes(0)
        lose_behind_its_back(desk, "a")
        [change] = watcher.changes(60_000)
        assert (change.key, change.record) == (key("a"), None)


def test_what_writers_do_meanwhile_is_no_drift(desk, redis_url, namespace, listed):
    """It is told by the log, however the list is torn, and also where the log is cut at the same time."""
    done = threading.Event()

    def write():
        with closing(Store.from_url(patient(redis_url), namespace)) as store:
            mine = Desk(store)
            for number in range(1_000_000):
                if done.is_set():
                    return
                mine.report_many(range(number, number + 20), seq=number + 1)
                mine.remove(number)
                if number % 50 == 0:
                    trim(store, 30)

    desk.report_many(range(1_000))
    with ThreadPoolExecutor() as pool, Watcher(desk.store, relist_seconds=0) as watcher:
        watcher.snapshot()
        writing = pool.submit(write)
        try:
            while len(listed) < 30:
                with suppress(Unavailable):  # the log was cut faster than it could be listed
                    watcher.changes(5)
        finally:
            done.set()
            writing.result()
        changes_until(watcher, lambda told: logged(watcher.records) == logged(desk.records()))
        assert watcher.drift == 0


def test_an_origin_that_cannot_be_listed_is_told_and_holds_up_no_other(fleet, restless, listed):
    restless.snapshot()
    restless.changes(0)
    spoilt = Desk(restless._store, ORIGINS[3])
    spoilt.store.client.delete(spoilt.keys.ids)
    spoilt.store.client.set(spoilt.keys.ids, "text")
    listed.clear()
    failed = 0
    for _ in range(2 * len(ORIGINS)):
        try:
            restless.changes(0)
        except Damaged:
            failed += 1
    assert failed == 2
    assert all(listed.count(origin) == 2 for origin in ORIGINS)


def test_what_was_read_on_before_a_relist_failed_is_told_by_the_next_call(desk, store, monkeypatch):
    monkeypatch.setattr(follow, "CHUNK_MAX", 10)
    desk.report("before")
    moments = Moments(store, monkeypatch)
    with Watcher(store) as watcher:
        watcher.snapshot()
        desk.report_many(range(30))
        calls = moments.count(lambda: watcher.relist(ORIGIN))
        told = len(watcher.changes(0))
        assert told == 30
        for number in range(calls):
            desk.report_many([f"{number}-{n}" for n in range(30)])
            moments.before(number, cut_off)
            with pytest.raises(Unavailable):
                watcher.relist(ORIGIN)
            moments.before(99, cut_off)
            told += len(changes_until(watcher, lambda told: len(told) >= 30))
        assert told == 30 * (calls + 1)
        assert logged(watcher.records) == logged(desk.records())


def cut_off():
    raise redis.ConnectionError("cut off")


def test_who_is_behind_catches_up_before_anything_is_compared(desk, restless, listed, monkeypatch):
    for module in (follow, watch):
        monkeypatch.setattr(module, "CHUNK_MAX", 10)
    desk.report("before")
    restless.snapshot()
    restless.changes(0)
    desk.report_many(range(35))
    listed.clear()
    restless._followers[ORIGIN].relist_in(1_000)
    told = restless.changes(0)
    restless._followers[ORIGIN].relist_in(0)
    while restless.is_behind:
        assert listed == []
        told += restless.changes(0)
    assert len(told) == 35
    restless.changes(0)
    assert listed == [ORIGIN]


def test_whoever_does_not_say_what_he_holds_is_not_compared_with_a_list(desk, restless, listed):
    desk.report("a")
    cursor = restless.snapshot().cursor
    restless.resume(cursor)
    listed.clear()
    desk.report("b")
    assert [change.key.id for change in restless.changes(0)] == ["b"]
    for _ in range(3):
        assert restless.changes(0) == []
    assert listed == []


def test_closing_in_the_middle_of_a_relist_ends_it(desk, restless, monkeypatch):
    desk.report_many(range(300))
    restless.snapshot()
    restless.changes(0)
    pages = []

    def scan(store, origin, scan=follow.scan):
        for page in scan(store, origin):
            pages.append(page)
            restless.close()
            yield page

    monkeypatch.setattr(follow, "scan", scan)
    monkeypatch.setattr("broker.store.scan.PAGE", 5)
    assert restless.changes(10_000) == []
    assert len(pages) == 1


def test_a_newest_entry_that_a_hand_deletes_during_a_relist_is_no_place_to_read_on_to_for_ever(
    desk, store, watcher, monkeypatch
):
    desk.report("a")
    watcher.snapshot()
    desk.report("b")

    def look(follower, is_stopped, look=follow.Follower.look):
        seen = look(follower, is_stopped)
        [(newest, _)] = store.client.xrevrange(desk.keys.log, count=1)
        store.client.xdel(desk.keys.log, newest)
        return seen

    monkeypatch.setattr(follow.Follower, "look", look)
    assert watcher.relist(ORIGIN) == 0
    monkeypatch.undo()
    assert [change.key.id for change in watcher.changes(0)] == ["b"]
    assert logged(watcher.records) == logged(desk.records())


def test_a_watcher_that_was_cut_off_knows_that_it_is_behind(fleet, store, monkeypatch):
    """Half a list may be told; it must not be taken for the whole."""
    moments = Moments(store, monkeypatch)
    with Watcher(store) as watcher:
        calls = moments.count(lambda: watcher.changes(0))
        assert not watcher.is_behind
        assert len(watcher.records) == len(ORIGINS)
    halves = 0
    for number in range(calls):
        with Watcher(store) as watcher:
            moments.before(number, cut_off)
            try:
                halves += bool(watcher.changes(0))
            except Unavailable:
                assert not watcher.records
            assert watcher.is_behind
            moments.before(10_000, cut_off)
            watcher.changes(0)
            assert not watcher.is_behind
            assert len(watcher.records) == len(ORIGINS)
    assert halves > len(ORIGINS)


def test_nor_does_one_that_knew_all_before_take_half_of_the_news_for_the_whole(
    fleet, store, monkeypatch
):
    moments = Moments(store, monkeypatch)
    halves = 0
    with Watcher(store) as watcher:
        watcher.changes(0)
        for turn in range(len(ORIGINS)):
            assert not watcher.is_behind
            for origin in ORIGINS:
                Desk(store, origin).report(turn)
            moments.before(turn, cut_off)
            told = []
            with suppress(Unavailable):
                told = watcher.changes(0)
            assert watcher.is_behind
            halves += bool(told)
            moments.before(10_000, cut_off)
            assert len(told) + len(watcher.changes(0)) == len(ORIGINS)
    assert halves > len(ORIGINS) // 2


def test_a_log_that_a_hand_wrote_to_is_a_loss_or_a_word_but_never_a_drift(desk, restless):
    """Only what no entry, trim or loss explains is one."""
    desk.report_many("abc")
    restless.snapshot()
    restless.changes(0)
    desk.remove("a")
    Log(desk.store, ORIGIN).trim(0, 1)
    desk.store.client.delete(desk.keys.log)
    desk.report("d")
    changes_until(restless, lambda told: len(told) == 2)
    for _ in range(3):
        restless.changes(0)
    assert restless.drift == 0
    assert logged(restless.records) == logged(desk.records())
