"""One leader at a time, each with a higher term than all before."""

from __future__ import annotations

import pytest

from broker.errors import Damaged
from broker.store.lease import Lease, raise_term
from tests.clock import StillClock
from tests.store.readers import until

LONG_MS = 60_000


def test_only_one_holds_the_lease(store):
    first, second = (Lease(store, "sweeper", name, LONG_MS) for name in ("a", "b"))

    assert first.hold() > 0
    assert second.hold() == 0


def test_a_role_has_its_own_lease(store):
    assert Lease(store, "sweeper", "a", LONG_MS).hold() > 0
    assert Lease(store, "janitor", "b", LONG_MS).hold() > 0


def test_the_holder_renews_and_keeps_its_term(store):
    lease = Lease(store, "sweeper", "a", 2 * LONG_MS)
    term = lease.hold()
    store.client.pexpire(store.keys.leader("sweeper"), LONG_MS)

    assert lease.hold() == term
    assert store.client.pttl(store.keys.leader("sweeper")) > LONG_MS


def test_a_new_lead_has_a_higher_term_and_at_least_redis_time(store):
    first, second = (Lease(store, "sweeper", name, LONG_MS) for name in ("a", "b"))
    store.clock = StillClock(store.clock)
    terms = []
    for _ in range(3):
        for lease in (first, second):
            terms.append(lease.hold())
            lease.release()

    assert terms == sorted(set(terms))
    assert terms[0] >= store.clock.now()


def test_a_clock_that_steps_back_does_not_lower_the_term(store):
    ahead = store.clock.now() + 86_400_000
    store.client.set(store.keys.term("sweeper"), ahead)

    assert Lease(store, "sweeper", "a", LONG_MS).hold() == ahead + 1


def test_a_lapsed_lease_is_taken_by_another_one_and_not_renewed_by_the_old(store):
    first, second = (Lease(store, "sweeper", name, 20) for name in ("a", "b"))
    old = first.hold()
    new = until(second.hold)

    assert new > old
    assert first.hold() == 0 or first.hold() > new


def test_only_the_holder_gives_it_back(store):
    first, second = (Lease(store, "sweeper", name, LONG_MS) for name in ("a", "b"))
    first.hold()
    second.release()
    assert second.hold() == 0

    first.release()
    assert second.hold() > 0


def test_the_lease_expires_and_the_term_never_does(store):
    Lease(store, "sweeper", "a", LONG_MS).hold()

    assert 0 < store.client.pttl(store.keys.leader("sweeper")) <= LONG_MS
    assert store.client.pttl(store.keys.term("sweeper")) == -1
    assert store.client.get(store.keys.leader("sweeper")) == b"a"


def test_a_holder_whose_term_was_lost_gets_a_new_one(store):
    lease = Lease(store, "sweeper", "a", LONG_MS)
    term = lease.hold()
    store.client.delete(store.keys.term("sweeper"))
    until(lambda: store.clock.now() > term)

    assert lease.hold() > term


@pytest.mark.parametrize("held", [True, False])
def test_a_term_that_is_no_number_is_replaced_by_a_new_one(store, held):
    lease = Lease(store, "sweeper", "a", LONG_MS)
    if held:
        lease.hold()
    store.client.set(store.keys.term("sweeper"), "x")
    assert lease.hold() >= store.clock.now() - LONG_MS
    assert lease.hold() == int(store.client.get(store.keys.term("sweeper")))


def test_a_key_of_another_type_is_told_and_left_alone(store):
    store.client.hset(store.keys.term("sweeper"), "a", "b")

    with pytest.raises(Damaged):
        Lease(store, "sweeper", "a", LONG_MS).hold()
    assert not store.client.exists(store.keys.leader("sweeper"))


def test_a_full_redis_can_be_led_for_who_leads_makes_room(store):
    first, second = (Lease(store, "janitor", name, LONG_MS) for name in ("a", "b"))
    store.client.config_set("maxmemory", 1)
    try:
        term = first.hold()
        assert first.hold() == term > 0
        assert second.hold() == 0
        first.release()
        assert second.hold() > term
        raise_term(store, "node-a", "janitor", term)
        assert store.client.hget(store.keys.of("node-a").meta, "term:janitor") == b"%d" % term
    finally:
        store.client.config_set("maxmemory", 0)


def test_an_origin_keeps_the_highest_term(store):
    meta = store.keys.of("node-a").meta
    for term, kept in ((7, b"7"), (12, b"12"), (9, b"12")):
        raise_term(store, "node-a", "sweeper", term)
        assert store.client.hget(meta, "term:sweeper") == kept
