"""Groups as an onlooker sees them: who reads, what is parked, who is dead; and their removal."""

from __future__ import annotations

import pytest
import redis

from broker.errors import Invalid, Unavailable
from broker.store.groups import Groups
from broker.store.lag import Lag
from broker.store.store import Store
from tests.clock import StillClock
from tests.store.group_reader import Reader
from tests.store.readers import Desk

DAY_MS = 86_400_000


@pytest.fixture(autouse=True)
def clock(store):
    store.clock = StillClock(store.clock)
    return store.clock


@pytest.fixture
def groups(store):
    return Groups(store)


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
    reader.say(owner="m1", term="x", until="soon", tries="²", gaps="-1", evicted="9" * 5_000)
    [seen] = reader.seen()
    assert (seen.live, seen.term, seen.tries, seen.gaps, seen.evicted) == (False, 0, 0, 0, 0)


@pytest.mark.parametrize("field", ["epoch", "floor", "rev"])
@pytest.mark.parametrize("value", [b"\xff", "x"])
def test_what_is_written_wrongly_about_one_log_hides_no_other(store, groups, clock, field, value):
    for origin in ("bad", "good"):
        desk = Desk(store, origin)
        desk.report_many("ab")
        Reader(desk).read(1)
    store.client.hset(store.keys.of("bad").meta, field, value)
    bad, good = groups.seen(clock.now())
    assert (good.lag.entries, bad.lag.entries) == (1, None)
    assert bad.lag.gone


def test_a_group_of_a_foreign_hand_hides_none_of_ours(desk):
    desk.report_many("ab")
    reader = Reader(desk)
    desk.store.client.xgroup_create(desk.keys.log, b"\xff", "0")
    assert reader.lag().entries == 2


def test_what_is_no_name_is_no_origin(desk, groups, clock):
    desk.report(1)
    Reader(desk)
    names = {b"\xff": 1, "Bad Name": 1}
    desk.store.client.hset(desk.store.keys.origins, mapping=names)
    assert desk.view.origins() == ["desk"]
    assert [seen.origin for seen in groups.seen(clock.now())] == ["desk"]


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


def test_an_answer_that_is_forbidden_is_no_answer(desk, redis_url, namespace):
    """Not even the half of it that is allowed: a lag would be shown as unknown that is not."""
    desk.report(1)
    Reader(desk)
    commands = ["+@all", "-xinfo"]
    desk.store.client.acl_setuser(
        "onlooker", enabled=True, nopass=True, keys=["*"], commands=commands
    )
    client = redis.Redis.from_url(redis_url, username="onlooker", password="any")
    with pytest.raises(Unavailable, match="permission"):
        Groups(Store(client, namespace)).seen(desk.store.clock.now())
    client.close()
    desk.store.client.acl_deluser("onlooker")


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
    store.client.config_resetstat()  # the tests before this one may look through keys
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
