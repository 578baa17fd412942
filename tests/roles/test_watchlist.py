"""What a sweeper's list holds of the jobs, and when it gives them out: fed with changes by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.roles.watchlist import SLACK, Watchlist
from broker.rules.key import Key
from broker.rules.liveness import Budgets
from broker.rules.record import Record
from broker.rules.replay import Change
from broker.rules.sweep import Around, Standing

T = 1_700_000_000_000
KEY, OTHER = Key("desk", "echo", "", "7"), Key("desk", "echo", "", "8")
AROUND = Around(now=T, term=1, budgets=Budgets())

PLACED = Record(
    kind="submitted", state="queued", node="a", created_at=5, attempt=1, placed_at=T, rev="2-0"
)
RUNNING = replace(PLACED, state="running", holder="h", last_seen=T, rev="3-0")
REPORTED = Record(kind="reported", state="running", node="a", created_at=5, last_seen=T, rev="2-0")


def told(record, rev=None, key=KEY, **more):
    return Change(key, record, rev or record.rev, "said", "rule", "who", **more)


def due(jobs, after_ms):
    return jobs.take_due(T + after_ms, 10, T + 10**6)


@pytest.fixture
def jobs():
    return Watchlist()


def test_a_job_is_given_out_once_when_it_is_due_and_again_when_that_was_said(jobs):
    jobs.follow(told(RUNNING), AROUND)
    assert due(jobs, 4_999) == []
    assert jobs.take_due(T + 5_000, 10, T + 6_000) == [KEY]
    assert due(jobs, 5_999) == []
    assert due(jobs, 6_000) == [KEY]


def test_the_earliest_come_first_and_no_more_than_were_asked_for(jobs):
    for n in range(5):
        key = KEY._replace(id=str(n))
        jobs.follow(told(replace(RUNNING, last_seen=T - n), key=key), AROUND)
    assert [key.id for key in jobs.take_due(T + 5_000, 2, T + 10**6)] == ["4", "3"]


def test_what_the_log_tells_late_of_a_job_that_was_read_since_is_passed_over(jobs):
    newer = replace(RUNNING, created_at=6, rev="10-0", last_seen=T + 60_000)
    jobs.put(KEY, newer, AROUND)
    jobs.follow(told(RUNNING, "9-0"), AROUND)
    jobs.follow(told(None, "9-1"), AROUND)
    assert due(jobs, 64_999) == []
    assert due(jobs, 65_000) == [KEY]
    assert not jobs.given_up


def test_a_new_listing_is_believed_whatever_its_revs(jobs):
    jobs.follow(told(replace(RUNNING, rev="10-0")), AROUND)
    jobs.follow(told(PLACED, "2-0", synthesized=True), AROUND)
    assert due(jobs, 14_999) == []
    assert due(jobs, 15_000) == [KEY]


@pytest.mark.parametrize(
    "record",
    [
        None,
        replace(RUNNING, state="completed", rev="4-0"),
        replace(PLACED, node="", attempt=2, rev="4-0"),
    ],
    ids=["gone", "ended", "waiting"],
)
def test_nothing_is_held_of_a_job_that_is_not_watched_any_more(jobs, record):
    jobs.follow(told(RUNNING), AROUND)
    jobs.follow(told(record, "4-0"), AROUND)
    assert (len(jobs), list(jobs.names), due(jobs, 10**6)) == (0, [], [])


@pytest.mark.parametrize(
    "after,is_given_up",
    {
        "started": (RUNNING, False),
        "guessed": (replace(RUNNING, state="failed", guessed_from="running", rev="4-0"), False),
        "said how it ended": (replace(RUNNING, state="completed", rev="4-0"), False),
        "requeued": (replace(PLACED, node="", attempt=2, rev="4-0"), True),
        "cancelled while it waited": (
            replace(PLACED, state="cancelled", attempt=2, rev="4-0"),
            True,
        ),
        "removed": (None, True),
        "a new job of its name": (replace(PLACED, created_at=6, rev="4-0"), True),
    }.values(),
)
def test_an_attempt_is_given_up_where_nobody_said_how_it_ended(jobs, after, is_given_up):
    jobs.follow(told(PLACED), AROUND)
    jobs.follow(told(after, "4-0"), AROUND)
    assert list(jobs.given_up) == ([(KEY, PLACED)] if is_given_up else [])


def test_what_others_run_is_never_an_attempt_of_ours(jobs):
    jobs.follow(told(REPORTED), AROUND)
    jobs.follow(told(None, "4-0"), AROUND)
    assert not jobs.given_up


def test_a_node_that_changes_changes_what_its_jobs_wait_for(jobs):
    jobs.follow(told(REPORTED), AROUND)
    jobs.follow(told(replace(REPORTED, node="b"), key=OTHER), AROUND)
    assert set(jobs.names) == {"a", "b", "desk"}
    assert due(jobs, 10**9) == []

    offline = replace(AROUND, nodes={"a": Standing(silent_since=T)})
    jobs.review(["a", "elsewhere"], offline)
    assert due(jobs, 5_000) == [KEY]
    jobs.review(["a"], AROUND)  # it is back
    assert due(jobs, 10**9) == []


def test_an_origin_that_promises_to_speak_makes_its_jobs_wait_for_its_word(jobs):
    jobs.follow(told(REPORTED), AROUND)
    jobs.review(["desk"], replace(AROUND, stale={"desk": 9_000}))
    assert due(jobs, 8_999) == []
    assert due(jobs, 9_000) == [KEY]


def test_a_job_that_changes_all_the_time_takes_no_more_room_than_any_other(jobs):
    for n in range(10 * SLACK):
        jobs.put(KEY, replace(RUNNING, last_seen=T + n), AROUND)
    assert len(jobs._queue) <= SLACK + 3
    assert due(jobs, 10 * SLACK + 4_998) == []
    assert due(jobs, 10 * SLACK + 4_999) == [KEY]
