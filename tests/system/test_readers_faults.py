"""Readers that are closed in mid-burst, and readers under which Redis, a log or the reading itself breaks."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count

import pytest

from broker import Damaged, Resync, Unavailable
from broker.readers.readers import Readers
from broker.rules.ring import SIZE
from broker.store import follow
from broker.store.store import Store
from tests.store.readers import (
    ORIGIN,
    SECONDS_MAX,
    Desk,
    blocked,
    changes_until,
    key,
    kill,
    logged,
    until,
)
from tests.store.test_watch_loss import delete, lose_all, lose_all_and_begin_anew, recreate, trim


class Held:
    """What somebody holds who does as a reader is told."""

    def __init__(self, reader):
        self.reader = reader
        self.records = dict(reader.snapshot().records)
        self.troubles = []

    def follow(self, wait_ms=200):
        try:
            changes = self.reader.changes(wait_ms)
        except Resync:
            self.records = dict(self.reader.snapshot().records)
            return []
        except (Unavailable, Damaged) as trouble:
            self.troubles.append(trouble)
            return []
        for change in changes:
            if change.record is None:
                self.records.pop(change.key, None)
            else:
                self.records[change.key] = change.record
        return changes

    def ends_with(self, desk):
        until(lambda: self.follow() is not None and logged(self.records) == logged(desk.records()))


class TestClosing:
    @pytest.fixture(autouse=True)
    def unhurried(self, monkeypatch):
        """The reading looks by itself once in ten minutes: who waits for its next turn does not end in time."""
        monkeypatch.setattr("broker.readers.readers.WAIT_MS", 600_000)
        monkeypatch.setattr("broker.store.watch.LOOK_SECONDS", 600.0)

    def test_closing_all_in_mid_burst_ends_each_reader_once_without_an_error_or_an_empty_change(
        self, desk, reading
    ):
        done = threading.Event()

        def burst():
            """Of the same jobs again and again: more than a ring holds, but never more than are quickly listed."""
            for number in count(1):
                if done.is_set():
                    return
                at = 10 * number % (2 * SIZE)
                desk.report_many(range(at, at + 10), seq=number)

        def read(reader):
            reader.snapshot()
            ended = []
            batches = []
            while not ended:
                try:
                    batch = reader.changes(600_000)
                except Resync:
                    reader.snapshot()
                    continue
                batches.append(batch) if batch else ended.append(batch)
            assert reader.closed
            assert reader.changes(600_000) == []
            return batches

        with ThreadPoolExecutor(7) as pool:
            writing = pool.submit(burst)
            try:
                for turn in range(15):
                    readers = Readers(reading)
                    opened = [pool.submit(read, readers.open()) for _ in range(6)]
                    idle = readers.open()
                    idle.snapshot()
                    until(lambda idle=idle: hears(idle))
                    threading.Event().wait(0.003 * turn)  # at another moment of the burst each turn
                    readers.close()
                    for reader in opened:
                        batches = reader.result(SECONDS_MAX)
                        assert all(
                            change.key and change.record for batch in batches for change in batch
                        )
                    assert idle.changes(600_000) == []
            finally:
                done.set()
            writing.result()

    def test_closing_one_of_them_from_another_thread_ends_that_one_at_once(self, desk, readers):
        other = readers.open()
        other.snapshot()
        with ThreadPoolExecutor() as pool:
            for _ in range(5):
                reader = readers.open()
                reader.snapshot()
                waiting = pool.submit(reader.changes, 600_000)
                until(waiting.running)
                reader.close()
                assert waiting.result(SECONDS_MAX) == []
                reader.close()
                assert reader.closed
        desk.report("a")
        assert [change.key.id for change in other.changes(60_000)] == ["a"]

    def test_what_waited_for_a_reader_that_is_closed_is_not_told(self, desk, readers):
        reader, other = readers.open(), readers.open()
        reader.snapshot()
        other.snapshot()
        desk.report("a")
        changes_until(other, lambda told: told)
        reader.close()
        assert reader.changes(0) == []
        assert set(reader.snapshot().records) == {key("a")}  # what it is asked for it still says

    def test_one_opened_after_the_end_has_ended(self, desk, reading):
        with Readers(reading) as readers:
            readers.open().snapshot()
        reader = readers.open()
        assert reader.closed
        assert reader.changes(60_000) == []
        readers.close()

    def test_closing_while_the_first_list_is_made_ends_who_waits_for_it(
        self, desk, reading, monkeypatch
    ):
        desk.report_many(range(10))
        listing = threading.Event()
        go_on = threading.Event()

        def scan(store, origin, scan=follow.scan):
            listing.set()
            go_on.wait(600)
            yield from scan(store, origin)

        monkeypatch.setattr(follow, "scan", scan)
        readers = Readers(reading)
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(readers.open().snapshot)
            assert listing.wait(SECONDS_MAX)
            readers.close()
            with pytest.raises(Unavailable, match="closed"):
                waiting.result(SECONDS_MAX)  # the list is not made before
            go_on.set()
        readers._thread.join(SECONDS_MAX)
        assert not readers._thread.is_alive()

    def test_leaving_it_leaves_no_thread_and_no_connection(self, desk, store, reading):
        clients = len(store.client.client_list())
        threads = set(threading.enumerate())
        for _ in range(5):
            with Readers(reading) as readers:
                readers.open().snapshot()
        assert set(threading.enumerate()) <= threads
        until(lambda: len(store.client.client_list()) <= clients + 1)


class TestLoss:
    @pytest.mark.parametrize("lose", [trim, delete, recreate, lose_all, lose_all_and_begin_anew])
    def test_under_any_loss_each_reader_ends_with_the_list(self, desk, readers, lose):
        desk.report_many(range(20))
        held = [Held(readers.open()) for _ in range(4)]
        asleep = Held(readers.open())
        for one in held:
            one.ends_with(desk)
        desk.remove(3)
        desk.report(4, "completed")
        lose(desk)
        desk.report("after")
        for one in [*held, asleep]:
            one.ends_with(desk)
            assert one.follow(0) == []
        assert readers.drift == 0

    def test_under_a_flush_of_more_than_a_ring_holds_each_is_told_once(self, desk, readers):
        desk.report_many(range(1_500))
        held = [Held(readers.open()) for _ in range(3)]
        for one in held:
            one.ends_with(desk)
        lose_all(desk)
        desk.view._known.clear()
        desk.report_many(range(10))
        for one in held:
            until(lambda one=one: len(one.follow() or one.records) <= 10)
            one.ends_with(desk)

    def test_redis_killed_and_restarted_is_said_and_then_each_ends_with_the_list(self, server):
        store = Store.from_url(f"redis://127.0.0.1:{server.port}")
        desk = Desk(store)
        desk.report_many("ab")
        with Readers(Store.from_url(f"redis://127.0.0.1:{server.port}")) as readers:
            held = [Held(readers.open()) for _ in range(3)]
            until(lambda: blocked(store))
            kill(server)
            for one in held:
                until(lambda one=one: one.follow(10) or one.troubles)
                assert isinstance(one.troubles[-1], Unavailable)
            assert set(readers.open().snapshot().records) == {key("a"), key("b")}
            server.start()
            desk.report("c")
            desk.remove("a")
            for one in held:
                one.ends_with(desk)
                assert one.follow(1_500) == []
        store.close()

    def test_redis_away_from_the_start_is_said_and_it_goes_on_when_it_comes(self, server):
        url = f"redis://127.0.0.1:{server.port}"
        with closing(Store.from_url(url)) as store:
            Desk(store).report("a")
        kill(server)
        with Readers(Store.from_url(url)) as readers:
            reader = readers.open()
            with pytest.raises(Unavailable):
                reader.snapshot()
            server.start()
            until(lambda: listed(reader))
            assert set(reader.snapshot().records) == {key("a")}

    def test_while_redis_is_away_it_tries_on_without_haste_and_says_so_once(
        self, desk, readers, monkeypatch, caplog
    ):
        reader = readers.open()
        reader.snapshot()
        tries = []

        def fail(*_):
            tries.append(time.monotonic())
            raise Unavailable("away")

        monkeypatch.setattr(readers._watcher, "changes", fail)
        readers._watcher._bell.wake()  # it leaves the call that it is in
        until(lambda: len(tries) > 6)
        assert tries[-1] - tries[0] > 1
        begun = time.monotonic()
        with pytest.raises(Unavailable, match="away"):
            reader.changes(300)
        assert time.monotonic() - begun > 0.29
        assert [entry.getMessage() for entry in caplog.records] == ["readers: away; trying on"]


def hears(reader):
    """Whether it is told anything, be it that it fell behind."""
    try:
        return reader.changes(500)
    except Resync:
        return True


def listed(reader):
    try:
        return reader.snapshot()
    except Unavailable:
        return None


class TestDamage:
    def spoil(self, desk):
        desk.store.client.delete(desk.keys.log)
        desk.store.client.set(desk.keys.log, "text")

    def test_a_damaged_log_is_said_and_holds_up_no_other_origin_and_no_processor(
        self, desk, store, readers, monkeypatch
    ):
        shelf = Desk(store, "shelf")
        shelf.report("a")
        held = Held(readers.open())
        until(lambda: held.follow() is not None and key("a", "shelf") in held.records)
        self.spoil(shelf)
        until(lambda: held.follow(10) or held.troubles)
        assert isinstance(held.troubles[-1], Damaged)
        met, meet = [], readers._meet
        monkeypatch.setattr(readers, "_meet", lambda error: met.append(error) or meet(error))
        begun = time.monotonic()
        for number in range(1_000):
            desk.report(number)
            changes_until_told(held, key(number))
            if len(met) >= 3:
                break
        assert len(met) <= 3 * (time.monotonic() - begun)
        store.client.delete(shelf.keys.log)
        shelf.report("b")
        until(lambda: held.follow() is not None and key("b", "shelf") in held.records)
        assert logged(held.records) == logged(desk.records() | shelf.records())

    def test_while_the_others_are_busy_it_is_said_and_that_it_is_over(self, desk, store, readers):
        shelf = Desk(store, "shelf")
        shelf.report("a")
        until(lambda: key("a", "shelf") in readers.records)
        ended = threading.Event()

        def work():
            for number in count():
                if ended.wait(0.01):
                    return
                desk.report(number)

        with ThreadPoolExecutor() as pool:
            working = pool.submit(work)
            try:
                self.spoil(shelf)
                until(lambda: readers.trouble)
                store.client.delete(shelf.keys.log)
                until(lambda: readers.trouble is None)
            finally:
                ended.set()
            working.result(SECONDS_MAX)

    def test_it_is_not_said_to_be_over_before_what_was_missed_is_told(
        self, desk, store, readers, monkeypatch
    ):
        """Else whoever looks between the two takes what he holds for all that there is."""
        shelf = Desk(store, "shelf")
        shelf.report("a")
        until(lambda: key("a", "shelf") in readers.records)
        self.spoil(shelf)
        until(lambda: readers.trouble)
        known_at, seen = readers._current_at, []

        def look(changes, *place, follow=readers._list.follow, **how):
            seen.append((len(changes), type(readers.trouble), readers._current_at))
            return follow(changes, *place, **how)

        monkeypatch.setattr(readers._list, "follow", look)
        store.client.delete(store.keys.of_job(key("a", "shelf")).job)
        store.client.zrem(shelf.keys.ids, key("a").member)
        store.client.delete(shelf.keys.log)
        until(lambda: readers.trouble is None)
        assert readers.records == {}
        assert [one for one in seen if one[0]] == [(1, Damaged, known_at)]
        until(lambda: readers._current_at > known_at)

    def test_one_that_is_damaged_from_the_start_hides_no_other(self, desk, reading, store):
        shelf = Desk(store, "shelf")
        shelf.report("a")
        desk.report("b")
        self.spoil(shelf)
        with Readers(reading) as readers:
            reader = readers.open()
            assert set(reader.snapshot().records) == {key("b")}
            until(lambda: not quiet(reader))  # a look a second finds it
            store.client.delete(shelf.keys.log)
            until(lambda: quiet(reader))
            assert set(reader.snapshot().records) == {key("b"), key("a", "shelf")}

    def test_nor_does_it_say_that_all_is_listed_before_the_others_are_there(
        self, desk, reading, store, monkeypatch
    ):
        opened, found = threading.Event(), []

        def scan(store, origin, scan=follow.scan):
            assert opened.wait(SECONDS_MAX)
            yield from scan(store, origin)

        shelf = Desk(store, "shelf")
        shelf.report("a")
        desk.report("b")
        self.spoil(shelf)
        monkeypatch.setattr(follow, "scan", scan)
        with Readers(reading) as readers:
            reader = readers.open(bell=lambda: found.append(reader.snapshot_if_listed()))
            opened.set()
            until(lambda: found)
        assert set(found[0].records) == {key("b")}

    def test_a_drift_is_mended_for_all_of_them(self, desk, reading):
        with Readers(reading, relist_seconds=0.2) as readers:
            desk.report_many("ab")
            held = [Held(readers.open()) for _ in range(2)]
            for one in held:
                one.ends_with(desk)
            store = desk.store
            store.client.delete(store.keys.of_job(key("a")).job)
            store.client.zrem(desk.keys.ids, key("a").member)
            for one in held:
                one.ends_with(desk)
            assert readers.drift == 1


def changes_until_told(held, wanted):
    until(lambda: held.follow() is not None and wanted in held.records)


def quiet(reader):
    """Whether the reader is told what happened, or that nothing did, and not that nobody can tell."""
    try:
        reader.changes(0)
    except Damaged:
        return False
    return True


def test_origins_that_appear_are_followed(desk, store, readers):
    held = Held(readers.open())
    assert held.records == {}
    Desk(store, "new").report("a")
    until(held.follow)
    assert set(held.records) == {key("a", "new")}
    assert set(held.reader.cursor) == {ORIGIN, "new"}
