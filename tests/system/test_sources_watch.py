"""What the source document on an ordered watcher says: each reader is told all, in order, or is told that it was not.

Cases W (watcher) and R (on Redis). W1, W3, W4 and W6 are asked of subscribers in test_sources_subscribe.py, and of
watchers in tests/store/test_watch_many.py; C (what a reader holds) is in test_sources_list.py, S (the machine of jobs)
in test_sources_machine.py, W5 in test_sources_order.py. Of the readers of one process, W3 is asked in test_readers.py,
W4 and W5 in test_readers_faults.py.

Not here, for it comes with another part: filters by more than the origin (W7).
"""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise

import pytest

from broker.errors import Gone, Invalid, Resync, Unavailable
from broker.readers.readers import Readers
from broker.rules.replay import fold, rev_order
from broker.rules.ring import SIZE
from broker.store.log import Log, Place
from broker.store.server import PrivateRedis
from broker.store.store import Store
from broker.store.watch import Watcher
from tests.store.readers import ORIGIN, Desk, changes_until, key, logged, report, until
from tests.system.sources import trim


@pytest.fixture
def desk(store):
    return Desk(store)


@pytest.fixture
def watcher(store):
    with Watcher(store) as watcher:
        yield watcher


class TestWatcher:
    @pytest.mark.parametrize("is_cut", [False, True], ids=["kept", "cut"])
    def test_W2_a_reader_that_slept_gets_all_of_a_burst_or_is_told_that_it_does_not(
        self, desk, watcher, is_cut
    ):
        desk.report("before")
        watcher.snapshot()
        revs = desk.report_many(range(500))
        if is_cut:
            trim(desk.store, 100)
        told = changes_until(watcher, lambda told: len(told) >= 500)
        assert [change.rev for change in told] == revs
        assert {change.synthesized for change in told} == {is_cut}

    def test_W2_who_does_not_say_what_he_holds_is_told_once_that_a_part_is_gone(
        self, desk, watcher, store
    ):
        desk.report("before")
        cursor = watcher.snapshot().cursor
        desk.report_many(range(500))
        trim(desk.store, 100)
        with Watcher(store) as other:
            with pytest.raises(Gone):
                other.resume(cursor)
            other.snapshot()
            desk.report("after")
            assert [change.key.id for change in other.changes(60_000)] == ["after"]

    def test_W7_a_watcher_of_some_origins_is_told_their_removals_and_nothing_of_others(
        self, desk, store
    ):
        others = [Desk(store, origin) for origin in ("nas", "shelf")]
        for one in (desk, *others):
            one.report("a")
        with Watcher(store, ["desk", "nas"]) as watcher:
            watcher.snapshot()
            for one in (desk, *others):
                one.remove("a")
            told = changes_until(watcher, lambda told: len(told) >= 2)
            assert watcher.changes(0) == []
        assert {(change.key.origin, change.record) for change in told} == {
            ("desk", None), ("nas", None)
        }  # fmt: skip

    def test_W7_an_origin_that_cannot_be_is_refused(self, store):
        with pytest.raises(Invalid):
            Watcher(store, ["No Origin"])

    def test_W8_who_waits_for_a_quiet_origin_is_not_told_of_a_loss_that_is_none(
        self, desk, store, watcher
    ):
        quiet = Desk(store, "quiet")
        quiet.report("a")
        desk.report("a")
        watcher.snapshot()
        for number in range(10):
            desk.report_many(range(number * 100, number * 100 + 100))
            trim(desk.store, 0)
            trim(desk.store, 0, "quiet")
            watcher.changes(0)
        quiet.report("b")
        told = changes_until(watcher, lambda told: any(c.key.origin == "quiet" for c in told))
        [change] = [change for change in told if change.key.origin == "quiet"]
        assert (change.key.id, change.synthesized) == ("b", False)


@pytest.fixture
def readers(desk, store):
    desk.report("before")
    with Readers(store) as readers:
        yield readers


def begun(readers):
    reader = readers.open()
    reader.snapshot()
    return reader


class TestReadersOfOneProcess:
    def test_W1_ten_of_them_never_see_a_after_b_in_any_of_a_thousand_pairs(self, desk, readers):
        """Some see B alone, for a pair that was not taken in between is one change; nobody misses B."""

        def read(reader):
            told = []
            while sum(state == "completed" for _, state in told) < 1_000:
                changes = reader.changes(60_000)
                assert changes
                told += [(change.key.id, change.record.state) for change in changes]
            return told

        opened = [begun(readers) for _ in range(10)]
        with ThreadPoolExecutor(10) as pool:
            readings = [pool.submit(read, reader) for reader in opened]
            for at in range(0, 1_000, 50):
                ids, states = range(at, at + 50), ("running", "completed")
                desk.view.apply([report(id, state) for id in ids for state in states])
            for reading in readings:
                told = reading.result()
                assert len(set(told)) == len(told)
                assert [id for id, state in told if state == "completed"] == [
                    *map(str, range(1_000))
                ]
                last = dict(told)
                assert set(last.values()) == {"completed"}

    @pytest.mark.parametrize("jobs", [500, 2_000], ids=["kept", "too many"])
    def test_W2_one_that_slept_gets_all_of_a_burst_or_is_told_once_that_it_does_not(
        self, desk, readers, jobs
    ):
        asleep, awake = begun(readers), begun(readers)
        seen = 0
        for at in range(0, jobs, 100):
            desk.report_many(range(at, at + 100))
            seen += len(changes_until(awake, lambda told: len(told) >= 100))
        assert seen == jobs
        if jobs < SIZE:
            assert [change.key.id for change in asleep.changes(0)] == [*map(str, range(jobs))]
        else:
            with pytest.raises(Resync):
                asleep.changes(0)
            assert len(asleep.snapshot().records) == jobs + 1
        assert asleep.changes(0) == []

    def test_W6_two_of_one_name_are_two_and_each_gets_all(self, desk, readers):
        opened = [readers.open("twin"), readers.open("twin")]
        for reader in opened:
            reader.snapshot()
        desk.report("a")
        for reader in opened:
            assert [change.key.id for change in reader.changes(60_000)] == ["a"]

    def test_W6_one_may_be_opened_before_anything_is_there(self, desk, store, namespace):
        with Readers(store, ["nobody-yet"]) as readers:
            reader = readers.open()
            assert reader.snapshot() == ({}, {"nobody-yet": ("", "0-0")})
            Desk(store, "nobody-yet").report("a")
            assert [change.key.id for change in reader.changes(60_000)] == ["a"]

    def test_W7_an_origin_that_cannot_be_is_refused(self, store):
        with pytest.raises(Invalid):
            Readers(store, ["No Origin"])

    def test_W7_those_of_some_origins_are_told_their_removals_and_nothing_of_others(
        self, desk, store
    ):
        others = [Desk(store, origin) for origin in ("nas", "shelf")]
        for one in (desk, *others):
            one.report("a")
        with Readers(store, ["desk", "nas"]) as readers:
            reader = begun(readers)
            for one in (*others, desk):
                one.remove("a")
            told = changes_until(reader, lambda told: len(told) >= 2)
            assert reader.changes(0) == []
        assert {(change.key.origin, change.record) for change in told} == {
            ("desk", None), ("nas", None)
        }  # fmt: skip

    def test_W8_one_that_waits_for_a_quiet_origin_is_not_told_of_a_loss_that_is_none(
        self, desk, store
    ):
        quiet = Desk(store, "quiet")
        quiet.report("a")
        with Readers(store, ["quiet"]) as readers:
            reader = begun(readers)
            for number in range(10):
                desk.report_many(range(number * 100, number * 100 + 100))
                trim(desk.store, 0)
                trim(desk.store, 0, "quiet")
                assert reader.changes(0) == []
            quiet.report("b")
            [change] = reader.changes(60_000)
        assert (change.key.id, change.synthesized) == ("b", False)


class TestOnRedis:
    def test_R1_a_cursor_below_the_floor_is_told_and_not_passed_over(self, desk, watcher):
        desk.report("a")
        cursor = watcher.snapshot().cursor
        desk.report_many("bcd")
        trim(desk.store, 1)
        with pytest.raises(Gone):
            watcher.resume(cursor)

    def test_R2_a_cursor_at_the_last_entry_that_was_cut_misses_nothing(self, desk, watcher):
        desk.report_many("ab")
        cursor = watcher.snapshot().cursor
        trim(desk.store, 0)
        desk.report("c")
        watcher.resume(cursor)
        assert [change.key.id for change in watcher.changes(0)] == ["c"]

    def test_R2_nor_does_one_just_below_the_oldest_entry(self, desk, watcher):
        desk.report_many("abcd")
        trim(desk.store, 2)
        epoch, floor, _ = Log(desk.store, ORIGIN).position()
        watcher.resume({ORIGIN: Place(epoch, floor)})
        assert [change.key.id for change in watcher.changes(0)] == ["c", "d"]

    @pytest.mark.parametrize("how", ["deleted", "another epoch"])
    def test_R3_a_log_that_is_no_more_is_listed_anew_within_one_block(
        self, desk, watcher, how, monkeypatch
    ):
        desk.report_many("ab")
        watcher.snapshot()
        assert watcher.changes(0) == []
        desk.remove("a")
        desk.store.client.delete(desk.keys.log)
        if how == "another epoch":
            desk.report("c")
        looks, sleeps = [], []
        look, sleep = watcher._discover, watcher._bell.wait
        monkeypatch.setattr(watcher, "_discover", lambda: looks.append(1) or look())
        monkeypatch.setattr(
            watcher._bell, "wait", lambda logs, ms: sleeps.append(ms) or sleep(logs, ms)
        )
        told = watcher.changes(60_000)
        assert len(looks) <= 1  # the next one finds it
        assert all(ms <= 1_000 for ms in sleeps)  # and it comes within a second
        assert all(change.synthesized for change in told)
        expected = {key("b")} | ({key("c")} if how == "another epoch" else set())
        assert set(watcher.records) == expected

    def test_R8_redis_killed_at_any_time_has_both_the_record_and_its_entry_or_neither(
        self, tmp_path, namespace
    ):
        options = {"appendonly": "yes", "appendfsync": "always"}
        with PrivateRedis(tmp_path, options=options) as server:
            for turn in range(3):
                store = Store.from_url(server.url, namespace)
                desk = Desk(store)
                heard = []

                def write(desk=desk, heard=heard, turn=turn):
                    for number in range(100_000):
                        heard += desk.report_many([f"{turn}-{number}-{n}" for n in range(5)], seq=1)

                with ThreadPoolExecutor() as pool:
                    writing = pool.submit(write)
                    until(lambda heard=heard: len(heard) > 50)
                    os.kill(server.pid, signal.SIGKILL)
                    with pytest.raises(Unavailable):
                        writing.result()
                store.close()
                server.stop()
                server.start()
                with closing(Store.from_url(server.url, namespace)) as store:
                    entries = list(Log(store, ORIGIN).entries())
                    assert set(heard) <= {entry.rev for entry in entries}
                    assert all(rev_order(a.rev) < rev_order(b.rev) for a, b in pairwise(entries))
                    assert logged(fold(ORIGIN, entries)) == logged(Desk(store).records())
