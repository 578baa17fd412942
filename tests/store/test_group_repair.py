"""What is lost in Redis: a Redis group is made anew where the subscription stands, a gap in the log is told once."""

from __future__ import annotations

import random

import pytest

from broker.errors import Gone
from broker.store.log import Log, Place
from tests.store.members import GROUP, Owner
from tests.store.readers import ORIGIN


@pytest.fixture
def desk(desk_on_each):
    return desk_on_each


def told_gone_then_skip(owner, why):
    """The gap is told until it is skipped, and counted once, however often that is sent."""
    gaps = owner.seen().gaps
    for _ in range(2):
        with pytest.raises(Gone, match=why) as gone:
            owner.fetch()
        assert gone.value.origin == ORIGIN
    owner.skip()
    owner.skip()
    assert owner.seen().gaps == gaps + 1


# --- the Redis group ---------------------------------------------------------------------------------


def test_a_destroyed_group_is_made_anew_at_the_acknowledged_entry(desk):
    told = desk.report_many("abcde")
    owner = Owner(desk.store)
    owner.fetch(3)
    owner.ack(told[0])
    desk.store.client.xgroup_destroy(desk.keys.log, GROUP)
    assert owner.fetch() == told[1:]
    assert owner.pending() == told[1:]
    owner.ack(told[2])
    assert owner.pending() == told[3:]


def test_a_destroyed_group_with_nothing_new_leaves_what_is_pending_to_be_handled(desk):
    told = desk.report_many("abc")
    owner = Owner(desk.store)
    owner.fetch()
    desk.store.client.xgroup_destroy(desk.keys.log, GROUP)
    assert owner.handle_all() == told
    new = desk.report("d")
    assert owner.fetch() == [new]
    assert owner.pending() == [new]


def test_a_destroyed_group_never_goes_on_at_the_end(desk):
    """What came between its loss and its repair is not passed over."""
    desk.report("a")
    owner = Owner(desk.store)
    owner.handle_all()
    desk.store.client.xgroup_destroy(desk.keys.log, GROUP)
    new = desk.report_many("bcd")
    assert owner.fetch(2) == new[:2]
    assert owner.pending() == new[:2]


# --- the subscription --------------------------------------------------------------------------------


def test_a_lost_subscription_goes_on_where_its_member_stood(desk):
    told = desk.report_many("abcd")
    owner = Owner(desk.store)
    owner.fetch()
    owner.ack(told[1])
    known = Place(Log(desk.store, ORIGIN).position().epoch, told[1])
    desk.store.client.delete(desk.keys.sub(GROUP))
    again = Owner(desk.store, "b", known=known)
    assert again.claim.place == known
    assert again.fetch() == told[2:]
    assert again.pending() == told[2:]


def test_a_lost_subscription_of_which_nobody_knows_begins_anew(desk):
    told = desk.report_many("abcd")
    Owner(desk.store).handle_all()
    desk.store.client.delete(desk.keys.sub(GROUP))
    assert Owner(desk.store, "b").fetch() == told


def test_what_a_member_knows_does_not_outweigh_what_is_stored(desk):
    told = desk.report_many("abcd")
    first = Owner(desk.store, "a")
    first.fetch()
    first.ack(told[2])
    first.release()
    outdated = Place(first.seen().epoch, told[0])
    assert Owner(desk.store, "b", known=outdated).fetch() == told[3:]


# --- the log -----------------------------------------------------------------------------------------


def test_a_flush_is_told_to_a_member_that_knows_where_it_stood(desk):
    told = desk.report_many("abc")
    owner = Owner(desk.store, "a")
    owner.fetch()
    owner.ack(told[1])
    known = Place(owner.seen().epoch, told[1])
    desk.store.client.flushall()
    new = desk.report_many("de")
    again = Owner(desk.store, "a", known=known)
    told_gone_then_skip(again, "another log")
    assert again.handle_all() == new
    assert again.pending() == []


def test_after_a_flush_nothing_is_passed_over_whatever_the_ids_of_the_new_log(desk):
    """Its clock may be behind: the new ids then lie below the one that was acknowledged in the old log."""
    known = Place("the old log", "9999999999999-0")
    new = desk.report_many("de")
    owner = Owner(desk.store, known=known)
    told_gone_then_skip(owner, "another log")
    assert owner.fetch() == new
    assert owner.pending() == new
    assert owner.seen().sent == new[-1]


def test_a_flush_is_told_before_anything_new_is_written(desk):
    told = desk.report_many("abc")
    owner = Owner(desk.store, "a")
    assert owner.handle_all() == told
    known = Place(owner.seen().epoch, told[-1])
    desk.store.client.flushall()
    again = Owner(desk.store, "a", known=known)
    told_gone_then_skip(again, "another log")
    assert again.fetch() == []
    new = desk.report_many("de")
    assert again.fetch() == new


def test_after_a_flush_who_knows_nothing_begins_anew(desk):
    desk.report_many("abc")
    Owner(desk.store, "a").handle_all()
    desk.store.client.flushall()
    new = desk.report_many("de")
    owner = Owner(desk.store, "b")
    assert owner.fetch() == new
    assert owner.seen().gaps == 0


def test_a_deleted_log_is_told_once_and_the_next_one_is_read_from_its_beginning(desk):
    desk.report_many("abc")
    owner = Owner(desk.store)
    owner.fetch()
    desk.store.client.delete(desk.keys.log)
    told_gone_then_skip(owner, "another log")
    assert owner.fetch() == []
    new = desk.report_many("de")
    assert owner.handle_all() == new
    assert (owner.seen().gaps, owner.pending()) == (1, [])


def test_a_log_that_was_recreated_is_told_once_and_read_from_its_beginning(desk):
    desk.report_many("abc")
    owner = Owner(desk.store)
    owner.handle_all()
    desk.store.client.delete(desk.keys.log)
    new = desk.report_many("de")
    told_gone_then_skip(owner, "another log")
    assert owner.handle_all() == new


def test_what_was_trimmed_unread_is_told_once_and_passed_over(desk):
    told = desk.report_many(range(10))
    owner = Owner(desk.store)
    owner.fetch(4)
    owner.ack(told[1])
    Log(desk.store, ORIGIN).trim(3, 3_600_000)
    told_gone_then_skip(owner, "trimmed")
    assert owner.fetch() == told[7:]
    assert owner.pending() == told[7:]


def test_what_was_trimmed_after_it_was_read_is_no_gap(desk):
    told = desk.report_many("abcd")
    owner = Owner(desk.store)
    owner.handle_all()
    Log(desk.store, ORIGIN).trim(0, 3_600_000)
    assert owner.fetch() == []
    assert owner.seen().acked == told[-1]
    new = desk.report("e")
    assert owner.fetch() == [new]


def test_a_log_that_was_rolled_back_is_told_once_and_nothing_is_handled_twice(desk):
    """Redis lost its last second: entries are gone that were handled."""
    told = desk.report_many("abcd")
    owner = Owner(desk.store)
    owner.handle_all()
    desk.store.client.xdel(desk.keys.log, *told[2:])
    new = desk.report_many("ef")
    told_gone_then_skip(owner, "rolled back")
    assert owner.seen().acked == told[1]
    assert owner.fetch() == new


def test_a_subscription_that_fell_back_with_its_log_counts_the_gap_once(desk):
    """Redis lost its last second: the place fits, and what was handled after it is no more."""
    told = desk.report_many("abcd")
    owner = Owner(desk.store)
    owner.handle_all()
    known = Place(owner.seen().epoch, told[3])
    desk.store.client.xdel(desk.keys.log, *told[2:])
    desk.store.client.hset(desk.keys.sub(GROUP), mapping={"acked": told[1], "sent": told[1]})
    for _ in range(2):
        owner.group.skip(ORIGIN, owner.term, known)
        assert (owner.seen().gaps, owner.seen().acked) == (1, told[1])
    owner.group.skip(ORIGIN, owner.term, Place("another", told[3]))
    assert owner.seen().gaps == 1
    new = desk.report_many("ef")
    assert owner.fetch() == new


def test_a_deleted_cursor_is_told_once_and_nothing_unread_is_passed_over(desk):
    told = desk.report_many("abcde")
    owner = Owner(desk.store)
    owner.fetch(4)
    owner.ack(told[2])
    desk.store.client.xdel(desk.keys.log, told[2])
    told_gone_then_skip(owner, "lost")
    assert owner.seen().acked == told[1]
    assert owner.fetch(1) == owner.pending() == told[3:4]
    assert owner.fetch() == owner.pending() == told[3:]


def test_a_gap_ends_the_tries_of_what_was_lost(desk):
    desk.report_many("abc")
    owner = Owner(desk.store)
    owner.fetch()
    owner.fail()
    Log(desk.store, ORIGIN).trim(1, 3_600_000)
    told_gone_then_skip(owner, "trimmed")
    assert owner.tries == 0


def test_skipping_where_nothing_is_lost_does_nothing(desk):
    told = desk.report_many("abc")
    owner = Owner(desk.store)
    owner.fetch()
    owner.ack(told[0])
    before = owner.seen()
    owner.skip()
    assert (owner.seen(), owner.pending()) == (before, told[1:])


# --- the same rule as every reader's -------------------------------------------------------------------


def spoil(desk, dice):
    """Something happens to the log, more or less bad."""
    client, keys = desk.store.client, desk.keys
    standing = [rev for rev, _ in client.xrange(keys.log)]
    match dice.randrange(10):
        case 0:
            client.delete(keys.log)
        case 1:
            client.delete(keys.log, keys.meta)
        case 2 | 3 if standing:
            Log(desk.store, ORIGIN).trim(dice.randrange(len(standing) + 1), 3_600_000)
        case 4 if standing:
            client.xdel(keys.log, dice.choice(standing))
        case _:
            desk.report_many([dice.randrange(10**9) for _ in range(dice.randrange(5))])


@pytest.mark.parametrize("seed", range(10))
def test_a_group_is_told_gone_exactly_where_a_watcher_would_be(desk, seed):
    dice = random.Random(seed)
    log = Log(desk.store, ORIGIN)
    owner = Owner(desk.store)
    answers = []
    for _ in range(60):
        spoil(desk, dice)
        seen = owner.seen()
        try:
            chunk = log.read_on(Place(seen.epoch, seen.acked), 3)
            expected = [entry.rev for entry in chunk.entries]
        except Gone as gone:
            expected = gone.why
        try:
            found = owner.fetch(3)
        except Gone as gone:
            found = gone.why
            owner.skip()
        assert found == expected, f"seed {seed}"
        answers.append(type(found))
        if found and isinstance(found, list) and dice.random() < 0.7:
            owner.ack(dice.choice(found))
    assert answers.count(str) > 3 < answers.count(list), "too little happened"
