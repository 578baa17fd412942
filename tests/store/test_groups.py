"""Groups as an onlooker sees them: who reads, how far behind, what is parked, who is dead; and their removal."""

from __future__ import annotations

import pytest

from broker.errors import Invalid, Unavailable
from broker.rules.replay import rev_order
from broker.store.groups import Groups
from broker.store.lag import Lag
from broker.store.log import BEGIN, Log
from tests.clock import StillClock
from tests.store.readers import Desk

DAY_MS = 86_400_000


@pytest.fixture(autouse=True)
def clock(store):
    store.clock = StillClock(store.clock)
    return store.clock


@pytest.fixture
def groups(store):
    return Groups(store)


class Reader:
    """A group's one reader, by hand: it writes what members write, command by command."""

    def __init__(self, desk, name="mail", *, begins=True):
        self.desk, self.name = desk, name
        self.client = desk.store.client
        self.key = desk.keys.sub(name)
        self.look()
        if begins:
            self.begin(BEGIN)

    def look(self, at=None):
        at = self.desk.store.clock.now() if at is None else at
        self.client.hset(self.desk.store.keys.groups, self.name, at)

    def begin(self, rev):
        position = Log(self.desk.store, self.desk.origin).position()
        self.client.xgroup_create(self.desk.keys.log, self.name, rev, mkstream=True)
        self.say(acked=rev, sent=rev, epoch=position.epoch)

    def say(self, **fields):
        self.client.hset(self.key, mapping=fields)

    def fetch(self, count):
        """Take up to `count` new entries; their revs."""
        found = self.client.xreadgroup(self.name, "owner", {self.desk.keys.log: ">"}, count)
        revs = [raw.decode() for raw, _ in found[0][1]]
        self.say(sent=revs[-1])
        return revs

    def ack(self, revs):
        self.client.xack(self.desk.keys.log, self.name, *revs)
        self.say(acked=revs[-1])

    def read(self, count):
        self.ack(self.fetch(count))

    def lag(self):
        [seen] = self.seen()
        return seen.lag

    def seen(self):
        found = Groups(self.desk.store).seen(self.desk.store.clock.now())
        return [seen for seen in found if seen.group == self.name]

    def told(self):
        """What Redis itself says of the group."""
        [found] = self.client.xinfo_groups(self.desk.keys.log)
        return found


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
    revs = desk.report_many(range(8))
    reader = Reader(desk)
    reader.fetch(3)
    Log(desk.store, desk.origin).trim(3, DAY_MS)
    reader.say(acked=revs[4])
    told = reader.told()
    assert (
        told["lag"] + told["pending"] == 8
    )  # it counts two that were cut unread, and three that are gone
    assert behind(reader.lag()) == ("", 3)


def test_all_read_is_0_though_redis_says_otherwise(desk):
    revs = desk.report_many(range(8))
    reader = Reader(desk)
    reader.fetch(3)
    Log(desk.store, desk.origin).trim(3, DAY_MS)
    reader.say(acked=revs[4])
    reader.read(3)
    assert reader.told()["lag"] > 0
    assert reader.lag().entries == 0


def test_a_count_that_the_log_cannot_hold_is_unknown(desk):
    revs = desk.report_many(range(8))
    reader = Reader(desk)
    reader.fetch(3)
    Log(desk.store, desk.origin).trim(3, DAY_MS)
    reader.say(acked=revs[4])
    reader.read(1)
    told = reader.told()
    assert told["lag"] + told["pending"] > 3
    assert (reader.lag().gone, reader.lag().entries) == ("", None)
    assert reader.lag().ms is not None


def test_trimming_behind_a_reader_leaves_its_lag_exact(desk):
    desk.report_many(range(10))
    reader = Reader(desk)
    reader.read(6)
    Log(desk.store, desk.origin).trim(6, DAY_MS)
    assert reader.lag().entries == 4
    Log(desk.store, desk.origin).trim(4, DAY_MS)
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
    desk.store.client.xgroup_setid(desk.keys.log, "mail", revs[1])
    assert reader.lag().entries is None


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


@pytest.mark.parametrize("acked", ["", "x", "5", "(5-0", "+", "1-2-3", "9" * 20 + "-0", "²-1"])
def test_a_place_that_is_none_is_unknown(desk, acked):
    desk.report(1)
    reader = Reader(desk)
    reader.say(acked=acked)
    lag = reader.lag()
    assert lag.gone
    assert (lag.entries, lag.ms) == (None, None)


# --- who reads


def test_an_owner_is_live_as_long_as_its_lease(desk, clock):
    desk.report(1)
    reader = Reader(desk)
    reader.say(owner="m1", term=17, until=clock.now() + 1_000, tries=2, gaps=3, replay="1-0 2-0")
    [seen] = reader.seen()
    assert (seen.owner, seen.live, seen.term) == ("m1", True, 17)
    assert (seen.tries, seen.gaps, seen.replaying) == (2, 3, 2)
    clock.ahead_ms = 1_000
    [seen] = reader.seen()
    assert (seen.owner, seen.live) == ("m1", False)


def test_a_group_without_an_owner_tells_when_it_last_looked(desk, clock):
    desk.report(1)
    reader = Reader(desk)
    clock.ahead_ms = 60_000
    [seen] = reader.seen()
    assert (seen.owner, seen.live, seen.silent_ms, seen.looked_at) == (
        "",
        False,
        60_000,
        clock.begun_at,
    )


def test_a_group_that_has_begun_nowhere_is_seen_all_the_same(desk, groups, clock):
    Reader(desk, begins=False)
    [seen] = groups.seen(clock.now())
    assert (seen.group, seen.origin, seen.lag) == ("mail", "", Lag("", None, None, None))


def test_groups_and_origins_come_by_name(store, groups, clock):
    for origin in ("nas", "desk"):
        desk = Desk(store, origin)
        desk.report(1)
        for name in ("web", "mail"):
            Reader(desk, name)
    found = [(seen.group, seen.origin) for seen in groups.seen(clock.now())]
    assert found == [("mail", "desk"), ("mail", "nas"), ("web", "desk"), ("web", "nas")]
    assert groups.names() == ["mail", "web"]


def test_parked_entries_are_counted(store, groups, clock):
    for origin, count in (("desk", 2), ("nas", 0)):
        desk = Desk(store, origin)
        desk.report(1)
        Reader(desk)
        for _ in range(count):
            store.client.xadd(desk.keys.parked("mail"), {"reason": "boom"})
    assert [seen.parked for seen in groups.seen(clock.now())] == [2, 0]
    assert groups.parked_at("mail") == ["desk"]
    assert groups.parked_at("other") == []


def test_what_is_written_wrongly_counts_as_not_said(desk):
    desk.report(1)
    reader = Reader(desk)
    reader.say(owner="m1", term="x", until="soon", tries="²", gaps="-1")
    [seen] = reader.seen()
    assert (seen.live, seen.term, seen.tries, seen.gaps) == (False, 0, 0, 0)


def test_a_damaged_subscription_hides_no_other(desk, groups, clock, caplog):
    desk.report(1)
    Reader(desk, "web")
    desk.store.client.set(desk.keys.sub("mail"), "x")
    Reader(desk, "mail", begins=False)
    assert [(seen.group, seen.origin) for seen in groups.seen(clock.now())] == [
        ("mail", ""),
        ("web", "desk"),
    ]
    assert "subscription of mail at desk" in caplog.text
    assert groups.remove("mail")
    assert not desk.store.client.exists(desk.keys.sub("mail"))


def test_a_log_of_a_wrong_type_hides_no_group(desk):
    desk.report(1)
    reader = Reader(desk)
    desk.store.client.delete(desk.keys.log)
    desk.store.client.set(desk.keys.log, "x")
    assert reader.lag().entries is None


def test_what_is_no_name_is_no_group(desk, groups, clock):
    desk.store.client.hset(desk.store.keys.groups, mapping={"Bad Name": 1, b"\xff": 1, "mail": 2})
    assert groups.names() == ["mail"]
    assert len(groups.seen(clock.now())) == 1


def test_looking_costs_the_same_few_calls_whatever_there_is(store, groups, clock, monkeypatch):
    def calls():
        before = store.client.info("stats")["total_reads_processed"]
        groups.seen(clock.now())
        return store.client.info("stats")["total_reads_processed"] - before - 1

    desks = [Desk(store, f"node-{n}") for n in range(12)]
    desks[0].report_many(range(3))
    Reader(desks[0])
    few = calls()
    for desk in desks[1:]:
        desk.report_many(range(50))
        for name in ("mail", "web", "hook"):
            Reader(desk, name)
    assert len(groups.seen(clock.now())) == 34
    assert calls() <= 2 * few
    told = store.client.info("commandstats")
    assert not {"cmdstat_scan", "cmdstat_keys"} & set(told)


# --- the end of a group


def test_a_group_is_dead_when_none_of_it_has_looked_for_long(desk, groups, clock):
    reader = Reader(desk, begins=False)
    Reader(desk, "web", begins=False).look("never")
    now = clock.now()
    assert groups.dead(now + DAY_MS, DAY_MS) == []
    assert groups.dead(now + DAY_MS + 1, DAY_MS) == ["mail"]
    reader.look(now + 1)
    assert groups.dead(now + DAY_MS + 1, DAY_MS) == []


def test_a_group_is_live_while_a_member_looks_or_an_owner_reads(desk, groups, clock):
    desk.report(1)
    reader = Reader(desk)
    assert groups.is_live("mail", clock.now() + 5_000, 5_000)
    assert not groups.is_live("mail", clock.now() + 5_001, 5_000)
    reader.say(owner="m1", until=clock.now() + 9_000)
    assert groups.is_live("mail", clock.now() + 5_001, 5_000)
    assert not groups.is_live("mail", clock.now() + 9_000, 5_000)
    assert not groups.is_live("other", clock.now(), 5_000)


def test_a_removed_group_leaves_nothing(store, groups, clock):
    for origin in ("desk", "nas"):
        desk = Desk(store, origin)
        desk.report(1)
        for name in ("mail", "web"):
            Reader(desk, name)
            store.client.xadd(desk.keys.parked(name), {"reason": "boom"})
    assert groups.remove("mail")
    assert groups.names() == ["web"]
    for origin in ("desk", "nas"):
        keys = store.keys.of(origin)
        assert not store.client.exists(keys.sub("mail"), keys.parked("mail"))
        assert [found["name"] for found in store.client.xinfo_groups(keys.log)] == [b"web"]
        assert store.client.exists(keys.sub("web"), keys.parked("web")) == 2
    assert not groups.remove("mail")


def test_a_group_goes_also_where_the_log_went_before(desk_on_each):
    desk_on_each.report(1)
    reader = Reader(desk_on_each)
    desk_on_each.store.client.delete(desk_on_each.keys.log)
    assert Groups(desk_on_each.store).remove("mail")
    assert reader.seen() == []
    assert not desk_on_each.store.client.exists(reader.key)


def test_a_removal_that_was_broken_off_can_be_repeated(desk, groups, monkeypatch):
    desk.report(1)
    reader = Reader(desk)
    monkeypatch.setattr("broker.store.groups.ask_each", lost)
    with pytest.raises(Unavailable):
        groups.remove("mail")
    monkeypatch.undo()
    assert groups.names() == ["mail"]
    assert groups.remove("mail")
    assert reader.seen() == []


def lost(*args):
    raise Unavailable("Redis does not answer")


@pytest.mark.parametrize("name", ["", "Mail", "a b", "*", "a/b", "a\nb", "x" * 64])
def test_a_name_that_is_none_is_refused(groups, name):
    with pytest.raises(Invalid):
        groups.remove(name)
