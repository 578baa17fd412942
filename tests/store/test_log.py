from __future__ import annotations

import time

import pytest

from broker.errors import Damaged, Gone
from broker.rules.entry import read_entry
from broker.rules.record import from_fields
from broker.rules.replay import fold
from broker.store.decode import read_logged, read_record
from broker.store.log import BEGIN, Log, Place, Position
from tests.store.readers import ORIGIN, key, logged, revs

HOUR_MS = 3_600_000


@pytest.fixture
def desk(desk_on_each):
    return desk_on_each


@pytest.fixture
def log(desk):
    return Log(desk.store, ORIGIN)


def test_nothing_written_is_a_position_without_epoch(log):
    assert log.position() == Position("", "0-0", "0-0")
    assert log.read() == []


def test_the_position_names_epoch_floor_and_newest(desk, log):
    first, last = desk.report_many("ab")
    position = log.position()
    assert position.epoch
    assert (position.floor, position.rev) == (BEGIN, last)
    assert revs(log.read()) == [first, last]


def test_entries_are_read_after_a_rev_or_up_to_one(desk, log):
    a, b, c = desk.report_many("abc")
    assert revs(log.read(a)) == [b, c]
    assert revs(log.read(count=2)) == [a, b]
    assert revs(log.entries(b)) == [a, b]


def test_entries_are_read_back_from_one_to_another_newest_first(desk, log):
    _, b, c, d = desk.report_many("abcd")
    assert revs(log.read_back(c, b)) == [c, b]
    assert revs(log.read_back(d, BEGIN, count=2)) == [d, c]


def test_all_entries_are_read_across_pages(desk, log, monkeypatch):
    monkeypatch.setattr("broker.store.log.CHUNK_MAX", 7)
    told = [rev for at in range(0, 30, 10) for rev in desk.report_many(range(at, at + 10))]
    assert revs(log.entries()) == told


def test_the_fold_of_the_log_equals_the_records(desk, log):
    desk.report_many(range(20), "queued")
    desk.report_many(range(5, 15), "completed", node="n1", completed_at=5_000)
    for id in range(10, 13):
        desk.remove(id)
    desk.remove_pair(13)
    desk.remove_pair("never seen")
    records = desk.records()
    assert len(records) == 16
    assert logged(fold(ORIGIN, log.entries())) == logged(records)


def test_reading_on_is_inclusive_of_the_place_and_tells_what_followed(desk, log):
    a, b, c = desk.report_many("abc")
    epoch = log.position().epoch
    chunk = log.read_on(Place(epoch, a))
    assert revs(chunk.entries) == [b, c]
    assert chunk.place == Place(epoch, c)
    assert not chunk.is_full
    assert log.read_on(Place(epoch, c)).entries == []
    assert log.read_on(Place(epoch, a), 1).is_full
    assert revs(log.read_on(Place(epoch, a), until=b).entries) == [b]


def test_a_place_before_the_first_entry_takes_the_first_epoch(desk, log):
    begin = log.position().place
    a = desk.report("a")
    chunk = log.read_on(begin)
    assert revs(chunk.entries) == [a]
    assert chunk.place == log.position().place


def test_a_place_of_another_epoch_never_fits(desk, log):
    rev = desk.report("a")
    with pytest.raises(Gone, match="another log"):
        log.read_on(Place("other", rev))
    with pytest.raises(Gone, match="another log"):
        log.read_on(Place("other", BEGIN))


def test_a_lost_log_is_gone_and_its_end_can_be_stood_at(desk, log):
    rev = desk.report("a")
    place = log.position().place
    desk.store.client.delete(desk.keys.log)
    with pytest.raises(Gone):
        log.read_on(place)
    assert log.position() == Position("", rev, rev)
    assert log.read_on(log.position().place).entries == []


def test_a_log_begun_after_a_loss_is_followed_from_its_beginning(desk, log):
    desk.report("a")
    old = log.position().place
    desk.store.client.delete(desk.keys.log)
    lost = log.position().place
    new = desk.report("b")
    assert log.position().epoch not in ("", old.epoch)
    assert revs(log.read_on(lost).entries) == [new]
    with pytest.raises(Gone):
        log.read_on(old)


def test_a_rolled_back_log_is_gone_even_after_it_has_grown_beyond(desk, log):
    desk.report("a")
    rev = desk.report("b")
    place = log.position().place
    desk.store.client.xdel(desk.keys.log, rev)
    desk.store.client.hset(desk.keys.meta, "rev", log.read()[-1].rev)
    with pytest.raises(Gone, match="rolled back"):
        log.read_on(place)
    desk.report("c")
    with pytest.raises(Gone, match="rolled back"):
        log.read_on(place)
    assert log.read_on(log.position().place).entries == []


def test_a_wrong_type_is_damage(desk, log):
    desk.store.client.set(desk.keys.log, "text")
    for call in (
        log.position,
        log.read,
        lambda: log.read_on(Place("", BEGIN)),
        lambda: log.trim(1, 1),
    ):
        with pytest.raises(Damaged):
            call()


def test_a_foreign_entry_stops_nobody(desk, log, caplog):
    a = desk.report("a")
    place = log.position().place
    foreign = desk.store.client.xadd(desk.keys.log, {"hello": "world"}).decode()
    b = desk.report("b")
    assert revs(log.read()) == [a, b]
    assert f"{foreign} in the log of desk is none of ours" in caplog.text
    assert revs(log.read_on(place, 1).entries) == []
    assert log.read_on(place, 1).place.rev == foreign


def test_waiting_lasts_until_the_log_moves_on(desk, log):
    desk.report("a")
    position = log.position()
    begun = time.monotonic()
    log.wait(position.rev, 40)
    assert log.position() == position
    assert time.monotonic() - begun >= 0.035
    rev = desk.report("b")
    log.wait(position.rev, 60_000)
    assert log.position().rev == rev


def test_fast_decoding_says_what_the_rules_say(desk, log):
    desk.report("odd", error="one\0two\n{}", model="größe", node="n1", seq=3)
    desk.report("plain", "failed", error="no")
    desk.remove("plain")
    client = desk.store.client
    for rev, fields in client.xrange(desk.keys.log):
        flat = [part for pair in fields.items() for part in pair]
        text = {name.decode(): raw.decode() for name, raw in fields.items()}
        assert read_logged(rev, flat) == read_entry(rev.decode(), text)
        assert read_logged(rev, flat[2:4] + flat[:2] + flat[4:]) == read_entry(rev.decode(), text)
    raw = client.hgetall(desk.keys.of_job(key("odd").job).job)
    found = read_record(raw | {b"unknown": b"1"})
    assert found == from_fields({name.decode(): value.decode() for name, value in raw.items()})
    assert found.error == "one\0two\n{}"


@pytest.fixture
def between(monkeypatch, log):
    """Lets something happen between the reading of entries and that of epoch and floor."""

    def happen(action):
        whole = Log._execute

        def torn(self, pipe):
            monkeypatch.undo()
            entries = pipe.execute()[0]
            action()
            return entries, whole(self, self._client.pipeline(transaction=False).echo("-"))[1]

        monkeypatch.setattr(Log, "_execute", torn)

    return happen


def test_a_trim_between_loses_nothing_that_was_read(desk, log, between):
    a, b, c = desk.report_many("abc")
    place = log.position().place._replace(rev=a)
    between(lambda: log.trim(0, HOUR_MS))
    assert revs(log.read_on(place).entries) == [b, c]
    assert log.read_on(place._replace(rev=c)).entries == []


def test_a_log_begun_anew_between_is_gone(desk, log, between):
    desk.report("a")
    place = log.position().place

    def begin_anew():
        desk.store.client.delete(desk.keys.log)
        desk.report("b")

    between(begin_anew)
    with pytest.raises(Gone):
        log.read_on(place)


def test_a_first_entry_between_is_read_next(desk, log, between):
    begin = log.position().place
    told = []
    between(lambda: told.append(desk.report("a")))
    chunk = log.read_on(begin)
    assert chunk.entries == []
    assert revs(log.read_on(chunk.place).entries) == told


@pytest.mark.parametrize("field", ["floor", "rev"])
@pytest.mark.parametrize("value", [b"\xff", "x", "5", "1-2-3"])
def test_a_place_of_the_log_that_is_none_is_damage_and_named(desk, field, value):
    rev = desk.report("a")
    log = Log(desk.store, desk.origin)
    place = Place(log.position().epoch, rev)
    desk.store.client.hset(desk.keys.meta, field, value)
    with pytest.raises(Damaged, match=f"the log of {desk.origin} "):
        log.read_on(place)
