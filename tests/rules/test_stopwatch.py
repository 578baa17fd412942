"""How long jobs waited and ran: each story of a job, told change by change."""

from __future__ import annotations

import pytest

from broker.rules.key import Key
from broker.rules.record import REPORTED, SUBMITTED, Record
from broker.rules.replay import LISTED, Change
from broker.rules.stopwatch import MS_MAX, Span, Stopwatch

KEY = Key("desk", "thumb", "", "7")
T = 1_700_000_000_000


def told(*story, kind=SUBMITTED, watch=None):
    """The spans of a story of (ms after T, fields); a None for the fields is a removal."""
    watch, before, found = watch or Stopwatch(), None, []
    for after, fields in story:
        at = T + after
        record = None
        if fields is not None:
            record = Record(**({"kind": kind, "created_at": T, "rev": f"{at}-0"} | fields))
        change = Change(KEY, record, f"{at}-0", "event", "rule", "")
        found += watch.follow(change, before)
        before = record
    return found


def queued(**more):
    return {"state": "queued"} | more


def running(at, **more):
    return {"state": "running", "started_at": T + at, "tries": 1} | more


def ended(at, started=0, state="completed", **more):
    told = {"state": state, "completed_at": T + at}
    return told | ({"started_at": T + started} if started else {}) | more


def guess(at, **more):
    return {"state": "failed", "guessed_from": "running", "started_at": T + at} | more


def wait(ms):
    return Span("wait", "thumb", ms)


def run(ms, end="completed"):
    return Span("run", "thumb", ms, end)


def test_a_job_waits_from_its_submission_to_its_start_and_runs_to_its_end():
    story = [(0, queued()), (50, queued(node="a")), (80, running(80)), (200, ended(200, 80))]
    assert told(*story) == [wait(80), run(120)]


def test_a_delayed_one_waits_from_when_it_is_due():
    assert told((0, queued(due=T + 1_000)), (1_070, running(1_070, due=T + 1_000))) == [wait(70)]


def test_one_that_was_taken_back_unstarted_waits_on():
    story = [(0, queued()), (10, queued(node="a")), (900, queued(attempt=2)), (950, running(950))]
    assert told(*story) == [wait(950)]


def test_a_retry_waits_anew_from_the_end_of_the_try_or_when_it_is_due():
    story = [
        (0, queued()),
        (10, running(10)),
        (30, queued(due=T + 530, attempt=2)),
        (560, running(560, due=T + 530)),
        (600, ended(600, 560, state="failed")),
    ]
    assert told(*story) == [wait(10), run(20, "retried"), wait(30), run(40, "failed")]


def test_a_requeue_without_a_backoff_waits_from_the_requeue():
    story = [(0, queued()), (10, running(10)), (5_000, guess(10)), (15_000, queued(attempt=2)),
             (15_020, queued(node="b", attempt=2)), (15_100, running(15_100))]  # fmt: skip
    assert told(*story) == [wait(10), run(14_990, "retried"), wait(100)]


def test_a_guess_ends_nothing_and_its_clearing_starts_nothing():
    story = [(0, queued()), (10, running(10)), (5_000, guess(10)), (5_100, running(10)),
             (6_000, ended(6_000, 10))]  # fmt: skip
    assert told(*story) == [wait(10), run(5_990)]


def test_a_lost_one_ran_until_that_was_decided():
    story = [(10, running(10)), (5_000, guess(10)), (15_000, ended(15_000, 10, state="failed"))]
    assert told(*story)[1:] == [run(14_990, "failed")]


def test_one_that_is_cancelled_as_it_waits_neither_waited_nor_ran():
    assert told((0, queued()), (50, ended(50, state="cancelled"))) == []


def test_a_wish_changes_no_times():
    story = [(0, queued()), (10, running(10)), (20, running(10, desired="cancel")),
             (30, ended(30, 10, state="cancelled"))]  # fmt: skip
    assert told(*story) == [wait(10), run(20, "cancelled")]


def test_a_reported_one_is_timed_by_its_origins_clock():
    story = [(900, queued()), (950, running(40)), (990, ended(60, 40))]
    assert told(*story, kind=REPORTED) == [wait(40), run(20)]


def test_a_reported_one_without_times_is_timed_by_when_it_was_told():
    story = [(10, queued()), (40, {"state": "running"}), (70, {"state": "completed"})]
    assert told(*story, kind=REPORTED) == [wait(40)]


def test_a_move_of_a_running_one_is_no_start():
    story = [(0, queued()), (10, running(10, node="a")), (20, running(10, node="b"))]
    assert told(*story, kind=REPORTED) == [wait(10)]


def test_one_first_heard_of_when_it_runs_or_ended_is_told_by_its_own_word():
    assert told((500, running(40)), kind=REPORTED) == [wait(40)]
    assert told((500, {"state": "running"}), kind=REPORTED) == []
    assert told((500, ended(90, 40)), kind=REPORTED) == [wait(40), run(50)]
    assert told((500, ended(90)), kind=REPORTED) == []


def test_an_end_is_told_once():
    story = [(10, running(10)), (20, ended(20, 10)), (30, ended(20, 10, desired="remove"))]
    assert told(*story) == [wait(10), run(10)]


def test_a_newer_job_of_the_name_is_another():
    later = {"created_at": T + 100, "started_at": T + 130}
    story = [(0, queued()), (10, running(10)), (130, {"state": "running"} | later)]
    assert told(*story, kind=REPORTED) == [wait(10), wait(30)]


@pytest.mark.parametrize("wrong", [MS_MAX + 11, -20])
def test_times_that_cannot_be_true_spoil_nothing(wrong):
    assert told((0, queued()), (10, running(10)), (20, ended(wrong, 10)))[1:] in ([], [run(0)])


def test_what_a_new_listing_found_tells_no_times():
    watch = Stopwatch()
    queued_again = [(0, queued()), (10, running(10)), (30, queued(attempt=2))]
    told(*queued_again, watch=watch)
    record = Record(kind=SUBMITTED, state="running", created_at=T, started_at=T + 90)
    assert watch.follow(Change(KEY, record, "1-0", LISTED, "", "", True), None) == []
    assert not watch._since


@pytest.mark.parametrize("end", [None, ended(50, state="cancelled")])
def test_nothing_is_kept_of_jobs_that_are_gone(end):
    watch = Stopwatch()
    told((0, queued()), (10, running(10)), (30, queued(attempt=2)), (50, end), watch=watch)
    assert not watch._since
