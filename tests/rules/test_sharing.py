"""Members of a group that share origins: all are owned, evenly, and then nothing moves."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.rules.sharing import Plan, Stand, share


def test_who_is_alone_takes_all_that_is_free():
    assert share("a", {"x": Stand(), "y": Stand()}) == Plan(take=["x", "y"])


def test_what_another_owns_is_left_alone():
    assert share("a", {"x": Stand("b")}) == Plan()


def test_who_owns_two_fewer_asks_for_one():
    plan = share("a", {"x": Stand("b"), "y": Stand("b")})
    assert plan.ask in ("x", "y")
    assert (plan.take, plan.give, plan.awaits) == ([], [], True)


def test_who_owns_one_fewer_asks_for_none():
    assert share("a", {"x": Stand("a"), "y": Stand("b"), "z": Stand("b")}) == Plan()


def test_who_asked_already_waits():
    assert share("a", {"x": Stand("b", "a"), "y": Stand("b")}) == Plan(awaits=True)


def test_it_is_the_one_with_the_most_that_is_asked():
    stands = {"v": Stand("b"), "w": Stand("b")} | {name: Stand("c") for name in "xyz"}
    assert share("a", stands).ask in ("x", "y", "z")


def test_what_somebody_else_asked_for_is_not_asked_for_again():
    stands = {"x": Stand("b", "c"), "y": Stand("b"), "z": Stand("b", "c")}
    assert share("a", stands).ask == "y"


def test_who_was_asked_gives_one():
    assert share("b", {"x": Stand("b", "a"), "y": Stand("b")}).give == ["x"]


def test_who_was_asked_keeps_what_it_has_where_the_other_has_as_many_by_now():
    assert share("b", {"x": Stand("b", "a"), "z": Stand("a")}).give == []


def test_of_several_that_are_asked_for_only_so_many_are_given_as_make_it_even():
    stands = {name: Stand("b", "a") for name in "uvwxyz"}
    assert len(share("b", stands).give) == 3


def test_what_was_given_back_is_left_to_the_one_that_asked():
    stands = {"x": Stand("", "a"), "y": Stand("b"), "z": Stand("c")}
    assert share("a", stands).take == ["x"]
    assert share("b", stands).take == []
    assert share("c", stands).take == []


def test_it_is_taken_by_anybody_where_that_one_does_not_come():
    assert share("b", {"x": Stand("", "a")}, waited={"x"}).take == ["x"]


@pytest.mark.parametrize("asker", ["x1", "x2", "x3"])
def test_members_do_not_all_ask_for_the_same(asker):
    stands = {f"o{number}": Stand("b") for number in range(50)}
    others = {share(f"x{number}", stands).ask for number in range(4, 40)}
    assert len(others) > 10
    assert share(asker, stands).ask == share(asker, stands).ask


class Group:
    """Origins and the members that look at them, one after the other, in whatever order."""

    def __init__(self, origins):
        self.stands = {f"o{number}": Stand() for number in range(origins)}
        self.free_since = {}
        self.moves = 0

    def look(self, me, round):
        waited = {origin for origin, since in self.free_since.items() if round - since >= 3}
        plan = share(me, self.stands, waited)
        for origin in plan.take:
            self.stands[origin] = Stand(me)
            self.free_since.pop(origin, None)
            self.moves += 1
        for origin in plan.give:
            self.stands[origin] = Stand("", self.stands[origin].asked)
            self.free_since[origin] = round
            self.moves += 1
        if plan.ask:
            self.stands[plan.ask] = self.stands[plan.ask]._replace(asked=me)
            self.moves += 1

    def leave(self, me):
        for origin, stand in self.stands.items():
            if stand.owner == me:
                self.stands[origin] = Stand("", stand.asked)
                self.free_since[origin] = 0

    def owned(self, members):
        counts = Counter(stand.owner for stand in self.stands.values())
        return [counts[member] for member in members]


@given(st.data())
def test_origins_end_up_even_and_then_nothing_moves(data):
    members = [f"m{number}" for number in range(data.draw(st.integers(1, 6), label="members"))]
    group = Group(data.draw(st.integers(0, 20), label="origins"))
    late = data.draw(st.integers(0, len(members) - 1), label="present from the start")
    dead = data.draw(st.integers(0, len(members) - 1), label="die")

    def settle(present, rounds=60):
        for round in range(rounds):
            before = group.moves
            for member in data.draw(st.permutations(present)) if round < 5 else present:
                group.look(member, round)
            if group.moves == before and not group.free_since:
                return  # nobody moves, and no time that passes lets anybody move: so it stays

    settle(members[:late] or members[:1])
    settle(members)
    for member in members[:dead]:
        group.leave(member)
    group.free_since = dict.fromkeys(group.free_since, 0)
    left = members[dead:]
    settle(left)
    counts = group.owned(left)
    assert sum(counts) == len(group.stands)
    assert max(counts) - min(counts) <= 1
    moves = group.moves
    settle(left, rounds=10)
    assert group.moves == moves
