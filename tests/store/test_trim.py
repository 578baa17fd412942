from __future__ import annotations

import pytest

from broker.errors import Gone, Refused, Unavailable
from broker.rules.replay import rev_order
from broker.store import log as log_module
from broker.store.log import BEGIN, Log, Place, Position
from broker.store.store import Store
from tests.clock import StillClock
from tests.store.readers import ORIGIN, Desk, patient, revs

HOUR_MS = 3_600_000


@pytest.fixture
def desk(desk_on_each):
    """Its clock stands still: what is just old enough for a test stays so until it is looked at."""
    desk_on_each.store.clock = StillClock(desk_on_each.store.clock)
    return desk_on_each


@pytest.fixture
def log(desk):
    return Log(desk.store, ORIGIN)


def test_trimming_by_count_puts_the_floor_just_below_the_first_kept(desk, log):
    told = desk.report_many(range(10))
    assert log.trim(4, HOUR_MS) == 6
    assert revs(log.read()) == told[6:]
    floor = rev_order(log.position().floor)
    assert rev_order(told[5]) <= floor < rev_order(told[6])


@pytest.mark.parametrize(
    "kept, floor",
    [("5-7", "5-6"), ("5-1", "5-0"), ("5-0", "4-18446744073709551615")],
)
def test_the_floor_is_the_id_before_the_first_kept(desk, log, kept, floor):
    for rev in ("3-1", kept):
        desk.store.client.xadd(desk.keys.log, {"event": "report"}, id=rev)
    assert log.trim(1, desk.store.clock.now()) == 1
    assert log.position().floor == floor


def test_trimming_by_age_alone(desk, log):
    old = [f"{desk.store.clock.now() - 2 * HOUR_MS}-{seq}" for seq in range(3)]
    for rev in old:
        desk.store.client.xadd(desk.keys.log, {"event": "report"}, id=rev)
    desk.store.client.hset(desk.keys.meta, mapping={"epoch": "e", "rev": old[-1]})
    new = desk.report("a")
    assert log.trim(100, HOUR_MS) == 3
    assert revs(log.read()) == [new]


def test_an_emptied_log_has_its_floor_at_the_last_rev_and_keeps_its_readers(desk, log):
    last = desk.report_many("abc")[-1]
    place = log.position().place
    assert log.trim(0, HOUR_MS) == 3
    assert log.position() == Position(place.epoch, last, last)
    assert log.read_on(place).entries == []
    new = desk.report("d")
    assert revs(log.read_on(place).entries) == [new]


def test_where_nothing_goes_the_floor_stays_and_so_does_the_reader_at_it(desk, log):
    desk.report("a")
    log.trim(0, HOUR_MS)
    place = log.position().place
    new = desk.report("b")
    assert log.trim(10, HOUR_MS) == 0
    assert log.position().floor == place.rev
    assert revs(log.read_on(place).entries) == [new]


def test_a_trimmed_place_is_gone_and_the_floor_is_not(desk, log):
    told = desk.report_many(range(10))
    epoch, floor, _ = log.position()
    log.trim(4, HOUR_MS)
    with pytest.raises(Gone, match=r"desk.*trimmed") as gone:
        log.read_on(Place(epoch, told[4]))
    assert gone.value.origin == ORIGIN
    with pytest.raises(Gone):
        log.read_on(Place(epoch, floor))
    assert (
        revs(log.read_on(log.position().place._replace(rev=log.position().floor)).entries)
        == (told[6:])
    )


def test_a_lower_term_is_refused_and_a_higher_one_kept(desk, log):
    desk.report_many("abc")
    assert log.trim(2, HOUR_MS, term=7) == 1
    with pytest.raises(Refused) as refused:
        log.trim(1, HOUR_MS, term=6)
    assert refused.value.rule == "stale_term"
    assert len(log.read()) == 2
    assert desk.store.client.hget(desk.keys.meta, "term:janitor") == b"7"
    assert log.trim(1, HOUR_MS, term=7) == 1


def test_a_call_cuts_a_bounded_number_and_says_how_many(desk, log, monkeypatch):
    monkeypatch.setattr(log_module, "TRIM_MAX", 4)
    told = desk.report_many(range(10))
    assert [log.trim(1, HOUR_MS) for _ in range(4)] == [4, 4, 1, 0]
    assert revs(log.read()) == told[9:]
    assert rev_order(told[8]) <= rev_order(log.position().floor) < rev_order(told[9])


# --- what live groups need ----------------------------------------------------------------------------------------


def stand(desk, group, acked, epoch=None):
    """Where a group stands, as its own scripts keep it."""
    epoch = Log(desk.store, ORIGIN).position().epoch if epoch is None else epoch
    desk.store.client.hset(desk.keys.sub(group), mapping={"acked": acked, "epoch": epoch})


def test_a_live_group_keeps_what_it_has_not_acked_and_the_entry_it_acked_last(desk, log):
    told = desk.report_many(range(10))
    stand(desk, "g", told[3])
    assert log.trim(2, HOUR_MS, groups=["g"]) == 3
    assert revs(log.read()) == told[3:]
    assert revs(log.read_on(Place(log.position().epoch, told[3])).entries) == told[4:]

    stand(desk, "g", told[5])
    assert log.trim(2, HOUR_MS, groups=["g"]) == 2
    assert log.trim(2, HOUR_MS) == 3


def test_the_slowest_live_group_decides(desk, log):
    told = desk.report_many(range(10))
    for group, acked in (("fast", told[9]), ("slow", told[2]), ("middle", told[6])):
        stand(desk, group, acked)
    assert log.trim(0, HOUR_MS, groups=["fast", "slow", "middle"]) == 2
    assert log.trim(0, HOUR_MS, groups=["fast", "middle"]) == 4


def test_age_does_not_reach_what_a_live_group_has_not_acked(desk, log):
    old = [f"{desk.store.clock.now() - 2 * HOUR_MS}-{seq}" for seq in range(9, 13)]
    for rev in old:
        desk.store.client.xadd(desk.keys.log, {"event": "report"}, id=rev)
    stand(desk, "g", old[1])
    assert log.trim(100, HOUR_MS, groups=["g"]) == 1
    assert log.trim(100, HOUR_MS) == 3


def test_beyond_the_hard_cap_the_oldest_go_whoever_needs_them(desk, log):
    told = desk.report_many(range(10))
    stand(desk, "g", told[1])
    assert log.trim(2, HOUR_MS, groups=["g"], hard_max=6) == 4
    assert revs(log.read()) == told[4:]
    with pytest.raises(Gone):
        log.read_on(Place(log.position().epoch, told[1]))


def test_a_group_that_has_read_all_holds_nothing_and_stays_welcome(desk, log):
    told = desk.report_many(range(3))
    stand(desk, "g", told[2])
    place = log.position().place
    assert log.trim(0, HOUR_MS, groups=["g"]) == 3
    assert log.position().floor == told[2]
    assert log.read_on(place).entries == []


def test_a_group_at_the_floor_keeps_all(desk, log):
    desk.report_many(range(3))
    stand(desk, "g", log.position().floor)
    assert log.trim(0, HOUR_MS, groups=["g"]) == 0


def test_a_group_that_has_not_begun_at_this_origin_holds_nothing(desk, log):
    """It will begin at the oldest entry there is then; or it was told to read other origins only, for ever."""
    desk.report_many(range(3))
    desk.store.client.hset(desk.keys.sub("asked"), "asked", "somebody")
    assert log.trim(1, HOUR_MS, groups=["none", "asked"]) == 2


@pytest.mark.parametrize("epoch", ["of another log", ""])
def test_a_group_whose_place_is_in_another_log_begins_anew_and_needs_all(desk, log, epoch):
    told = desk.report_many(range(3))
    stand(desk, "g", told[1], epoch)
    assert log.trim(0, HOUR_MS, groups=["g"]) == 0


@pytest.mark.parametrize("damage", ["no hash", "no id"])
def test_what_is_no_subscription_holds_nothing(desk, log, damage):
    desk.report_many(range(3))
    if damage == "no hash":
        desk.store.client.set(desk.keys.sub("g"), "x")
    else:
        stand(desk, "g", "12")
    assert log.trim(1, HOUR_MS, groups=["g"]) == 2


@pytest.mark.parametrize(
    "acked, stays", [("5-9", 4), ("5-10", 3), ("5-18446744073709551615", 2), ("6-0", 1)]
)
def test_ids_are_compared_as_numbers_however_large(desk, log, acked, stays):
    for rev in ("5-9", "5-10", "5-18446744073709551615", "70-1"):
        desk.store.client.xadd(desk.keys.log, {"event": "report"}, id=rev)
    stand(desk, "g", acked)
    log.trim(0, HOUR_MS, groups=["g"])
    assert desk.store.client.xlen(desk.keys.log) == stays


# ------------------------------------------------------------------------------------------------------------------


def test_trimming_what_was_never_written_does_nothing(desk, log):
    assert log.trim(10, HOUR_MS) == 0
    assert log.position() == Position("", BEGIN, BEGIN)


def test_a_full_redis_can_still_be_read_and_trimming_is_the_way_out(redis_url, namespace):
    store = Store.from_url(patient(redis_url), namespace)
    desk = Desk(store)
    told = desk.report_many("abc")
    log = Log(store, ORIGIN)
    store.client.config_set("maxmemory", 1)
    try:
        with pytest.raises(Unavailable):
            desk.report("d")
        place = log.position().place._replace(rev=told[0])
        assert revs(log.read_on(place).entries) == told[1:]
        assert log.trim(1, HOUR_MS, term=5) == 2
        assert rev_order(told[1]) <= rev_order(log.position().floor) < rev_order(told[2])
    finally:
        store.client.config_set("maxmemory", 0)
        store.close()
