"""What a list shows, what its follower is told, and what one that comes back has missed."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.rules.filter import Filter, concerned
from broker.rules.history import HISTORY_MAX, History, Step
from broker.rules.key import Key
from broker.rules.record import REPORTED, Record
from broker.rules.replay import Change

A = Key("desk", "ollama", "", "a")
B = Key("shelf", "process", "", "b")


def record(state="running", node="n1", **more):
    return Record(kind=REPORTED, state=state, node=node, created_at=1, rev="1-0", **more)


def step(key, before, after):
    return Step(Change(key, after, "1-0", "test", "test", ""), before)


class TestFits:
    def test_whoever_asks_nothing_is_shown_all_that_is_there(self):
        assert Filter().fits(A, record())
        assert not Filter().fits(A, None)

    @pytest.mark.parametrize(
        "asked, fits",
        [
            ({"states": {"running", "queued"}}, True),
            ({"states": ["queued"]}, False),
            ({"states": []}, False),
            ({"node": "n1"}, True),
            ({"node": "n2"}, False),
            ({"node": ""}, False),
            ({"engine": "ollama"}, True),
            ({"engine": "process"}, False),
            ({"origin": "desk"}, True),
            ({"origin": "shelf"}, False),
            ({"origin": "desk", "engine": "ollama", "node": "n1", "states": {"running"}}, True),
            ({"origin": "desk", "engine": "ollama", "node": "n1", "states": {"failed"}}, False),
            ({"origin": "desk", "engine": "ollama", "node": "n2", "states": {"running"}}, False),
        ],
    )
    def test_each_question_that_is_asked_counts(self, asked, fits):
        assert Filter(**asked).fits(A, record()) == fits

    def test_a_guess_fits_by_the_state_that_it_replaced(self):
        guess = record("failed", guessed_from="running", guessed_at=5)
        assert Filter(states={"running"}).fits(A, guess)
        assert not Filter(states={"failed"}).fits(A, guess)

    def test_a_job_that_waits_without_a_node_is_found_by_the_empty_one(self):
        assert Filter(node="").fits(A, record("queued", node=""))

    def test_two_that_ask_the_same_are_one_question(self):
        assert Filter(states=["running", "queued"]) == Filter(states={"queued", "running"})
        assert len({Filter(states=["queued"]), Filter(states=("queued",)), Filter()}) == 2
        assert Filter(states="queued") == Filter(states={"queued"})


class TestConcerned:
    FILTER = Filter(states={"running"})

    @pytest.mark.parametrize(
        "before, after, told",
        [
            (None, record(), True),
            (record("queued"), record(), True),
            (record(), record("completed"), True),  # out of the filter
            (record(), None, True),  # removed
            (record(), record(node="n2"), True),
            (record("queued"), record("failed"), False),
            (record("queued"), None, False),
            (None, record("queued"), False),
            (None, None, False),
        ],
    )
    def test_of_what_fits_before_or_after(self, before, after, told):
        assert (A in concerned(self.FILTER, [step(A, before, after)])) == told

    def test_whoever_asks_nothing_is_told_of_all(self):
        assert set(concerned(None, [step(A, None, None), step(B, None, record())])) == {A, B}

    def test_of_two_steps_together_it_is_enough_that_one_concerns(self):
        """Out of the filter, and then gone: only the first one concerns, and the second one is told."""
        steps = [step(A, record(), record("failed")), step(A, record("failed"), None)]
        assert concerned(self.FILTER, steps) == {A: steps[1].change}

    def test_what_happened_last_stands_last(self):
        steps = [step(A, None, record()), step(B, None, record()), step(A, record(), None)]
        for wanted in (None, self.FILTER):
            told = [steps[1].change, steps[2].change]
            assert list(concerned(wanted, steps).values()) == told

    def test_one_job_says_nothing_of_another(self):
        steps = [step(A, None, record()), step(B, None, record("queued"))]
        assert set(concerned(self.FILTER, steps)) == {A}


class TestHistory:
    def test_it_tells_what_followed_a_place(self):
        history = History()
        assert history.number == 0
        assert history.since(0) == []
        steps = [step(A, None, record()), step(A, record(), None), step(B, None, record())]
        history.add(steps)
        assert history.number == 3
        assert [history.since(number) for number in range(4)] == [
            steps, steps[1:], steps[2:], []
        ]  # fmt: skip

    @pytest.mark.parametrize("number", [-1, 4, 10**15])
    def test_a_place_that_never_was_is_not_held(self, number):
        history = History()
        history.add([step(A, None, None)] * 3)
        assert history.since(number) is None

    def test_it_is_bounded_by_count(self):
        history = History()
        history.add([step(A, None, None)] * (HISTORY_MAX + 7))
        assert len(history) == HISTORY_MAX
        assert history.since(6) is None
        assert len(history.since(7)) == HISTORY_MAX

    @given(st.integers(0, 9), st.lists(st.integers(0, 5)))
    def test_it_holds_the_newest_and_never_a_part(self, size, batches):
        history, told = History(size), []
        numbers = itertools.count()
        for length in batches:
            batch = [step(A, None, record(node=str(next(numbers)))) for _ in range(length)]
            history.add(batch)
            told += batch
            for place in range(len(told) + 2):
                missed = told[place:] if len(told) - size <= place <= len(told) else None
                assert history.since(place) == missed
