"""The parent's words on an attempt where Redis hears only half: with a holder that follows a script."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from broker import Damaged, Key, Outcome, Record, Unavailable
from broker.rules.liveness import Budgets
from workers import attempt as attempts
from workers.attempt import Attempt
from workers.handoff import Names
from workers.line import Line, Phase, Wish
from workers.run import Word

NAMES = Names(Key.of("home", "echo", "", "1"), 1_000, 1)
AWAY = Unavailable("away")


class Script:
    """What happens to each word: `heard` whether it arrives, and what comes back."""

    def __init__(self):
        self.starts, self.finishes, self.holder = [], [], ""
        self.answers = []  # to starts: (heard, answer or error)

    def make(self, broker, key, *, nonce, **names):
        self.nonce = nonce
        return SimpleNamespace(
            key=key, nonce=nonce, **names, start=self.start, finish=self.finish, record=self.record
        )

    def start(self):
        heard, answer = self.answers.pop(0)
        self.starts.append(heard)
        if heard:
            self.holder = self.nonce
        if isinstance(answer, Exception):
            raise answer
        return Outcome("k", *answer)

    def record(self):
        return Record(kind="submitted", state="running", holder=self.holder, tries=1)

    def finish(self, state, **word):
        self.finishes.append((state, word["reason"], word["retryable"], word["died"]))
        return Outcome("k", "applied", "finished")


@pytest.fixture
def script(monkeypatch):
    made = Script()
    monkeypatch.setattr(attempts, "Holder", made.make)
    return made


@pytest.fixture
def impatient(monkeypatch):
    """Where nothing else ends a wait."""
    monkeypatch.setattr(attempts, "START_SECONDS_MAX", 0.3)


@pytest.fixture
def attempt(script):
    config = SimpleNamespace(budgets=Budgets())
    post = SimpleNamespace(broker=SimpleNamespace(config=config), node="n1", spec=None)
    pulse = SimpleNamespace(new_line=Line, broker=None, watch=lambda watch: None)
    return Attempt(post, pulse, "w", NAMES)


def start(attempt):
    return attempt.start(lambda: False)


def test_a_start_that_was_heard_though_its_answer_was_lost_is_a_start(script, attempt):
    script.answers = [(True, AWAY)]
    assert start(attempt)
    assert script.starts == [True]


def test_a_start_that_was_not_heard_is_said_again(script, attempt):
    script.answers = [(False, AWAY), (False, AWAY), (True, ("applied", "started"))]
    assert start(attempt)
    assert script.starts == [False, False, True]


def test_a_start_that_cannot_be_said_is_left(script, attempt, impatient, caplog):
    script.answers = [(False, AWAY)] * 10
    assert not start(attempt)
    assert "cannot start" in caplog.text


def test_a_refused_start_is_told_by_its_rule(script, attempt, caplog):
    caplog.set_level(logging.INFO)
    script.answers = [(False, ("refused", "stale_attempt"))]
    assert not start(attempt)
    assert "not started (stale_attempt)" in caplog.text


@pytest.fixture
def started(script, attempt):
    script.answers = [(True, ("applied", "started"))]
    assert start(attempt)
    return attempt


def reach(attempt, phase=Phase.RUNNING, wish=Wish.RUN):
    attempt._line.reach(phase)
    attempt._line.ask(wish)


@pytest.mark.parametrize(
    "phase,wish,cold,said",
    [
        (Phase.SAID, Wish.RUN, False, []),
        (Phase.SAID, Wish.CANCEL, True, []),
        (Phase.RUNNING, Wish.FENCE, False, []),
        (Phase.RUNNING, Wish.RUN, False, [("failed", "died", True, True)]),
        (Phase.FORKED, Wish.RUN, False, [("failed", "died", True, True)]),
        (Phase.UNSAID, Wish.RUN, False, [("failed", "unreachable", True, False)]),
        (Phase.RUNNING, Wish.CANCEL, False, [("cancelled", "", False, False)]),
        (Phase.RUNNING, Wish.CANCEL, True, [("cancelled", "", False, False)]),
        (Phase.RUNNING, Wish.TIMEOUT, False, [("failed", "timeout", True, False)]),
        (Phase.RUNNING, Wish.RUN, True, [("failed", "shutdown", True, False)]),
    ],
)
def test_what_the_parent_says_of_a_horse_that_is_gone(script, started, phase, wish, cold, said):
    reach(started, phase, wish)
    started.close(cold=cold)
    assert script.finishes == said


def test_an_end_that_cannot_be_told_is_told_until_redis_is_back(script, started, monkeypatch):
    answers = iter([AWAY, AWAY, Outcome("k", "applied", "finished")])
    said = []

    def finish(state, **word):
        said.append(state)
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(started._holder, "finish", finish)
    reach(started)
    started.close()
    assert said == ["failed"] * 3


def test_at_a_cold_shutdown_it_is_told_once(script, started, monkeypatch):
    said = []

    def finish(state, **word):
        said.append(word["patience_seconds"])
        raise AWAY

    monkeypatch.setattr(started._holder, "finish", finish)
    reach(started)
    started.close(cold=True)
    assert said == [attempts.COLD_SECONDS_MAX]


# --- a start whose answer is not known


def test_a_start_that_may_have_been_heard_is_closed(script, attempt, impatient, monkeypatch):
    script.answers = [(True, AWAY)]
    monkeypatch.setattr(attempt._holder, "record", away)
    assert not start(attempt)
    attempt.close()
    assert script.finishes == [("failed", "unreachable", True, False)]


def away():
    raise AWAY


def test_a_start_that_was_refused_is_not_closed(script, attempt):
    script.answers = [(False, ("refused", "stale_attempt"))]
    assert not start(attempt)
    attempt.close()
    assert script.finishes == []


def test_a_start_that_arrived_late_is_ours_though_the_next_one_is_refused(script, attempt):
    """The first waits in a socket of a Redis that stood still; it arrives after we looked, before the second."""

    def record_before():
        monkeypatched.undo()

    with pytest.MonkeyPatch.context() as monkeypatched:
        script.answers = [(False, AWAY), (True, ("refused", "held"))]
        monkeypatched.setattr(attempt._holder, "record", record_before)
        assert start(attempt)


@pytest.mark.parametrize("when", ["start", "record"])
def test_an_order_to_end_within_the_start_closes_it(script, attempt, monkeypatch, when):
    def end():
        raise SystemExit(1)

    script.answers = [(True, ("applied", "started"))]
    monkeypatch.setattr(attempt._holder, when, end)
    with pytest.raises(SystemExit):
        start(attempt)
    attempt.close(cold=True)
    assert script.finishes == [("failed", "shutdown", True, False)]


def test_a_record_that_is_damaged_is_given_up(script, attempt, monkeypatch, caplog):
    def damaged(*args, **named):
        raise Damaged("not a hash")

    script.answers = [(True, ("applied", "started"))]
    monkeypatch.setattr(attempt._holder, "record", damaged)
    monkeypatch.setattr(attempt._holder, "finish", damaged)
    assert not start(attempt)
    attempt.close()
    assert "cannot start: not a hash" in caplog.text
    assert "its end cannot be told: not a hash" in caplog.text


# --- a word that could not be said


def test_a_word_is_said_only_where_it_was_answered(script, started, monkeypatch):
    finish = started._holder.finish
    monkeypatch.setattr(started._holder, "finish", lambda *args, **named: away())
    started._stopped = lambda: True
    started.say(Word("failed", error="no", reason="inline"))
    assert started._line.phase == Phase.UNSAID
    monkeypatch.setattr(started._holder, "finish", finish)
    started.close()
    assert script.finishes == [("failed", "unreachable", True, False)]
    assert started._line.phase == Phase.SAID
    started.close(cold=True)
    assert len(script.finishes) == 1
