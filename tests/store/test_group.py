"""A group reads an origin's log in order: nothing new before what is pending, nothing twice once it is acknowledged."""

from __future__ import annotations

import random

import pytest

from broker.errors import Invalid
from broker.store.group import FETCH_MAX, Seen
from tests.clock import StillClock
from tests.store.members import GROUP, LEASE_MS, Owner, group
from tests.store.readers import ORIGIN


@pytest.fixture
def desk(desk_on_each):
    return desk_on_each


def test_entries_come_in_the_order_in_which_they_were_accepted(desk):
    told = desk.report_many(range(25))
    owner = Owner(desk.store)
    assert owner.fetch(10) == told[:10]
    owner.ack(told[9])
    assert owner.fetch() == told[10:]


def test_an_entry_comes_as_the_log_has_it(desk):
    desk.report("a", state="running", node="n1", seq=4)
    owner = Owner(desk.store)
    [(rev, flat)] = owner.group.fetch(ORIGIN, owner.term).entries
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    assert [(rev, fields)] == desk.store.client.xrange(desk.keys.log)
    assert (fields[b"event"], fields[b"job"], fields[b"seq"]) == (b"report", b"ollama//a", b"4")


def test_a_new_group_begins_at_the_oldest_entry_that_is_kept(desk):
    told = desk.report_many(range(10))
    desk.store.client.xtrim(desk.keys.log, maxlen=4, approximate=False)
    desk.store.client.hset(desk.keys.meta, "floor", told[5])
    assert Owner(desk.store).fetch() == told[6:]


def test_a_group_that_came_before_the_first_event_misses_none(desk):
    owner = Owner(desk.store)
    assert owner.fetch() == []
    told = desk.report_many("abc")
    assert owner.fetch() == told


def test_nothing_new_is_handed_out_before_what_is_pending(desk):
    old = desk.report_many("abc")
    owner = Owner(desk.store)
    assert owner.fetch() == old
    new = desk.report_many("de")
    owner.ack(old[0])
    assert owner.fetch(2) == old[1:]
    assert owner.fetch() == old[1:] + new


def test_the_next_owner_gets_what_the_last_one_left_pending_first(desk):
    told = desk.report_many("abcd")
    first = Owner(desk.store, "a")
    assert first.fetch(3) == told[:3]
    first.ack(told[0])
    first.release()
    second = Owner(desk.store, "b")
    assert second.claim.place.rev == told[0]
    assert second.fetch() == told[1:]


def test_ack_acked_id_and_the_redis_groups_ack_are_one_step(desk):
    told = desk.report_many("abc")
    owner = Owner(desk.store)
    owner.fetch()
    assert owner.pending() == told
    owner.ack(told[1])
    assert (owner.seen().acked, owner.pending()) == (told[1], told[2:])


def test_what_is_acknowledged_never_comes_again(desk):
    told = desk.report_many("abc")
    owner = Owner(desk.store)
    assert owner.handle_all(1) == told
    assert owner.fetch() == []
    assert (owner.pending(), owner.seen().acked) == ([], told[-1])


def test_an_ack_that_is_sent_again_changes_nothing(desk):
    told = desk.report_many("abc")
    owner = Owner(desk.store)
    owner.fetch()
    for rev in (told[1], told[1], told[0]):
        owner.ack(rev)
        assert (owner.seen().acked, owner.pending()) == (told[1], told[2:])


def test_a_redelivered_entry_that_was_acknowledged_is_acked_and_not_handed_out(desk):
    """Somebody set the Redis group back by hand: it has the old entries pending again."""
    told = desk.report_many("abcd")
    owner = Owner(desk.store)
    assert owner.fetch(2) == told[:2]
    owner.ack(told[1])
    desk.store.client.xgroup_setid(desk.keys.log, GROUP, "0-0")
    desk.store.client.xreadgroup(GROUP, "owner", {desk.keys.log: ">"}, count=2)
    assert owner.pending() == told[:2]
    assert owner.fetch() == told[2:]
    assert owner.pending() == told[2:]


def test_an_entry_deleted_in_the_middle_leaves_nothing_pending(desk):
    told = desk.report_many("abcd")
    owner = Owner(desk.store)
    owner.fetch()
    desk.store.client.xdel(desk.keys.log, told[1])
    owner.ack(told[0])
    assert owner.fetch() == told[2:]
    assert owner.pending() == told[2:]
    for rev in told[2:]:
        owner.ack(rev)
    assert owner.pending() == []


def test_entries_deleted_at_the_end_leave_nothing_pending(desk):
    told = desk.report_many("abc")
    owner = Owner(desk.store)
    owner.fetch()
    owner.ack(told[0])
    desk.store.client.xdel(desk.keys.log, *told[1:])
    assert owner.fetch() == []
    assert owner.pending() == []
    assert owner.fetch() == []


def test_a_failed_handler_leaves_no_mark_but_the_try(desk):
    told = desk.report_many("abc")
    owner = Owner(desk.store)
    owner.fetch()
    before = owner.seen()
    assert [owner.fail(), owner.fail()] == [1, 2]
    assert owner.seen() == before._replace(tries=2)
    assert (owner.fetch(), owner.tries, owner.pending()) == (told, 2, told)


def test_the_tries_are_those_of_the_entry_that_comes_next(desk):
    told = desk.report_many("abc")
    owner = Owner(desk.store)
    owner.fetch()
    owner.fail()
    owner.ack(told[0])
    assert owner.tries == 0
    assert owner.fail() == 1


def test_a_failure_that_is_sent_again_counts_once(desk, monkeypatch):
    desk.report("a")
    owner = Owner(desk.store)
    monkeypatch.setattr("secrets.token_hex", lambda size: "the same call")
    assert [owner.fail(), owner.fail()] == [1, 1]


def test_the_redis_group_shows_where_the_subscription_stands(desk):
    told = desk.report_many("abcde")
    owner = Owner(desk.store)
    owner.fetch(3)
    owner.ack(told[0])
    [shown] = desk.store.client.xinfo_groups(desk.keys.log)
    assert (shown["name"], shown["pending"], shown["consumers"]) == (GROUP.encode(), 2, 1)
    assert shown["last-delivered-id"].decode() == told[2] == owner.seen().sent


def test_groups_read_independently(desk):
    told = desk.report_many("abc")
    one, other = Owner(desk.store, name="one"), Owner(desk.store, name="other")
    assert one.handle_all() == told
    assert other.fetch() == told
    assert (one.pending(), other.pending()) == ([], told)


def test_one_call_hands_out_a_bounded_number(desk):
    told = desk.report_many(range(FETCH_MAX + 50))
    assert Owner(desk.store).fetch(10_000) == told[:FETCH_MAX]


def test_a_long_tail_of_pending_entries_is_acknowledged_over_several_calls(desk):
    """More than one call settles: nothing stays pending for ever."""
    for at in range(0, 1_100, 100):
        told = desk.report_many(range(at, at + 100))
    client, log = desk.store.client, desk.keys.log
    owner = Owner(desk.store)
    owner.fetch(1)
    client.xreadgroup(GROUP, "owner", {log: ">"})
    client.hset(desk.keys.sub(GROUP), "sent", told[-1])
    owner.ack(told[-2])
    assert client.xpending(log, GROUP)["pending"] == 100
    owner.ack(told[-1])
    assert client.xpending(log, GROUP)["pending"] == 0


@pytest.mark.parametrize("name", ["", "Sink", "a b", "a*", "x/y", "a\nb", "é", "a" * 64])
def test_a_group_needs_a_name_that_a_key_can_hold(store, name):
    with pytest.raises(Invalid, match="group"):
        group(store, name=name)


def test_looking_tells_how_each_origin_stands_and_that_a_member_lives(desk):
    told = desk.report_many("ab")
    desk.store.clock = StillClock(desk.store.clock)
    owner = Owner(desk.store, "me")
    owner.fetch()
    owner.ack(told[0])
    seen = owner.group.look([ORIGIN, "elsewhere"])
    assert seen["elsewhere"] == Seen()
    mine = seen[ORIGIN]
    assert (mine.owner, mine.asked, mine.replay) == ("me", "", "")
    assert (mine.epoch, mine.acked) == (owner.claim.place.epoch, told[0])
    now = desk.store.clock.now()
    assert mine.until == now + LEASE_MS
    assert int(desk.store.client.hget(desk.store.keys.groups, GROUP)) == now


def test_a_number_that_is_none_does_not_blind_a_look(desk):
    owner = Owner(desk.store)
    desk.store.client.hset(desk.keys.sub(GROUP), "until", "tomorrow")
    assert owner.group.look([ORIGIN])[ORIGIN].until == 0


@pytest.mark.parametrize("seed", range(5))
def test_whatever_happens_in_between_each_entry_is_handled_once_and_in_order(desk, seed):
    dice = random.Random(seed)
    told, handled, holders = [], [], iter(range(10_000))
    owner = Owner(desk.store, f"h{next(holders)}")
    for _ in range(120):
        match dice.randrange(6):
            case 0:
                told += desk.report_many([next(holders) for _ in range(dice.randrange(1, 8))])
            case 1:
                owner.release()
                owner = Owner(desk.store, f"h{next(holders)}")
            case 2:
                owner.fail()
            case _:
                for rev in owner.fetch(dice.randrange(1, 6))[: dice.randrange(4)]:
                    handled.append(rev)
                    owner.ack(rev)
                    if dice.random() < 0.2:
                        owner.ack(rev)
    handled += owner.handle_all()
    assert handled == told, f"seed {seed}"
    assert owner.pending() == []
