"""What the source documents say of a list that is held: what an ordered watcher's cache, and a job list, must show.

Cases C (what a reader holds) and 88-94 (the list's loader). A reader is overtaken, or cut off, at every single moment
of a listing, since its races are the very point of both documents.

Elsewhere: C5 in tests/roles/test_load.py, for only the dispatcher takes its own writes into what it holds; 88 in
test_sources.py. Not here, for it comes with another part: 94 (a cluster that is left).
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
import redis

from broker.errors import Gone, Unavailable
from broker.rules.replay import absorb, fold
from broker.store.log import Log
from broker.store.store import Store
from broker.store.watch import Watcher
from tests.store.readers import ORIGIN, Desk, changes_until, key, logged
from tests.system.sources import Moments, frame, removal, trim


@pytest.fixture
def desk(store):
    return Desk(store)


@pytest.fixture
def reading(redis_url, namespace):
    """The store of a reader: its connections are not those of the writer."""
    with closing(Store.from_url(redis_url, namespace)) as store:
        yield store


@pytest.fixture
def watcher(reading):
    with Watcher(reading) as watcher:
        yield watcher


@pytest.fixture
def moments(reading, monkeypatch):
    monkeypatch.setattr("broker.store.scan.PAGE", 50)
    return Moments(reading, monkeypatch)


def follow(held, changes):
    """What somebody holds who does as he is told."""
    for change in changes:
        if change.record is None:
            held.pop(change.key, None)
        else:
            held[change.key] = change.record
    return held


@pytest.fixture
def overtaken(desk, reading, moments):
    """Does `act(id)` at each moment of a listing, and tells what a reader then holds of the job, and was told."""

    def overtake(act, seq=1):
        ids = [f"job-{number}" for number in range(30)]
        if seq:
            desk.report_many(range(200), created_at=2_000)
            desk.report_many(ids, seq=seq, node="a")
        else:
            desk.report_many(range(200), created_at=2_000)
        with Watcher(reading) as watcher:
            calls = moments.count(watcher.snapshot)
        assert 10 < calls < len(ids)
        for number, id in enumerate(ids[:calls]):
            with Watcher(reading) as watcher:
                moments.before(number, lambda id=id: act(id))
                held = watcher.snapshot().records
                told = watcher.changes(0)
                held = follow(held, told)
                assert logged(held) == logged(watcher.records) == logged(desk.records())
                told = [change for change in told if change.key.id == id]
                assert not any(change.synthesized for change in told)
                yield held.get(key(id)), told

    return overtake


class TestWhatIsHeld:
    def test_C1_a_late_word_after_the_removal_brings_nothing_back(self, desk, watcher):
        desk.report("a", seq=1)
        watcher.snapshot()
        desk.remove("a")
        desk.report("a", "completed", seq=2)
        changes_until(watcher, lambda told: told)
        assert watcher.changes(0) == []
        assert dict(watcher.records) == {}

    def test_C2_an_end_whose_removal_never_came_holds_nobodys_place(self, desk, watcher):
        desk.report("a", seq=1)
        watcher.snapshot()
        desk.report("a", "completed", seq=2)
        desk.remove("a")
        drop(desk, 1)
        changes_until(watcher, lambda told: told)
        assert dict(watcher.live) == {}

    def test_C3_where_both_never_came_a_listing_finds_it_and_counts_one(self, desk, watcher):
        desk.report("a", seq=1)
        watcher.snapshot()
        desk.report("a", "completed", seq=2)
        desk.remove("a")
        drop(desk, 2)
        assert watcher.changes(0) == []
        assert set(watcher.live) == {key("a")}
        assert watcher.relist(ORIGIN) == 1
        [change] = watcher.changes(0)
        assert (change.key, change.record, change.synthesized) == (key("a"), None, True)
        assert dict(watcher.records) == dict(watcher.live) == {}
        assert watcher.relist(ORIGIN) == 0

    def test_C3_and_it_does_so_by_itself_within_one_period(self, desk, reading):
        desk.report("a", seq=1)
        with Watcher(reading, relist_seconds=0.1) as watcher:
            watcher.snapshot()
            watcher.changes(0)
            desk.report("a", "completed", seq=2)
            desk.remove("a")
            drop(desk, 2)
            [change] = watcher.changes(60_000)
            assert (change.key, change.record, change.synthesized) == (key("a"), None, True)
            assert watcher.drift == 1

    def test_C4_an_older_entry_read_late_does_not_undo_a_newer_one(self, desk, overtaken):
        def move_on(id):
            for seq, node in enumerate("bcd", 2):
                desk.report(id, "queued", seq=seq, node=node)

        for record, told in overtaken(move_on):
            assert (record.seq, record.node) == (4, "d")
            seqs = [change.record.seq for change in told]
            assert seqs == [2, 3, 4][3 - len(seqs) :]

    def test_C4_nor_does_a_whole_log_read_a_second_time(self, desk, store):
        for seq in range(1, 10):
            desk.report("a", seq=seq, node=f"n{seq}")
        entries = list(Log(store, ORIGIN).entries())
        records = fold(ORIGIN, entries)
        assert [absorb(records, ORIGIN, entry) for entry in entries] == [[]] * 9
        assert records[key("a")].seq == 9

    def test_C6_an_old_removal_read_late_leaves_what_came_again_under_the_name(
        self, desk, overtaken
    ):
        def come_again(id):
            desk.remove(id)
            desk.report(id, created_at=2_000, seq=1, node="new")

        for record, _ in overtaken(come_again):
            assert (record.node, record.created_at) == ("new", 2_000)

    def test_C6_nor_does_a_whole_log_read_a_second_time_remove_it(self, desk, store):
        desk.report("a", created_at=1_000)
        desk.remove("a")
        desk.report("a", created_at=2_000)
        entries = list(Log(store, ORIGIN).entries())
        records = fold(ORIGIN, entries)
        assert [absorb(records, ORIGIN, entry) for entry in entries] == [[]] * 3
        assert records[key("a")].created_at == 2_000

    def test_C7_what_goes_between_list_and_watch_is_absent(self, desk, overtaken):
        for record, _ in overtaken(desk.remove):
            assert record is None

    def test_C8_what_comes_between_list_and_watch_is_present(self, desk, overtaken):
        for record, _ in overtaken(desk.report, seq=0):
            assert record is not None

    def test_C9_a_creation_that_was_not_told_yet_is_followed_by_the_removal_that_a_listing_finds(
        self, desk, watcher
    ):
        desk.report("before")
        watcher.snapshot()
        desk.report("a")
        watcher.relist(ORIGIN)  # `a` is found, and waits to be told
        desk.remove("a")
        watcher.relist(ORIGIN)
        told = [(change.key.id, change.record is None) for change in watcher.changes(0)]
        assert told == [("a", False), ("a", True)]

    def test_C10_what_a_listing_no_longer_finds_is_told_as_gone_by_its_key_alone(
        self, desk, store, watcher
    ):
        desk.report_many("ab")
        watcher.snapshot()
        keys = store.keys.of_job(key("a"))
        store.client.delete(keys.job)
        store.client.zrem(desk.keys.ids, key("a").member)
        assert watcher.relist(ORIGIN) == 1
        [change] = watcher.changes(0)
        assert (change.key, change.record, change.event, change.by, change.synthesized) == (
            key("a"), None, "listed", "", True,
        )  # fmt: skip

    def test_C11_updates_and_removals_at_once_leave_nothing_whichever_is_told_first(
        self, desk, store, watcher
    ):
        desk.report("stays")
        desk.report_many(range(200), seq=1)
        watcher.snapshot()
        gate = threading.Barrier(2, timeout=60)

        def in_step(ids):
            """Side by side where the two meet, and neither runs away before that."""
            for at, id in enumerate(ids):
                if at in (0, 80, 120):
                    gate.wait()
                yield id

        def update():
            return [desk.report(id, "completed", seq=2) for id in in_step(range(200))]

        with ThreadPoolExecutor() as pool:
            updating = pool.submit(update)
            for id in in_step(reversed(range(200))):
                desk.remove(id)
            assert 80 <= sum(map(bool, updating.result())) <= 120
        changes_until(watcher, lambda told: sum(change.record is None for change in told) == 200)
        assert set(watcher.records) == set(desk.records()) == {key("stays")}

    def test_C12_a_state_that_nobody_knows_counts_for_nothing(self, broker):
        [outcome] = broker.report_many([frame("terminating", "a", 1)])
        assert (outcome.outcome, outcome.rule) == ("refused", "invalid")
        with broker.watch() as watcher:
            assert watcher.snapshot().records == {}


def drop(desk, count):
    """Lose the log's newest entries, with nobody told."""
    newest = desk.store.client.xrevrange(desk.keys.log, count=count)
    desk.store.client.xdel(desk.keys.log, *[rev for rev, _ in newest])


class TestJobList:
    def test_89_a_broad_removal_is_told_of_each_sibling_and_an_exact_one_of_one(self, broker):
        siblings = [("ollama", ""), ("ollama", "r1"), ("openai", "")]
        for id in ("7", "8"):
            for engine, run in siblings:
                broker.report(frame("running", "a", 1, id=id, engine=engine, runId=run))
        with broker.watch() as watcher:
            watcher.snapshot()
            broker.report(removal("7"))
            broker.report(removal("8", engine="ollama", runId="r1"))
            told = changes_until(watcher, lambda told: len(told) >= 4)
        assert all(change.record is None for change in told)
        gone = [(change.key.id, change.key.engine, change.key.run) for change in told]
        assert sorted(gone[:3]) == sorted(("7", *sibling) for sibling in siblings)
        assert gone[3:] == [("8", "ollama", "r1")]

    def test_90_the_removal_of_a_job_that_nobody_saw_is_told(self, broker):
        broker.report(frame("running", "a", 1, id="before"))
        with broker.watch() as watcher:
            watcher.snapshot()
            broker.report(removal("unseen"))
            [change] = watcher.changes(60_000)
        assert (change.key.id, change.record) == ("unseen", None)

    def test_91_a_broad_removal_during_the_first_listing_is_subtracted(self, desk, overtaken):
        for record, _ in overtaken(desk.remove_pair):
            assert record is None

    def test_91_an_exact_removal_during_the_first_listing_is_subtracted(self, desk, overtaken):
        for record, told in overtaken(desk.remove):
            assert record is None
            assert [change.record for change in told] in ([], [None])

    def test_92_removals_and_updates_during_a_refresh_are_kept(self, desk, watcher, moments):
        ids = [f"job-{number}" for number in range(60)]
        desk.report_many([*range(200), *ids], seq=1)
        held = watcher.snapshot().records
        calls = moments.count(lambda: watcher.relist(ORIGIN))
        assert 8 < calls < 30
        for number in range(calls):
            gone, moved = ids[2 * number : 2 * number + 2]

            def happen(gone=gone, moved=moved):
                desk.remove(gone)
                desk.report(moved, "completed", seq=2)

            moments.before(number, happen)
            assert watcher.relist(ORIGIN) == 0
            told = changes_until(watcher, lambda told: len(told) >= 2)
            assert not any(change.synthesized for change in told)
            follow(held, told)
            assert key(gone) not in held
            assert held[key(moved)].state == "completed"
        assert logged(held) == logged(desk.records())

    def test_92_what_is_removed_and_comes_again_during_a_listing_is_there(self, desk, overtaken):
        def come_again(id):
            desk.remove_pair(id, removed_at=1_500)
            desk.report(id, created_at=2_000)

        for record, _ in overtaken(come_again):
            assert record.created_at == 2_000

    def test_93_a_frame_without_an_origin_is_no_job_of_anybody(self, broker):
        broker.report(frame("running", "a", 1))
        for told in (removal(originatedFrom=""), removal(originatedFrom=None)):
            [outcome] = broker.report_many([told])
            assert (outcome.outcome, outcome.rule) == ("refused", "invalid")
        assert len(broker.jobs()) == 1

    @pytest.mark.parametrize("way", ["snapshot", "relist", "changes"])
    def test_a_fetch_that_fails_leaves_the_list_as_it_was(self, desk, reading, moments, way):
        """It fails at each of its calls in turn; what happened meanwhile is told afterwards."""
        desk.report_many(range(200), seq=1)
        fetch = {
            "snapshot": lambda watcher: watcher.snapshot(),
            "relist": lambda watcher: watcher.relist(ORIGIN),
            "changes": lambda watcher: watcher.changes(0),
        }[way]
        with Watcher(reading) as watcher:
            watcher.snapshot()
            held = dict(watcher.records)
            failed = 0
            while True:
                desk.report(failed, "completed", seq=2)
                if way == "changes":  # which lists anew only after a loss
                    trim(desk.store, 0)
                    desk.report(failed + 100, "completed", seq=2)
                before = dict(watcher.records), dict(watcher.live), watcher.cursor
                failing = False

                def fail():
                    nonlocal failing
                    failing = True
                    raise redis.ConnectionError("cut off")

                moments.before(failed, fail)
                try:
                    told = fetch(watcher)
                except Unavailable:
                    assert failing
                    after = dict(watcher.records), dict(watcher.live), watcher.cursor
                    assert after[:2] == before[:2]
                    failed += 1
                    continue
                assert not failing
                break
            assert failed > 8
            if way == "snapshot":
                held = told.records
            elif way == "relist":
                assert told == 0
                follow(held, watcher.changes(0))
            else:
                follow(held, told)
            assert logged(held) == logged(watcher.records) == logged(desk.records())

    def test_a_cursor_that_no_longer_fits_leaves_the_list_as_it_was(self, desk, store, watcher):
        for one in (desk, Desk(store, "nas")):
            one.report("a")
        cursor = watcher.snapshot().cursor
        for one in (desk, Desk(store, "nas")):
            one.report("b")
        trim(store, 0, "nas")
        before = dict(watcher.records), watcher.cursor
        with pytest.raises(Gone):
            watcher.resume(cursor)
        assert (dict(watcher.records), watcher.cursor) == before
        changes_until(watcher, lambda told: len(told) >= 2)
        assert {one.id for one in watcher.records} == {"a", "b"}
        assert len(watcher.records) == 4
