"""What a watcher is told when a log was cut, lost, replaced, rolled back or damaged."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor

import fakeredis
import pytest

from broker.errors import Damaged, Gone, Unavailable
from broker.store import follow, watch
from broker.store.doorbell import Doorbell
from broker.store.log import Log, Place
from broker.store.store import Store
from broker.store.watch import Watcher
from tests.store.readers import ORIGIN, Desk, blocked, changes_until, key, logged, until

HOUR_MS = 3_600_000


def trim(desk):
    """So far that whoever stood before the newest entry misses something."""
    Log(desk.store, ORIGIN).trim(1, HOUR_MS)


def delete(desk):
    desk.store.client.delete(desk.keys.log)


def recreate(desk):
    desk.store.client.delete(desk.keys.log)
    desk.report("new")


def lose_all(desk):
    """As a flush would, for this namespace."""
    client = desk.store.client
    client.delete(*client.keys(f"{desk.store.keys.namespace}:*"))


def lose_all_and_begin_anew(desk):
    lose_all(desk)
    desk.view._known.clear()
    desk.report("new")


def roll_back(desk):
    """To a state in which `b` is only running and `c` is unknown; then life goes on."""
    client = desk.store.client
    client.restore(desk.keys.log, 0, desk.dumped_log, replace=True)
    client.restore(desk.keys.meta, 0, desk.dumped_meta, replace=True)
    # Nobody comes back within the millisecond in which the lost entry was written, and takes its id.
    lost_ms = int(desk.lost_rev.split("-")[0])
    until(lambda: now_ms(client) > lost_ms)
    desk.report("new")


def now_ms(client):
    seconds, micros = client.time()
    return seconds * 1_000 + micros // 1_000


LOSSES = [trim, delete, recreate, lose_all, lose_all_and_begin_anew, roll_back]


@pytest.fixture
def before_loss(desk):
    """Jobs a, b, c; from the snapshot that a test takes on, a vanishes unseen and b completes unseen."""
    desk.report_many("ab")
    desk.dumped_log = desk.store.client.dump(desk.keys.log)
    desk.dumped_meta = desk.store.client.dump(desk.keys.meta)
    desk.lost_rev = desk.report("c")
    return desk


@pytest.mark.parametrize("lose", LOSSES)
def test_after_any_loss_the_reader_is_told_what_differs(before_loss, watcher, lose):
    desk = before_loss
    held = dict(watcher.snapshot().records)
    desk.remove("a")
    desk.report("b", "completed")
    lose(desk)
    told = changes_until(watcher, lambda told: told)
    assert logged(watcher.records) == logged(desk.records())
    assert all(change.synthesized for change in told)
    for change in told:
        held.pop(change.key, None)
        if change.record:
            held[change.key] = change.record
    assert held == watcher.records
    assert key("a") in {change.key for change in told if change.record is None}
    assert watcher.changes(0) == []  # told once
    desk.report("after")
    assert [change.key.id for change in watcher.changes(60_000)] == ["after"]


@pytest.mark.parametrize("lose", LOSSES)
def test_after_any_loss_a_cursor_is_gone(before_loss, watcher, lose):
    cursor = watcher.snapshot().cursor
    before_loss.remove("a")
    before_loss.report("b", "completed")
    lose(before_loss)
    with pytest.raises(Gone) as gone:
        watcher.resume(cursor)
    assert gone.value.origin == ORIGIN


@pytest.mark.parametrize("lose", LOSSES)
def test_who_resumed_without_records_is_told_gone_since_nobody_knows_what_vanished(
    before_loss, watcher, store, lose
):
    cursor = watcher.snapshot().cursor
    with Watcher(store) as other:
        other.resume(cursor)
        before_loss.remove("a")
        before_loss.report("b", "completed")
        lose(before_loss)
        with pytest.raises(Gone):
            other.changes(60_000)
        other.snapshot()
        assert logged(other.records) == logged(before_loss.records())
        before_loss.report("after")
        assert [change.key.id for change in other.changes(60_000)] == ["after"]


def test_a_cursor_of_another_epoch_never_fits(desk, watcher):
    rev = desk.report("a")
    with pytest.raises(Gone):
        watcher.resume({ORIGIN: Place("another", rev)})


def test_a_cursor_at_the_floor_is_fine(desk, watcher):
    desk.report_many("abc")
    log = Log(desk.store, ORIGIN)
    log.trim(1, HOUR_MS)
    position = log.position()
    watcher.resume({ORIGIN: Place(position.epoch, position.floor)})
    assert [change.key.id for change in watcher.changes(60_000)] == ["c"]


def test_an_idle_reader_outlives_the_trimming_of_all_it_knows(desk, watcher):
    desk.report_many("abc")
    watcher.snapshot()
    Log(desk.store, ORIGIN).trim(0, HOUR_MS)
    assert watcher.changes(0) == []
    desk.report("d")
    told = watcher.changes(60_000)
    assert [(change.key.id, change.synthesized) for change in told] == [("d", False)]


def test_a_listing_under_which_the_log_is_cut_begins_anew(desk, watcher, monkeypatch):
    desk.report_many("abc")
    cuts = []

    def cut(store, origin, scan=follow.scan):
        yield from scan(store, origin)
        if len(cuts) < 3:
            cuts.append(desk.report(f"cut{len(cuts)}"))
            Log(store, origin).trim(0, HOUR_MS)
            desk.report(f"after{len(cuts)}")

    monkeypatch.setattr(follow, "scan", cut)
    assert len(watcher.snapshot().records) == 9
    assert logged(watcher.records) == logged(desk.records())


def test_a_log_cut_faster_than_it_can_be_listed_is_said(desk, watcher, monkeypatch):
    def cut(store, origin, scan=follow.scan):
        yield from scan(store, origin)
        desk.report_many(time.monotonic_ns() + number for number in range(3))
        Log(store, origin).trim(1, HOUR_MS)

    monkeypatch.setattr(follow, "scan", cut)
    desk.report("a")
    with pytest.raises(Unavailable, match="faster"):
        watcher.snapshot()


def test_a_log_deleted_under_a_blocked_reader_is_noticed(desk, watcher):
    desk.report("a")
    watcher.snapshot()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(watcher.changes, 60_000)
        until(lambda: blocked(desk.store))
        desk.remove("a")
        assert waiting.result()[0].record is None
        waiting = pool.submit(watcher.changes, 60_000)
        until(lambda: blocked(desk.store))
        recreate(desk)
        assert [change.key.id for change in waiting.result()] == ["new"]


def test_an_unblocked_error_means_look(desk, monkeypatch):
    """What Redis 7.0 answers a blocked group read when its key goes; some servers answer XREAD so too."""
    import redis

    bell = Doorbell(desk.store.client)

    def unblocked(*_):
        raise redis.ResponseError("UNBLOCKED the stream key no longer exists")

    monkeypatch.setattr(bell, "_wait", unblocked)
    assert bell.wait({desk.keys.log: "0-0"}, 10) is None


def test_a_log_of_a_wrong_type_is_damage_and_silences_no_other_origin(store, watcher):
    before, desk, after = (Desk(store, origin) for origin in ("before", ORIGIN, "later"))
    for one in (before, desk, after):
        one.report("a")
    watcher.snapshot()
    store.client.delete(desk.keys.log)
    store.client.set(desk.keys.log, "text")
    with pytest.raises(Damaged):
        watcher.changes(60_000)
    before.report("b")
    after.report("b")
    assert {change.key.origin for change in watcher.changes(60_000)} == {"before", "later"}
    store.client.delete(desk.keys.log)
    desk.report("c")
    changes_until(watcher, lambda told: "c" in {change.key.id for change in told})
    assert logged(watcher.records) == logged(before.records() | desk.records() | after.records())


def test_a_log_of_a_wrong_type_is_told_once_a_second_to_whoever_waits(store, watcher, monkeypatch):
    desk, other = Desk(store), Desk(store, "other")
    for one in (desk, other):
        one.report("a")
    watcher.snapshot()
    store.client.delete(desk.keys.log)
    store.client.set(desk.keys.log, "text")
    begun, told = time.monotonic(), 0
    while time.monotonic() - begun < 2:
        with pytest.raises(Damaged):
            watcher.changes(60_000)
        told += 1
    assert told <= 4
    monkeypatch.setattr(watch, "LOOK_SECONDS", 600)  # it is not told again meanwhile
    with pytest.raises(Damaged):
        watcher.changes(60_000)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(watcher.changes, 60_000)
        until(lambda: blocked(store))
        other.report("b")
        assert [change.key for change in waiting.result()] == [key("b", "other")]


def test_a_damaged_record_hides_no_other(desk, watcher, caplog):
    desk.report_many("abcd")
    desk.store.client.hset(desk.keys.of_job(key("d").job).job, "rev", "last")
    desk.store.client.delete(desk.keys.of_job(key("b").job).job)
    desk.store.client.set(desk.keys.of_job(key("b").job).job, "text")
    desk.store.client.hset(desk.keys.of_job(key("c").job).job, "seq", "many")
    assert set(watcher.snapshot().records) == {key("a")}
    wrong = {"b": "it is no hash", "c": "seq is 'many', not a number", "d": "its rev is none"}
    for id, what in wrong.items():
        found = rf"the record of desk/ollama//{id} cannot be read: .*{what}"
        assert re.search(found, caplog.text)


def test_a_watcher_works_on_fakeredis(namespace):
    store = Store(fakeredis.FakeRedis(version=(7, 0)), namespace)
    desk = Desk(store)
    desk.report("a")
    with Watcher(store) as watcher, ThreadPoolExecutor() as pool:
        watcher.snapshot()
        waiting = pool.submit(watcher.changes, 60_000)
        desk.report("b")
        assert [change.key.id for change in waiting.result()] == ["b"]
        waiting = pool.submit(watcher.changes, 100_000)
        until(waiting.running)
        watcher.close()
        assert waiting.result(30) == []  # after a twentieth of a second
