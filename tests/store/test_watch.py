"""What a watcher is told while its logs are whole; test_watch_loss.py has the rest."""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from broker.errors import Damaged, Invalid, Unavailable
from broker.rules.replay import fold
from broker.store import follow, scan
from broker.store.log import Log
from broker.store.store import Store
from broker.store.watch import Watcher, read_cursor
from tests.store.readers import (
    ORIGIN,
    Desk,
    blocked,
    changes_until,
    key,
    logged,
    patient,
    report,
    until,
)


def states(changes):
    return [(change.key.id, change.record and change.record.state) for change in changes]


def test_a_snapshot_holds_every_record_and_where_it_stands(desk, watcher):
    desk.report_many(range(5))
    desk.remove(3)
    snapshot = watcher.snapshot()
    assert snapshot.records == desk.records()
    assert snapshot.cursor == {ORIGIN: Log(desk.store, ORIGIN).position().place}
    assert watcher.records == snapshot.records


def test_an_empty_store_has_an_empty_snapshot(watcher):
    assert watcher.snapshot() == ({}, {})


def test_changes_follow_the_snapshot_in_order(desk, watcher):
    desk.report("a")
    watcher.snapshot()
    assert watcher.changes(0) == []
    rev = desk.report("a", "completed", completed_at=5, by="desk")
    desk.report("b", "queued")
    desk.remove("a")
    told = changes_until(watcher, lambda told: len(told) == 3)
    assert states(told) == [("a", "completed"), ("b", "queued"), ("a", None)]
    assert told[0][2:] == (rev, "report", "higher_rank", "desk", False)
    assert (told[2].event, told[2].rule, told[2].synthesized) == ("remove", "removed", False)
    assert logged(watcher.records) == logged(desk.records())


def test_without_a_snapshot_the_state_is_told_first(desk, watcher):
    desk.report_many("ab")
    assert states(watcher.changes(0)) == [("a", "running"), ("b", "running")]
    desk.report("c")
    assert states(watcher.changes(60_000)) == [("c", "running")]


def test_a_removal_of_a_job_that_is_not_held_is_told(desk, watcher):
    desk.report("a")
    watcher.snapshot()
    desk.remove("never seen")
    desk.remove_pair("nor this")
    told = changes_until(watcher, lambda told: len(told) == 2)
    assert [(change.key, change.record) for change in told] == [
        (key("never seen"), None),
        (key("nor this", engine=""), None),
    ]


def test_a_pair_removal_takes_every_job_of_the_pair(desk, watcher):
    desk.report_many("ab")
    desk.report("a", engine="openai")
    watcher.snapshot()
    desk.remove_pair("a")
    told = changes_until(watcher, lambda told: len(told) == 2)
    assert {change.key for change in told} == {key("a"), key("a", engine="openai")}
    assert set(watcher.records) == {key("b")}


def test_a_job_comes_again_after_its_removal(desk, watcher):
    desk.report("a", created_at=1_000)
    watcher.snapshot()
    desk.remove("a")
    desk.report("a", created_at=2_000)
    changes_until(watcher, lambda told: len(told) == 2)
    assert watcher.records[key("a")].created_at == 2_000


def test_what_ended_stays_in_records_and_leaves_live(desk, watcher):
    desk.report_many("abc")
    desk.report("a", "completed")
    watcher.snapshot()
    assert set(watcher.records) == {key("a"), key("b"), key("c")}
    assert set(watcher.live) == {key("b"), key("c")}
    desk.report("b", "failed")
    desk.remove("c")
    changes_until(watcher, lambda told: len(told) == 2)
    assert set(watcher.records) == {key("a"), key("b")}
    assert dict(watcher.live) == {}


def test_a_snapshot_during_writes_is_the_state_at_one_position(desk, store, monkeypatch):
    """The scan is torn on purpose: between its pages jobs appear, move on, go and come again."""
    monkeypatch.setattr(scan, "PAGE", 5)
    monkeypatch.setattr(follow, "CHUNK_MAX", 7)
    desk.report_many(range(400), "queued")
    chance = random.Random(7)

    def torn(store, origin, scan=follow.scan):
        for page in scan(store, origin):
            yield page
            touched = chance.sample(range(450), 12)
            desk.view.apply([desk_event(id, chance) for id in touched])
            for id in touched[:3]:
                desk.remove(id)

    def desk_event(id, chance):
        seq = chance.randrange(1, 1_000)
        return report(id, "running", seq=seq, node=chance.choice("xyz"), created_at=1_000 + seq)

    monkeypatch.setattr(follow, "scan", torn)
    with Watcher(store) as watcher:
        snapshot = watcher.snapshot()
    rev = snapshot.cursor[ORIGIN].rev
    at_that_rev = fold(ORIGIN, Log(store, ORIGIN).entries(), rev)
    assert len(at_that_rev) > 100
    assert logged(snapshot.records) == logged(at_that_rev)


def test_snapshots_racing_writers_equal_the_log_at_their_cursor(desk, redis_url, namespace):
    done = threading.Event()

    desk.report_many(range(100), "queued")

    def write(number):
        chance = random.Random(number)
        with closing(Store.from_url(patient(redis_url), namespace)) as store:
            mine = Desk(store)
            for turn in itertools.count():
                if done.is_set():
                    return
                # What was removed comes again in a later generation: however long this goes on, there is news.
                told = {"created_at": 1_000 + turn // 50}
                seqs = [chance.randrange(1, 10_000) for _ in range(4)]
                mine.view.apply(
                    [report(chance.randrange(300), seq=seq, node=str(seq), **told) for seq in seqs]
                )
                mine.remove(chance.randrange(300), removed_at=chance.choice([0, 500]))

    with ThreadPoolExecutor() as pool:
        writers = [pool.submit(write, number) for number in range(2)]
        try:
            for _ in range(8):
                with Watcher(desk.store) as watcher:
                    taken = watcher.snapshot()
                    told = changes_until(watcher, lambda told: len(told) > 20)
                    log = list(Log(desk.store, ORIGIN).entries(watcher.cursor[ORIGIN].rev))
                    expected = fold(ORIGIN, log, taken.cursor[ORIGIN].rev)
                    assert logged(taken.records) == logged(expected)
                    assert logged(watcher.records) == logged(fold(ORIGIN, log))
                    assert told
        finally:
            done.set()
        for writer in writers:
            writer.result()
    with Watcher(desk.store) as watcher:
        assert logged(watcher.snapshot().records) == logged(desk.records())


def test_resuming_tells_exactly_what_followed(desk, store, watcher):
    desk.report_many("ab")
    snapshot = watcher.snapshot()
    cursor = read_cursor(json.loads(json.dumps(snapshot.cursor)))
    desk.report("c")
    desk.report("a", "completed")
    with Watcher(store) as other:
        other.resume(cursor, snapshot.records)
        assert states(changes_until(other, lambda told: len(told) == 2)) == [
            ("c", "running"),
            ("a", "completed"),
        ]
        assert logged(other.records) == logged(desk.records())


def test_who_resumes_with_more_than_the_cursor_names_is_told_what_became_of_it(desk, store):
    shelf = Desk(store, "shelf")
    desk.report_many("ab")
    shelf.report_many("cd")
    with Watcher(store) as watcher:
        records, cursor = watcher.snapshot()
    del cursor["shelf"]
    shelf.remove("c")
    shelf.report("e")
    with Watcher(store) as watcher:
        watcher.resume(cursor, records)
        told = watcher.changes(0)
        assert states(told) == [("e", "running"), ("c", None)]
        assert all(change.synthesized for change in told)
        assert logged(watcher.records) == logged(desk.records() | shelf.records())


@pytest.mark.parametrize("relists", [False, True])
def test_a_cursor_never_names_what_was_not_told(desk, store, monkeypatch, relists):
    """Closed from outside while it reads, it tells nothing of what it read: whoever goes on from there is told all."""
    desk.report_many("ab")
    with Watcher(store, relist_seconds=0 if relists else 300) as watcher:
        records = watcher.snapshot().records
        watcher.changes(0)
        desk.report_many("cd")
        desk.remove("a")

        def read_on(log, *args, read_on=Log.read_on):
            chunk = read_on(log, *args)
            watcher.close()
            return chunk

        monkeypatch.setattr(Log, "read_on", read_on)
        assert watcher.changes(0) == []
        monkeypatch.undo()
    with Watcher(store) as other:
        other.resume(watcher.cursor, records)
        assert states(other.changes(0)) == [("c", "running"), ("d", "running"), ("a", None)]
        assert logged(other.records) == logged(desk.records())


@pytest.mark.parametrize(
    "found",
    [None, [], {"desk": ["e"]}, {"desk": ["e", "1-0", "x"]}, {"desk": ["e", "$"]},
     {"desk": ["e", "1"]}, {"desk": [1, "1-0"]}, {"Desk!": ["e", "1-0"]}, {"desk": ["e", "-1-0"]},
     {"desk": ["e", "1_0-0"]}, {"desk": ["e", f"{2**64}-0"]}],
)  # fmt: skip
def test_a_cursor_that_is_none_is_invalid(found):
    with pytest.raises(Invalid):
        read_cursor(found)


def test_of_a_new_origin_all_is_told_that_ever_happened_there(desk, watcher):
    """Who read the records by themselves, before the watcher found the origin, must hear what is removed since."""
    assert watcher.changes(0) == []
    desk.report_many("ab")
    desk.remove("a")
    told = changes_until(watcher, lambda told: len(told) == 3)
    assert states(told) == [("a", "running"), ("b", "running"), ("a", None)]
    assert not any(change.synthesized for change in told)
    assert logged(watcher.records) == logged(desk.records())


def test_so_it_is_where_the_first_look_at_the_origin_failed(desk, watcher, monkeypatch):
    assert watcher.changes(0) == []
    desk.report_many("ab")
    desk.remove("a")
    failing, position = iter([Unavailable("away")]), Log.position

    def fail_once(log):
        for error in failing:
            raise error
        return position(log)

    monkeypatch.setattr(Log, "position", fail_once)
    with pytest.raises(Unavailable):
        watcher.changes(60_000)
    told = changes_until(watcher, lambda told: len(told) == 3)
    assert states(told) == [("a", "running"), ("b", "running"), ("a", None)]


def test_a_new_origin_whose_log_was_cut_is_listed(desk, watcher):
    assert watcher.changes(0) == []
    desk.report_many("abc")
    Log(desk.store, ORIGIN).trim(1, 10**9)
    told = changes_until(watcher, lambda told: len(told) == 3)
    assert {change.key.id for change in told} == set("abc")
    assert logged(watcher.records) == logged(desk.records())


def test_new_origins_are_found_while_waiting(desk, store, watcher):
    desk.report("a")
    watcher.snapshot()
    with ThreadPoolExecutor() as pool, closing(watcher):
        waiting = pool.submit(watcher.changes, 600_000)
        until(lambda: blocked(store))
        Desk(store, "shelf").report("b")
        # By the look of each second: at its end the call would find it after ten minutes.
        assert states(waiting.result(60)) == [("b", "running")]
        Desk(store, "shelf").report("b", "completed")
        assert states(watcher.changes(60_000)) == [("b", "completed")]


def test_only_the_origins_asked_for_are_watched(desk, store):
    with Watcher(store, ["shelf"]) as watcher:
        desk.report("a")
        assert watcher.snapshot().records == {}
        Desk(store, "shelf").report("b")
        assert states(watcher.changes(60_000)) == [("b", "running")]
        assert list(watcher.records) == [key("b", "shelf")]


def test_waiting_for_nothing_neither_spins_nor_overstays(desk, store, watcher, monkeypatch):
    asked, wait = [], watcher._bell.wait
    monkeypatch.setattr(watcher._bell, "wait", lambda logs, ms: asked.append(ms) or wait(logs, ms))
    desk.report("a")
    watcher.snapshot()
    calls = commands(store)
    begun = time.monotonic()
    assert watcher.changes(1_500) == []
    assert time.monotonic() - begun >= 1.5
    assert sum(asked) <= 1_500 + len(asked)  # each is rounded to a millisecond
    assert commands(store) - calls < 30


def commands(store):
    return store.client.info("stats")["total_commands_processed"]


def test_a_busy_origin_does_not_starve_a_quiet_one(desk, store, watcher, monkeypatch):
    monkeypatch.setattr("broker.store.follow.CHUNK_MAX", 10)
    monkeypatch.setattr("broker.store.watch.CHUNK_MAX", 10)
    quiet = Desk(store, "quiet")
    desk.report("first")
    quiet.report("first")
    watcher.snapshot()
    desk.report_many(range(300))
    quiet.report("second")
    batches = []
    until(lambda: batches.append(watcher.changes(60_000)) or ("quiet" in origins(batches[-1])))
    assert len(batches) < 4
    assert all(len(batch) <= 20 for batch in batches)


def origins(changes):
    return {change.key.origin for change in changes}


def test_a_relist_finds_no_drift_where_there_is_none(desk, watcher):
    desk.report_many("abc")
    watcher.snapshot()
    desk.report("a", "completed")
    desk.report("b", "running", node="n2", seq=4)
    desk.report("b", "running", node="n2", seq=4)
    assert watcher.relist(ORIGIN) == 0
    told = watcher.changes(0)
    assert states(told) == [("a", "completed"), ("b", "running")]
    assert not any(change.synthesized for change in told)
    assert watcher.records == desk.records()  # last_seen and sightings too


def test_a_relist_counts_and_mends_drift(desk, watcher):
    desk.report_many("abc")
    watcher.snapshot()
    held = watcher._followers[ORIGIN].records
    held[key("ghost")] = held.pop(key("a"))
    assert watcher.relist(ORIGIN) == 2
    told = watcher.changes(0)
    assert states(told) == [("a", "running"), ("ghost", None)]
    assert all(change.synthesized for change in told)
    assert watcher.records == desk.records()


def test_a_snapshot_that_fails_leaves_the_watcher_where_it_stood(desk, store, watcher):
    shelf = Desk(store, "shelf")
    desk.report("a")
    shelf.report("b")
    watcher.snapshot()
    desk.report("a", "completed")
    store.client.rename(shelf.keys.ids, shelf.keys.ids + ":aside")
    store.client.set(shelf.keys.ids, "text")
    with pytest.raises(Damaged):
        watcher.snapshot()
    assert states(watcher.changes(0)) == [("a", "completed")]


def test_an_origin_that_is_not_watched_cannot_be_relisted(watcher):
    with pytest.raises(Invalid, match="nowhere"):
        watcher.relist("nowhere")
