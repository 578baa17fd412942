"""What failed for good stands aside with its reason, within a bound, and is handled again when somebody asks."""

from __future__ import annotations

import pytest

from broker.errors import Invalid, NotFound
from broker.rules.key import Key
from broker.store.parked import ask_replay, parked
from tests.clock import StillClock
from tests.store.members import GROUP, LEASE_MS, Owner
from tests.store.readers import ORIGIN, Desk


@pytest.fixture
def desk(desk_on_each):
    desk_on_each.store.clock = StillClock(desk_on_each.store.clock)
    return desk_on_each


def shown(desk):
    return parked(desk.store, ORIGIN, GROUP)


def ask(desk, id=None):
    return ask_replay(desk.store, ORIGIN, GROUP, id)


def park_all(desk, count):
    """So many entries, all parked; their ids there."""
    desk.report_many(range(count))
    owner = Owner(desk.store)
    for rev in owner.fetch():
        owner.park(rev)
    return owner, [one.id for one in shown(desk)]


def test_a_parked_entry_stands_aside_with_its_reason_and_the_rest_flows(desk):
    told = desk.report_many("abc")
    owner = Owner(desk.store)
    owner.fetch()
    owner.fail()
    owner.fail()
    desk.store.clock = StillClock(desk.store.clock)
    owner.park(told[0], "no such file")
    [one] = shown(desk)
    assert (one.origin, one.rev, one.reason, one.tries) == (ORIGIN, told[0], "no such file", 2)
    assert one.at == desk.store.clock.now()
    assert one.entry.key(ORIGIN) == Key(ORIGIN, "ollama", "", "a")
    assert (owner.fetch(), owner.tries, owner.pending()) == (told[1:], 0, told[1:])


def test_a_parked_entry_is_kept_as_the_log_had_it(desk):
    desk.report("a", node="n1", seq=3)
    owner = Owner(desk.store)
    [(rev, flat)] = owner.group.fetch(ORIGIN, owner.term).entries
    owner.park(rev.decode())
    assert shown(desk)[0].raw == (rev, flat)


def test_parking_again_changes_nothing(desk):
    told = desk.report_many("abc")
    owner = Owner(desk.store)
    owner.fetch()
    for rev in (told[1], told[1], told[0]):
        owner.park(rev)
    assert [one.rev for one in shown(desk)] == [told[1]]
    assert owner.fetch() == told[2:]


def test_what_cannot_be_decoded_is_parked_too(desk):
    desk.store.client.xadd(desk.keys.log, {b"\xff": b"\xfe"})
    owner = Owner(desk.store)
    [rev] = owner.fetch()
    owner.park(rev, "it is no entry of ours")
    [one] = shown(desk)
    assert (one.entry, one.raw) == (None, (rev.encode(), [b"\xff", b"\xfe"]))


def test_an_entry_of_any_size_can_be_parked(desk):
    desk.store.client.xadd(desk.keys.log, {f"f{n}": n for n in range(9_000)})
    owner = Owner(desk.store)
    [rev] = owner.fetch()
    owner.park(rev)
    assert 0 < len(shown(desk)[0].fields) <= 1_000
    assert owner.fetch() == []


def test_an_entry_that_was_trimmed_meanwhile_is_parked_by_its_rev(desk):
    told = desk.report_many("ab")
    owner = Owner(desk.store)
    owner.fetch()
    desk.store.client.xdel(desk.keys.log, told[0])
    owner.park(told[0])
    [one] = shown(desk)
    assert (one.rev, one.fields, one.entry) == (told[0], [], None)


@pytest.mark.parametrize("reason", ["", "línea\n\x1b[31m", "x" * 5_000, "half \ud800"])
def test_a_reason_may_be_any_text_and_is_kept_within_a_bound(desk, reason):
    [rev] = desk.report_many("a")
    owner = Owner(desk.store)
    owner.fetch()
    owner.park(rev, reason)
    kept = shown(desk)[0].reason
    assert kept == reason[:1_000].replace("\ud800", "?")


def test_a_thousand_stay_and_the_oldest_go(store):
    desk = Desk(store)
    for at in range(0, 1_010, 101):
        desk.report_many(range(at, at + 101))
    owner = Owner(desk.store)
    told = []
    while revs := owner.fetch():
        for rev in revs:
            owner.park(rev)
        told += revs
    assert len(told) == 1_010
    assert [one.rev for one in shown(desk)] == told[10:]


def test_the_bound_can_be_lowered(desk):
    told = desk.report_many(range(9))
    owner = Owner(desk.store, parked_max=3)
    for rev in owner.fetch():
        owner.park(rev)
    assert [one.rev for one in shown(desk)] == told[6:]
    Owner(desk.store, parked_max=2).park(desk.report("a"))
    assert len(shown(desk)) == 2


def test_what_goes_for_want_of_room_is_counted(desk):
    told = desk.report_many(range(5))
    owner = Owner(desk.store, parked_max=3)
    owner.fetch()
    assert [owner.park(rev) for rev in told] == [0, 0, 0, 1, 1]
    assert owner.park(told[-1]) == 0
    assert owner.seen().evicted == 2
    owner.done(shown(desk)[0].id)
    assert owner.park(desk.report("a")) == 0
    owner = Owner(desk.store, parked_max=1)
    assert owner.park(desk.report("b")) == 3
    assert (owner.seen().evicted, len(shown(desk))) == (5, 1)


def test_so_is_what_goes_when_a_repetition_failed_under_a_lower_bound(desk):
    _, ids = park_all(desk, 4)
    ask(desk, ids[0])
    owner = Owner(desk.store, parked_max=2)
    owner.again(owner.to_replay().id)
    assert (owner.seen().evicted, len(shown(desk))) == (2, 2)


def test_nothing_parked_is_an_empty_list(desk):
    assert shown(desk) == []
    with pytest.raises(Invalid):
        parked(desk.store, ORIGIN, "a*")


def test_what_is_parked_by_one_group_is_not_by_another(desk):
    park_all(desk, 2)
    assert parked(desk.store, ORIGIN, "another") == []


@pytest.mark.parametrize("fields", [{"a": "b"}, {"a": 1, "b": 2, "c": 3, "d": 4}])
def test_a_foreign_entry_among_the_parked_harms_nobody(desk, fields):
    owner, _ = park_all(desk, 1)
    id = desk.store.client.xadd(desk.keys.parked(GROUP), fields).decode()
    [_, foreign] = shown(desk)
    assert (foreign.id, foreign.rev, foreign.entry) == (id, "", None)
    ask(desk, id)
    assert owner.to_replay().id == id
    owner.again(id)
    assert owner.to_replay() is None
    [_, parked_anew] = shown(desk)
    texts = [str(text).encode() for pair in fields.items() for text in pair]
    assert (parked_anew.rev, parked_anew.tries, parked_anew.fields) == ("", 1, texts)
    ask(desk, parked_anew.id)
    owner.done(owner.to_replay().id)
    assert len(shown(desk)) == 1


@pytest.mark.parametrize("number", [b"\xff", b"9" * 5_000, "²", "inf", "-1"])
def test_numbers_of_a_foreign_hand_count_as_none(desk, number):
    owner, [id] = park_all(desk, 1)
    [(_, fields)] = desk.store.client.xrange(desk.keys.parked(GROUP))
    desk.store.client.xdel(desk.keys.parked(GROUP), id)
    spoiled = fields | {b"parked_tries": number, b"parked_at": number}
    id = desk.store.client.xadd(desk.keys.parked(GROUP), spoiled).decode()
    [one] = shown(desk)
    assert (one.tries, one.at, one.entry.key(ORIGIN).id) == (0, 0, "0")
    ask(desk, id)
    owner.again(owner.to_replay().id)
    assert shown(desk)[0].tries == 1


def test_a_wish_that_names_nothing_is_forgotten(desk):
    owner, ids = park_all(desk, 2)
    desk.store.client.hset(desk.keys.sub(GROUP), "replay", f"x {ids[0]}")
    assert owner.to_replay().id == ids[0]
    desk.store.client.hset(desk.keys.sub(GROUP), "replay", "x")
    assert ask(desk, ids[1]) == 1
    assert owner.to_replay().id == ids[1]


# --- handled again -----------------------------------------------------------------------------------


def test_nothing_is_handled_again_unless_somebody_asks(desk):
    owner, _ = park_all(desk, 2)
    assert owner.to_replay() is None
    assert owner.seen().replay == ""


def test_all_that_is_parked_is_handled_again_in_its_order(desk):
    owner, ids = park_all(desk, 4)
    assert ask(desk) == 4
    for id in ids:
        assert owner.seen().replay
        assert owner.to_replay().id == id
        assert owner.to_replay().id == id
        owner.done(id)
    assert owner.to_replay() is None
    assert (shown(desk), owner.seen().replay) == ([], "")


def test_what_is_parked_after_the_wish_is_not_handled_again(desk):
    owner, [id] = park_all(desk, 1)
    ask(desk)
    new = desk.report("later")
    owner.fetch()
    owner.park(new)
    owner.done(id)
    assert owner.to_replay() is None


def test_one_alone_is_handled_again(desk):
    owner, ids = park_all(desk, 3)
    assert ask(desk, ids[1]) == 1
    assert owner.to_replay().id == ids[1]
    owner.done(ids[1])
    assert owner.to_replay() is None
    assert [one.id for one in shown(desk)] == [ids[0], ids[2]]


def test_wishes_add_up_and_each_is_heard_once(desk):
    owner, ids = park_all(desk, 3)
    assert [ask(desk, ids[2]), ask(desk, ids[2]), ask(desk, ids[0])] == [1, 1, 2]
    assert ask(desk) == 3
    replayed = []
    while one := owner.to_replay():
        replayed.append(one.id)
        owner.done(one.id)
    assert replayed == [ids[2], ids[0], ids[1]]


def test_what_fails_again_stays_parked_with_the_new_reason_and_is_not_tried_by_itself(desk):
    owner, ids = park_all(desk, 2)
    ask(desk, ids[0])
    raw = owner.to_replay().raw
    owner.again(ids[0], "still no such file")
    assert owner.to_replay() is None
    other, one = shown(desk)
    assert other.id == ids[1]
    assert (one.reason, one.tries, one.raw) == ("still no such file", 1, raw)
    ask(desk, one.id)
    owner.again(one.id)
    assert shown(desk)[-1].tries == 2


def test_saying_it_again_changes_nothing(desk):
    owner, ids = park_all(desk, 2)
    ask(desk)
    for _ in range(2):
        owner.again(ids[0])
    for _ in range(2):
        owner.done(ids[1])
    assert len(shown(desk)) == 1


def test_what_is_no_longer_parked_is_not_handled_again(desk):
    owner, ids = park_all(desk, 3)
    ask(desk)
    desk.store.client.xdel(desk.keys.parked(GROUP), ids[0], ids[1])
    assert owner.to_replay().id == ids[2]
    desk.store.client.delete(desk.keys.parked(GROUP))
    assert owner.to_replay() is None
    assert owner.seen().replay == ""


def test_wishes_for_what_the_bound_has_taken_are_forgotten(desk):
    owner, ids = park_all(desk, 4)
    ask(desk)
    desk.store.client.xtrim(desk.keys.parked(GROUP), maxlen=1, approximate=False)
    assert ask(desk) == 1
    assert owner.seen().replay == ids[3]


def test_whatever_a_replay_killed_its_owner_with_is_not_replayed_by_the_next(desk):
    _, ids = park_all(desk, 3)
    ask(desk)
    for holder, left in (("b", ids[1:]), ("c", ids[2:]), ("d", [])):
        desk.store.clock.ahead_ms += LEASE_MS + 1
        owner = Owner(desk.store, holder)
        assert owner.seen().replay.split() == left
        handed = owner.to_replay()
        assert (handed and handed.id) == (left[0] if left else None)
    assert owner.seen().replay == ""
    assert [one.id for one in shown(desk)] == ids


def test_an_owner_that_gives_back_leaves_the_wishes_to_the_next(desk):
    owner, ids = park_all(desk, 2)
    ask(desk)
    owner.release()
    assert Owner(desk.store, "b").to_replay().id == ids[0]


def test_asking_for_what_is_not_there_is_not_found(desk):
    owner, ids = park_all(desk, 1)
    for id in ("1-0", "*", "", "a b", ids[0] + "0"):
        with pytest.raises(NotFound):
            ask(desk, id)
    with pytest.raises(NotFound, match="another"):
        ask_replay(desk.store, ORIGIN, "another")
    assert owner.seen().replay == ""
    owner.done(ids[0])
    assert ask(desk) == 0
