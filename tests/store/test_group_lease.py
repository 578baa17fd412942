"""Each origin has one owner in a group, each a higher term than all before; who was replaced can do nothing."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from broker.errors import Refused
from tests.clock import StillClock
from tests.store.members import (
    GROUP,
    LEASE_MS,
    Owner,
    everything,
    group,
    refused_as_stale,
)
from tests.store.readers import ORIGIN


@pytest.fixture
def desk(desk_on_each):
    desk_on_each.store.clock = StillClock(desk_on_each.store.clock)
    return desk_on_each


def lapse(desk):
    """The lease of whoever holds one ends."""
    desk.store.clock.ahead_ms += LEASE_MS + 1


def test_one_member_owns_an_origin(desk):
    Owner(desk.store, "a")
    assert group(desk.store, "b").claim(ORIGIN) is None
    assert group(desk.store, "b").claim("elsewhere")


def test_another_group_has_another_owner(desk):
    Owner(desk.store, "a", name="one")
    assert group(desk.store, "b", name="other").claim(ORIGIN)


def test_the_owner_renews_and_keeps_its_term(desk):
    owner = Owner(desk.store)
    desk.store.clock.ahead_ms += LEASE_MS - 100
    assert owner.renew().term == owner.term
    desk.store.clock.ahead_ms += LEASE_MS - 100
    assert group(desk.store, "b").claim(ORIGIN) is None


def test_an_owner_that_lapsed_may_go_on_while_nobody_took_over(desk):
    told = desk.report_many("ab")
    owner = Owner(desk.store)
    owner.fetch()
    lapse(desk)
    owner.ack(told[0])
    assert owner.renew().term == owner.term
    assert (owner.fetch(), owner.tries) == (told[1:], 0)


def test_a_lapsed_origin_is_taken_over_and_goes_on_where_it_stood(desk):
    told = desk.report_many("abc")
    first = Owner(desk.store, "a")
    first.fetch()
    first.ack(told[0])
    lapse(desk)
    second = Owner(desk.store, "b")
    assert second.claim.place.rev == told[0]
    assert second.fetch() == told[1:]


def test_an_origin_given_back_is_free_at_once(desk):
    first = Owner(desk.store, "a")
    assert first.release()
    assert group(desk.store, "b").claim(ORIGIN).term > first.term


def test_giving_back_what_is_not_held_does_nothing(desk):
    first = Owner(desk.store, "a")
    lapse(desk)
    second = Owner(desk.store, "b")
    before = everything(desk.store)
    assert not first.release()
    assert everything(desk.store) == before
    assert second.release()
    assert not second.release()


def test_terms_rise_for_ever_and_are_at_least_redis_time(desk):
    before = desk.store.clock.now()
    terms = []
    for at in range(40):
        owner = Owner(desk.store, f"h{at % 3}")
        terms.append(owner.term)
        owner.release() if at % 2 else lapse(desk)
    assert terms == sorted(set(terms))
    assert terms[0] >= before


def test_a_clock_that_steps_back_does_not_lower_the_term(desk):
    first = Owner(desk.store, "a")
    first.release()
    desk.store.clock.ahead_ms -= 3_600_000
    assert Owner(desk.store, "b").term == first.term + 1


def test_a_term_is_not_given_twice_even_where_the_subscription_was_lost(desk):
    first = Owner(desk.store, "a")
    desk.store.client.delete(desk.keys.sub(GROUP))
    desk.store.clock.ahead_ms += 1
    assert Owner(desk.store, "a").term > first.term


def assert_refused_everything(desk, owner):
    last = desk.store.client.xrevrange(desk.keys.log, count=1)[0][0].decode()
    before = everything(desk.store)
    for call in owner.everything(last).values():
        with refused_as_stale():
            call()
        assert everything(desk.store) == before


def test_a_former_owner_can_do_nothing_once_another_one_took_over(desk):
    desk.report_many("abc")
    former = Owner(desk.store, "a")
    former.fetch()
    lapse(desk)
    Owner(desk.store, "b").fetch()
    assert_refused_everything(desk, former)


def test_who_gave_an_origin_back_can_do_nothing(desk):
    desk.report_many("abc")
    former = Owner(desk.store, "a")
    former.fetch()
    former.release()
    assert_refused_everything(desk, former)


def test_the_owner_of_a_lost_subscription_can_do_nothing_until_it_claims_again(desk):
    desk.report_many("abc")
    owner = Owner(desk.store, "a")
    owner.fetch()
    desk.store.client.delete(desk.keys.sub(GROUP))
    assert_refused_everything(desk, owner)
    assert group(desk.store, "a").claim(ORIGIN)


def test_the_same_member_owning_anew_is_not_its_former_self(desk):
    desk.report_many("abc")
    former = Owner(desk.store, "a")
    former.release()
    Owner(desk.store, "a")
    assert_refused_everything(desk, former)


def test_taking_over_from_one_that_lapsed_with_entries_in_hand_counts_a_try(desk):
    told = desk.report_many("ab")
    Owner(desk.store, "a").fetch()
    lapse(desk)
    second = Owner(desk.store, "b")
    assert (second.fetch(), second.tries) == (told, 1)
    lapse(desk)
    third = Owner(desk.store, "c")
    assert third.tries == 2
    third.ack(told[0])
    assert third.tries == 0


def test_taking_over_from_one_that_lapsed_with_empty_hands_counts_none(desk):
    told = desk.report_many("ab")
    first = Owner(desk.store, "a")
    assert first.handle_all() == told
    desk.report("c")
    lapse(desk)
    assert Owner(desk.store, "b").tries == 0


def test_taking_over_what_was_given_back_counts_none(desk):
    desk.report_many("ab")
    first = Owner(desk.store, "a")
    first.fetch()
    first.release()
    assert Owner(desk.store, "b").tries == 0


def test_renewing_counts_no_try_however_late(desk):
    desk.report_many("ab")
    owner = Owner(desk.store, "a")
    owner.fetch()
    for _ in range(3):
        lapse(desk)
        owner.renew()
    assert owner.tries == 0


def test_a_claim_that_is_sent_again_counts_one_try(desk):
    desk.report_many("ab")
    Owner(desk.store, "a").fetch()
    lapse(desk)
    assert Owner(desk.store, "b").term < Owner(desk.store, "b").term
    assert Owner(desk.store, "b").tries == 1


def test_who_asks_for_an_origin_is_told_to_its_owner(desk):
    owner = Owner(desk.store, "a")
    assert owner.claim.asked == ""
    assert group(desk.store, "b").ask(ORIGIN)
    assert owner.renew().asked == "b" == owner.seen().asked


def test_the_first_to_ask_is_heard_until_the_origin_has_a_new_owner(desk):
    owner = Owner(desk.store, "a")
    assert group(desk.store, "b").ask(ORIGIN)
    assert group(desk.store, "b").ask(ORIGIN)
    assert not group(desk.store, "c").ask(ORIGIN)
    assert owner.seen().asked == "b"
    owner.release()
    assert Owner(desk.store, "b").claim.asked == ""
    assert group(desk.store, "c").ask(ORIGIN)


def test_nobody_asks_for_what_is_free_or_its_own(desk):
    assert not group(desk.store, "b").ask(ORIGIN)
    assert not desk.store.client.exists(desk.keys.sub(GROUP))
    owner = Owner(desk.store, "a")
    assert not owner.group.ask(ORIGIN)
    owner.release()
    assert not group(desk.store, "b").ask(ORIGIN)


@pytest.mark.parametrize("seed", range(8))
def test_however_members_lapse_freeze_and_take_over_the_log_is_acknowledged_in_order(desk, seed):
    """Four members at random; each believes in its term and its entries until it is refused."""
    dice = random.Random(seed)
    names = iter(range(10_000))
    members = [group(desk.store, f"m{n}") for n in range(4)]
    terms, hands = {}, {}
    told, acked, refused = [], [], 0
    for _ in range(400):
        who = dice.choice(members)
        match dice.randrange(8):
            case 0:
                told += desk.report_many([next(names) for _ in range(dice.randrange(4))])
            case 1:
                desk.store.clock.ahead_ms += dice.randrange(LEASE_MS)
            case 2 | 3:
                if claim := who.claim(ORIGIN, term=terms.get(who, 0)):
                    if terms.get(who) != claim.term:
                        hands.pop(who, None)
                    terms[who] = claim.term
            case 4 if who in terms and not hands.get(who):
                with suppress(Refused):
                    found = who.fetch(ORIGIN, terms[who], dice.randrange(1, 5)).entries
                    hands[who] = [rev.decode() for rev, _ in found]
            case 5 | 6 if hands.get(who):
                try:
                    who.ack(ORIGIN, terms[who], hands[who][0])
                    acked.append(hands[who].pop(0))
                except Refused:
                    refused += 1
                    del hands[who], terms[who]
            case 7 if who in terms and dice.random() < 0.3:
                who.release(ORIGIN, terms[who])
    desk.store.clock.ahead_ms += LEASE_MS + 1
    acked += Owner(desk.store, "last").handle_all()
    assert acked == told, f"seed {seed}"
    assert refused > 0, f"seed {seed}: nobody was ever replaced with entries in hand"
