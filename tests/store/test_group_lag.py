"""How far a group is behind: exact, or unknown and never 0, whatever Redis's own count says."""

from __future__ import annotations

import random

import pytest

from broker.errors import Gone
from broker.rules.replay import rev_order
from broker.store.group import Group
from broker.store.groups import Groups
from broker.store.lag import Lag
from broker.store.log import Log
from tests.clock import StillClock
from tests.store.group_reader import Reader

DAY_MS = 86_400_000


@pytest.fixture(autouse=True)
def clock(store):
    store.clock = StillClock(store.clock)
    return store.clock


def behind(lag):
    return lag.gone, lag.entries


# --- lag in entries


def test_a_group_that_has_begun_has_the_whole_log_before_it(desk_on_each):
    desk_on_each.report_many(range(5))
    assert Reader(desk_on_each).lag().entries == 5


def test_the_lag_counts_what_is_pending_and_what_is_new(desk_on_each):
    desk_on_each.report_many(range(10))
    reader = Reader(desk_on_each)
    for left in (9, 8):
        reader.read(1)
        assert (reader.lag().entries, reader.lag().pending) == (left, 0)
    revs = reader.fetch(3)
    assert (reader.lag().entries, reader.lag().pending) == (8, 3)
    reader.ack(revs[:1])
    assert (reader.lag().entries, reader.lag().pending) == (7, 2)
    desk_on_each.report(99)
    assert reader.lag().entries == 8


def test_a_group_that_has_read_all_is_0_behind(desk_on_each):
    desk_on_each.report_many(range(3))
    reader = Reader(desk_on_each)
    reader.read(3)
    assert reader.lag() == Lag("", 0, 0, 0)


def test_an_empty_log_leaves_nothing_to_read(desk):
    desk.report(1)
    reader = Reader(desk)
    reader.read(1)
    Log(desk.store, desk.origin).trim(0, DAY_MS)
    assert desk.store.client.xlen(desk.keys.log) == 0
    assert reader.lag() == Lag("", 0, 0, 0)


def test_at_the_floor_the_lag_is_the_log_whatever_redis_says(desk):
    desk.report_many(range(8))
    reader = Reader(desk)
    reader.fetch(3)
    Log(desk.store, desk.origin).trim(3, DAY_MS)
    reader.say(acked=Log(desk.store, desk.origin).position().floor)
    told = reader.told()
    # Two that were cut unread are still counted, and three that were cut while they were pending.
    assert told["lag"] + told["pending"] == 8
    assert behind(reader.lag()) == ("", 3)


def test_all_read_is_0_though_redis_says_otherwise(desk):
    desk.report_many(range(8))
    reader = Reader(desk)
    reader.fetch(3)
    Log(desk.store, desk.origin).trim(3, DAY_MS)
    reader.say(acked=Log(desk.store, desk.origin).position().floor)
    reader.read(3)
    assert reader.told()["lag"] > 0
    assert reader.lag().entries == 0


def test_a_count_that_the_log_cannot_hold_is_unknown(desk):
    desk.report_many(range(8))
    reader = Reader(desk)
    reader.fetch(3)
    Log(desk.store, desk.origin).trim(3, DAY_MS)
    reader.say(acked=Log(desk.store, desk.origin).position().floor)
    reader.read(1)
    told = reader.told()
    assert told["lag"] + told["pending"] > 3
    assert (reader.lag().gone, reader.lag().entries) == ("", None)
    assert reader.lag().ms is not None


def test_trimming_behind_a_reader_leaves_its_lag_exact(desk):
    desk.report_many(range(10))
    reader = Reader(desk)
    reader.read(6)
    for count in (8, 5):
        Log(desk.store, desk.origin).trim(count, DAY_MS)
        assert reader.lag().entries == 4


def test_a_lag_that_redis_does_not_know_is_unknown_never_0(desk):
    revs = desk.report_many(range(8))
    reader = Reader(desk)
    reader.read(2)
    desk.store.client.xdel(desk.keys.log, revs[5])
    assert reader.told()["lag"] is None
    assert behind(reader.lag()) == ("", None)


def test_a_group_made_anew_in_the_middle_is_unknown_until_it_has_read_all(desk):
    desk.report_many(range(8))
    reader = Reader(desk)
    reader.read(2)
    at = reader.seen()[0].acked
    desk.store.client.xgroup_destroy(desk.keys.log, "mail")
    assert behind(reader.lag()) == ("", None)
    reader.begin(at)
    assert behind(reader.lag()) == ("", None)
    reader.read(6)
    assert reader.lag().entries == 0


def test_a_group_of_redis_that_stands_elsewhere_is_not_believed(desk):
    revs = desk.report_many(range(8))
    reader = Reader(desk)
    reader.read(4)
    desk.store.client.xgroup_setid(desk.keys.log, "mail", revs[1], entries_read=2)
    assert reader.told()["lag"] == 6
    assert reader.lag().entries is None


def test_no_more_entries_follow_one_than_the_log_has_beside_it(desk):
    desk.report_many(range(4))
    reader = Reader(desk)
    reader.read(1)
    acked = reader.seen()[0].acked
    for entries_read, believed in ((1, 3), (0, None)):
        desk.store.client.xgroup_setid(desk.keys.log, "mail", acked, entries_read=entries_read)
        assert reader.lag().entries == believed


def test_a_lag_that_was_just_read_away_is_at_least_the_entry_that_was_seen(desk):
    desk.report_many(range(4))
    reader = Reader(desk)
    reader.read(3)
    desk.store.client.xgroup_setid(desk.keys.log, "mail", "$", entries_read=4)
    assert reader.told()["lag"] == 0
    assert reader.lag().entries == 1


# --- lag in time


def test_the_age_is_that_of_the_first_unread_entry(desk, clock):
    revs = desk.report_many(range(3))
    reader = Reader(desk)
    clock.ahead_ms = 61_234
    assert reader.lag().ms == clock.now() - rev_order(revs[0])[0]
    reader.fetch(3)
    assert reader.lag().ms == clock.now() - rev_order(revs[0])[0]
    reader.ack(revs[:2])
    assert reader.lag().ms == clock.now() - rev_order(revs[2])[0]


def test_an_entry_of_a_later_clock_is_of_no_age(desk, clock):
    desk.report(1)
    clock.ahead_ms = -10_000
    assert Reader(desk).lag().ms == 0


# --- places that do not fit


def test_a_reader_whose_unread_entries_were_cut_is_told_so(desk):
    desk.report_many(range(8))
    reader = Reader(desk)
    reader.read(2)
    Log(desk.store, desk.origin).trim(3, DAY_MS)
    assert behind(reader.lag()) == ("trimmed, lost or rolled back", None)
    assert reader.lag().ms is None


def test_a_log_that_is_gone_leaves_the_lag_unknown(desk):
    desk.report_many(range(3))
    reader = Reader(desk)
    reader.read(1)
    desk.store.client.delete(desk.keys.log)
    assert reader.lag() == Lag("it is another log now", None, None, None)
    desk.store.client.delete(desk.keys.meta)
    assert reader.lag() == Lag("it is another log now", None, None, None)


def test_another_log_of_the_same_origin_leaves_it_unknown(desk):
    desk.report_many(range(3))
    reader = Reader(desk)
    reader.read(3)
    desk.store.client.delete(desk.keys.log)
    desk.report(9)
    assert behind(reader.lag()) == ("it is another log now", None)


@pytest.mark.parametrize("acked", ["", "x", "5", "0", "(5-0", "+", "1-2-3", "9" * 20 + "-0", "²-1"])
def test_a_place_that_is_none_is_unknown(desk, acked):
    desk.report(1)
    reader = Reader(desk)
    reader.say(acked=acked)
    lag = reader.lag()
    assert lag.gone
    assert (lag.entries, lag.ms) == (None, None)


# --- against the members' own scripts


@pytest.mark.parametrize("seed", range(8))
def test_whatever_happens_a_lag_is_exact_or_unknown(desk, clock, seed):
    """A group reads, parks, loses entries unread and its Redis group, while the log grows and is cut."""
    dice = random.Random(seed)
    member = Group(desk.store, "mail", "m1", lease_ms=DAY_MS, parked_max=10)
    log, groups = Log(desk.store, desk.origin), Groups(desk.store)
    member.look([desk.origin])
    term = member.claim(desk.origin).term
    known = 0

    def read():
        fetched = member.fetch(desk.origin, term, dice.randint(1, 4)).entries
        for rev, _ in fetched[: dice.randint(0, len(fetched))]:
            act = dice.choice((member.ack, member.ack, lambda *at: member.park(*at, "boom")))
            act(desk.origin, term, rev.decode())

    def lose():
        desk.store.client.xgroup_destroy(desk.keys.log, "mail")
        dice.choice((read, write))()

    def cut():
        log.trim(dice.randint(0, 6), DAY_MS)

    def write():
        desk.report_many(str(dice.random()) for _ in range(dice.randint(1, 5)))

    write()
    for _ in range(60):
        try:
            dice.choices((read, write, cut, lose), (8, 6, 1, 1))[0]()
        except Gone:
            member.skip(desk.origin, term)
        [seen] = groups.seen(clock.now())
        if seen.lag.gone:
            continue
        unread = desk.store.client.xrange(desk.keys.log, f"({seen.acked}")
        assert seen.lag.entries in (None, len(unread))
        assert seen.lag.entries is not None or unread
        at = int(unread[0][0].split(b"-")[0]) if unread else clock.now()
        assert seen.lag.ms == max(0, clock.now() - at)
        known += seen.lag.entries is not None
    assert known > 10
