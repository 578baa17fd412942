"""What the source document on an ordered watcher says: each reader is told all, in order, or is told that it was not.

Cases W (watcher) and R (on Redis). W1, W3, W4 and W6 are asked of subscribers in test_sources_subscribe.py, and of
watchers in tests/store/test_watch_many.py; C (what a reader holds) is in test_sources_list.py, S (the machine of jobs)
in test_sources_machine.py, W5 in test_sources_order.py.

Not here, for it comes with another part: filters by more than the origin (W7).
"""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise

import pytest

from broker.errors import Gone, Invalid, Unavailable
from broker.rules.replay import fold, rev_order
from broker.store.log import Log, Place
from broker.store.server import PrivateRedis
from broker.store.store import Store
from broker.store.watch import Watcher
from tests.store.readers import ORIGIN, Desk, changes_until, key, logged, until
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
            assert [change.key.id for change in other.changes(5_000)] == ["after"]

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
    def test_R3_a_log_that_is_no_more_is_listed_anew_within_one_block(self, desk, watcher, how):
        desk.report_many("ab")
        watcher.snapshot()
        desk.remove("a")
        desk.store.client.delete(desk.keys.log)
        if how == "another epoch":
            desk.report("c")
        begun = time.monotonic()
        told = changes_until(watcher, lambda told: told)
        assert time.monotonic() - begun < 2.0
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
