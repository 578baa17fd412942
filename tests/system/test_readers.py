"""Many readers on one connection: each is told its own way through, and none can hold up or swell another."""

from __future__ import annotations

import itertools
import statistics
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise

import pytest

from broker import Resync
from broker.rules.event import Remove
from broker.rules.filter import Filter
from broker.rules.history import HISTORY_MAX
from broker.rules.replay import fold, rev_order
from broker.rules.ring import SIZE
from broker.store.log import Log
from broker.store.store import Store
from broker.store.watch import Watcher
from tests.store.readers import ORIGIN, SECONDS_MAX, Desk, changes_until, key, logged, report, until


class Follower(threading.Thread):
    """Does as a reader should, as fast as it can or pausing after each batch, until it is closed.

    `over` ends its pauses.
    """

    def __init__(self, reader, pause=0.0, over=None):
        super().__init__()
        self.reader = reader
        self.pause = pause
        self.over = over or threading.Event()
        self.held = {}
        self.is_listed = False
        self.resyncs = 0
        self.batches = []
        self.error = None
        self.start()

    def run(self):
        try:
            self.held = dict(self.reader.snapshot().records)
            self.is_listed = True
            while not self.reader.closed:
                self.follow()
        except BaseException as error:
            self.error = error
            raise

    def follow(self):
        try:
            changes = self.reader.changes(10_000)
        except Resync:
            self.resyncs += 1
            self.held = dict(self.reader.snapshot().records)
            return
        if changes:
            self.batches.append(changes)
        held = dict(self.held)  # whoever looks at it meanwhile sees one state or the other
        for change in changes:
            follow(held, change)
        self.held = held
        if self.pause:
            self.over.wait(self.pause)


def follow(held, change):
    if change.record is None:
        held.pop(change.key, None)
    else:
        held[change.key] = change.record


def states(changes):
    return [(change.key.id, change.record and change.record.state) for change in changes]


def test_a_reader_lists_and_then_follows(desk, readers):
    desk.report_many("ab")
    with readers.open() as reader:
        until(lambda: reader.snapshot().records == desk.records())
        snapshot = reader.snapshot()
        assert snapshot.cursor == {ORIGIN: Log(desk.store, ORIGIN).position().place}
        desk.report("a", "completed")
        desk.remove("b")
        told = changes_until(reader, lambda told: len(told) == 2)
        assert states(told) == [("a", "completed"), ("b", None)]
        assert reader.changes(0) == []


def test_the_client_gives_readers_of_all_origins_or_of_some(broker):
    desk, shelf = Desk(broker.store), Desk(broker.store, "shelf")
    desk.report("a")
    shelf.report("b")
    with broker.readers() as all_of_them, broker.readers(["shelf"]) as some:
        assert set(all_of_them.open().snapshot().records) == {key("a"), key("b", "shelf")}
        reader = some.open()
        assert set(reader.snapshot().records) == {key("b", "shelf")}
        desk.report("c")
        shelf.report("d")
        assert states(changes_until(reader, lambda told: told)) == [("d", "running")]
        assert all_of_them.drift == 0


def test_whoever_took_no_snapshot_is_told_to_take_one(desk, readers):
    reader = readers.open()
    with pytest.raises(Resync, match="snapshot"):
        reader.changes(0)
    reader.snapshot()
    assert reader.changes(0) == []


def test_a_hundred_readers_take_one_connection_and_ask_nothing_of_redis(desk, reading, readers):
    desk.report_many(range(50))
    until(lambda: len(readers.records) == 50)
    clients = len(desk.store.client.client_list())
    opened = [readers.open() for _ in range(100)]
    assert all(len(reader.snapshot().records) == 50 for reader in opened)
    desk.report("one more")
    for reader in opened:
        assert states(changes_until(reader, lambda told: told)) == [("one more", "running")]
    assert len(desk.store.client.client_list()) <= clients + 1
    mine = reading.client.connection_pool
    assert len(mine._available_connections) + len(mine._in_use_connections) <= 2


def test_changes_of_one_job_that_were_not_taken_are_one(desk, readers):
    reader, other = readers.open(), readers.open()
    reader.snapshot()
    other.snapshot()
    for seq in range(1, 40):
        desk.report("a", node=f"n{seq}", seq=seq)
    changes_until(other, lambda told: told and told[-1].record.seq == 39)
    [change] = reader.changes(0)
    assert (change.record.seq, change.record.node) == (39, "n39")


def test_where_a_reader_stands_a_watcher_goes_on(desk, store, readers):
    desk.report_many("ab")
    until(lambda: len(readers.records) == 2)
    reader = readers.open()
    held = dict(reader.snapshot().records)
    desk.report("c")
    for change in changes_until(reader, lambda told: told):
        follow(held, change)
    cursor = reader.cursor
    desk.report("d")
    desk.remove("a")
    with Watcher(store) as watcher:
        watcher.resume(cursor, held)
        told = changes_until(watcher, lambda told: len(told) == 2)
        assert states(told) == [("d", "running"), ("a", None)]
        assert logged(watcher.records) == logged(desk.records())


def test_each_is_told_in_order_at_its_own_pace_and_ends_with_the_list(desk, readers):
    all_told = threading.Event()
    followers = [Follower(readers.open(), pause) for pause in (0, 0, 0.001, 0.005, 0.02)]
    followers.append(Follower(readers.open(), SECONDS_MAX, over=all_told))
    origins = [desk, Desk(desk.store, "shelf")]
    until(lambda: all(follower.is_listed for follower in followers))
    for turn in range(60):
        for one in origins:
            one.report_many(range(turn, turn + 40), seq=turn + 1, node=str(turn))
            one.remove(turn)
    truth = logged(origins[0].records() | origins[1].records())
    for follower in followers:
        if follower is followers[-1]:
            all_told.set()  # after its first batch, the rest is one for it
        until(lambda follower=follower: logged(follower.held) == truth)
    readers.close()
    for follower in followers:
        follower.join(SECONDS_MAX)
        assert follower.error is None
        assert follower.batches
        for origin in (ORIGIN, "shelf"):
            told = [change for batch in follower.batches for change in batch]
            revs = [rev_order(change.rev) for change in told if change.key.origin == origin]
            assert all(earlier <= later for earlier, later in pairwise(revs))
            assert len(set(revs)) == len(revs)
    entries = sum(sum(1 for _ in Log(desk.store, one.origin).entries()) for one in origins)
    assert sum(map(len, followers[-1].batches)) < entries / 5


@pytest.fixture
def warned_seldom(monkeypatch):
    """Not each minute: on a slow machine a test may take longer."""
    monkeypatch.setattr("broker.readers.shared.WARN_SECONDS", 6_000.0)


@pytest.mark.usefixtures("warned_seldom")
def test_a_reader_that_fell_behind_is_told_once_and_lists_again(desk, readers, caplog):
    """Twice, but whoever reads the log of this program is told once a while; the other reader keeps up."""
    reader, other = readers.open("slow one"), Follower(readers.open("quick one"))
    reader.snapshot()
    until(lambda: other.is_listed)
    for seq in (1, 2):
        for at in range(0, SIZE + 200, 100):
            desk.report_many(range(at, at + 100), seq=seq, node=str(seq))
            until(lambda: logged(other.held) == logged(desk.records()))
        with pytest.raises(Resync, match="slow one"):
            reader.changes(0)
        assert logged(reader.snapshot().records) == logged(desk.records())
        desk.report(f"after {seq}")
        told = changes_until(reader, lambda told: told)
        assert states(told) == [(f"after {seq}", "running")]
    other.reader.close()
    other.join()
    assert other.resyncs == 0
    assert [entry.getMessage() for entry in caplog.records] == [
        f"slow one falls behind: {len_at_the_half(caplog)} jobs wait for it",
        "slow one fell behind by more than can be kept: it must list again",
    ]


def len_at_the_half(caplog):
    """How many waited when it was said: changes come as they were read, not one by one."""
    _, count = caplog.records[0].args
    assert SIZE // 2 <= count < SIZE // 2 + 100
    return count


@pytest.mark.usefixtures("warned_seldom")
def test_a_reader_that_falls_behind_is_warned_of_while_it_does_and_not_at_each_change(
    desk, readers, caplog
):
    reader, other = readers.open(), readers.open()
    reader.snapshot()
    other.snapshot()
    for number in range(SIZE):
        desk.report(number)
        changes_until(other, lambda told: told)
    [warning] = [entry.getMessage() for entry in caplog.records]
    assert warning == f"{reader.name} falls behind: {SIZE // 2} jobs wait for it"


def test_one_that_never_reads_costs_no_more_after_twenty_thousand_events(desk, readers):
    """Jobs come and go, so that the list itself stays small: what grows would be kept for the one who never reads.

    Measured from where the history, which is kept for all of them, is full.
    """

    class Forgetful(Follower):
        def follow(self):
            super().follow()
            self.batches.clear()

    never, follower = readers.open(), Forgetful(readers.open())
    never.snapshot()
    log = Log(desk.store, ORIGIN)

    def all_told():
        return follower.reader.cursor == {ORIGIN: log.position().place} and not follower.held

    sizes = []
    tracemalloc.start()
    try:
        for turn in range(200):
            ids = range(50 * turn, 50 * turn + 50)
            desk.report_many(ids)
            desk.view.apply([Remove(key=key(id)) for id in ids])
            if turn % 50 == 49:
                until(all_told)
                sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    print(f"traced after each 5,000 events: {sizes}")
    assert len(sizes) == 4
    assert HISTORY_MAX == 50 * 100 * 2
    assert sizes[-1] - sizes[1] < 500_000
    with pytest.raises(Resync):
        never.changes(0)
    assert never.snapshot().records == {}
    follower.reader.close()
    follower.join()


@pytest.mark.parametrize("asks", [False, True], ids=["for all", "for some"])
def test_one_wedged_reader_of_eight_does_not_slow_the_others(desk, readers, asks):
    """The delay from write to delivery, in alternating turns with and without one that never takes anything."""
    heard = {}

    class Timed(Follower):
        def follow(self):
            for change in self.reader.changes(10_000):
                heard.setdefault(change.key.id, []).append(time.monotonic())

    def wanted(number):
        """Each asks something else, and is told of each job that is written."""
        return Filter(states={"running", f"{number}"}, engine="ollama") if asks else None

    followers = [Timed(readers.open(wanted=wanted(number))) for number in range(7)]
    numbers = itertools.count()

    def write():
        """Five jobs, and how late each of the seven heard of each."""
        ids = [str(next(numbers)) for _ in range(5)]
        at = time.monotonic()
        desk.report_many(ids)
        until(lambda: all(len(heard.get(id, ())) == 7 for id in ids))
        return [moment - at for id in ids for moment in heard[id]]

    def turn(count):
        return statistics.fmean(late for _ in range(count) for late in write())

    until(lambda: all(follower.is_listed for follower in followers))
    turn(50)  # warm
    ratios = []
    for _ in range(20):  # in short turns: whatever else this machine does meets both alike
        free = turn(20)
        with readers.open("wedged", wanted=wanted("wedged")) as reader:
            reader.snapshot()
            ratios.append(turn(20) / free)
    readers.close()
    for follower in followers:
        follower.join()
        assert follower.resyncs == 0
    print(f"the delay beside a wedged one, by that without: {[round(one, 2) for one in ratios]}")
    assert statistics.median(ratios) <= 2


def test_snapshots_amid_writes_and_removals_are_the_state_at_their_cursor(
    desk, redis_url, namespace, readers
):
    done = threading.Event()
    turns = [0, 0]
    desk.report_many(range(300), "queued")

    def write(number):
        with closing(Store.from_url(redis_url, namespace)) as store:
            mine = Desk(store)
            for turn in itertools.count():
                if done.is_set():
                    return
                ids = [(turn * 7 + n * number) % 400 for n in range(4)]
                mine.view.apply([report(id, seq=turn + 1, node=str(turn)) for id in ids])
                mine.remove(turn % 400)
                mine.report(turn % 400, created_at=2_000 + turn)
                turns[number - 1] += 1

    with ThreadPoolExecutor() as pool:
        writers = [pool.submit(write, number) for number in (1, 2)]
        try:
            taken = []
            while len(taken) < 80 or sum(turns) < 100:  # whichever of them is the slower one
                reader = readers.open()
                snapshot = reader.snapshot()
                held = dict(snapshot.records)
                for change in changes_until(reader, lambda told: len(told) > 5):
                    follow(held, change)
                taken += [(snapshot.records, snapshot.cursor), (held, reader.cursor)]
                reader.close()
        finally:
            done.set()
        for writer in writers:
            writer.result()
    entries = list(Log(desk.store, ORIGIN).entries())
    revs = {cursor[ORIGIN].rev for _, cursor in taken}
    assert len(revs) > 40
    assert sum(entry.record is None for entry in entries) > 40
    for records, cursor in taken:
        assert logged(records) == logged(fold(ORIGIN, entries, cursor[ORIGIN].rev))


def test_a_storm_of_readers_that_come_and_go_harms_nobody(desk, readers):
    """Sixteen threads open, list, follow and close, while jobs come and go."""
    steady = Follower(readers.open())
    over = threading.Event()
    rounds = [0] * 16

    def come_and_go(number):
        while not over.is_set():
            with readers.open() as reader:
                held = dict(reader.snapshot().records)
                for change in reader.changes(number % 4):
                    follow(held, change)
            assert reader.changes(1_000) == []
            rounds[number] += 1

    with ThreadPoolExecutor(16) as pool:
        storm = [pool.submit(come_and_go, number) for number in range(16)]
        for turn in itertools.count():
            desk.report_many(range(turn, turn + 20), seq=turn + 1)
            desk.remove(turn)
            if turn % 100 == 99:  # the one that stays is not to fall behind
                until(lambda turn=turn: key(turn + 1) in steady.held)
            if turn >= 150 and (min(rounds) > 3 or any(thread.done() for thread in storm)):
                break
        over.set()
        for thread in storm:
            thread.result()
    until(lambda: logged(steady.held) == logged(desk.records()))
    assert len(readers._list.inboxes) == 1
    steady.reader.close()
    steady.join()
    assert steady.resyncs == 0
    assert steady.error is None
