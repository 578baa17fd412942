"""What the records add up to, each figure as a case."""

from __future__ import annotations

import pytest

from broker.rules.census import FAILED_MS, MINUTE_MS, take
from broker.rules.key import Key
from broker.rules.record import REPORTED, SUBMITTED, Record, clip

NOW = 1_700_000_000_000


def census(*jobs):
    """Of jobs as (engine, fields), submitted and created an hour ago unless they say otherwise."""
    records = {}
    for n, (engine, fields) in enumerate(jobs):
        told = {"kind": SUBMITTED, "created_at": NOW - 3_600_000, "rev": f"{NOW - 3_600_000}-0"}
        records[Key("desk", engine, "", str(n))] = Record(**(told | fields))
    return take(records, NOW)


QUEUED = {"state": "queued"}
PLACED = {"state": "queued", "node": "a"}
RUNNING = {"state": "running", "node": "a", "started_at": NOW - 5, "tries": 1}
GUESS = {"state": "failed", "guessed_from": "running", "node": "a", "tries": 1}


def ended(ago_ms, state="completed", **more):
    return {"state": state, "completed_at": NOW - ago_ms, "rev": f"{NOW - ago_ms}-3"} | more


def test_a_guess_counts_as_what_it_replaced():
    found = census(("e", GUESS), ("e", RUNNING))
    assert found.jobs == {("running", "e", "a"): 2}
    assert (found.by_state(), found.guesses) == ({"running": 2}, 1)


def test_wanted_is_what_is_to_run_now():
    found = census(
        ("e", QUEUED), ("e", PLACED), ("e", RUNNING), ("e", GUESS), ("f", QUEUED),
        ("e", QUEUED | {"due": NOW + 1}),
        ("e", RUNNING | {"desired": "cancel"}), ("e", RUNNING | {"desired": "remove"}),
        ("e", ended(5)), ("e", RUNNING | {"kind": REPORTED}),
    )  # fmt: skip
    assert found.wanted == {"e": 4, "f": 1}


def test_occupied_is_what_holds_a_slot_whatever_is_wished():
    found = census(
        ("e", QUEUED), ("e", PLACED), ("e", RUNNING), ("e", GUESS), ("e", ended(5, node="a")),
        ("e", RUNNING | {"desired": "cancel"}), ("e", RUNNING | {"kind": REPORTED}),
    )  # fmt: skip
    assert found.occupied == {"e": 4}
    assert found.placed == 1


def test_ready_and_delayed_are_apart():
    found = census(("e", QUEUED), ("e", QUEUED | {"due": NOW}), ("e", QUEUED | {"due": NOW + 1}),
                   ("e", QUEUED | {"kind": REPORTED}))  # fmt: skip
    assert (found.ready, found.delayed) == (2, 1)


def waits(**fields):
    return census(("e", QUEUED | fields)).oldest_ready_ms


def test_the_oldest_waits_since_it_may_have_started():
    assert waits() == 3_600_000
    assert waits(due=NOW - 10) == 10
    assert waits(created_at=NOW + 50) == 0
    # It was placed and taken back, and never ran: it waits since before.
    assert waits(attempt=3, rev=f"{NOW - 7}-0", rule="unplaced") == 3_600_000
    # It ran, and was queued again.
    assert waits(tries=1, rev=f"{NOW - 7}-0", rule="requeued") == 7
    assert waits(tries=1, rev=f"{NOW - 7}-0", due=NOW - 2) == 2
    assert census(("e", RUNNING)).oldest_ready_ms is None


def test_rates_are_those_of_the_last_minute_by_when_the_end_was_accepted():
    wrong_clock = {"completed_at": NOW + 10**9}
    found = census(
        ("e", ended(1)), ("e", ended(MINUTE_MS - 1, **wrong_clock)), ("e", ended(MINUTE_MS)),
        ("e", QUEUED | {"created_at": NOW - 1}), ("e", QUEUED | {"created_at": NOW + 1}),
    )  # fmt: skip
    assert (found.ended, found.created) == (2, 1)


def test_the_share_of_failed_ones_is_that_of_five_minutes():
    assert census(("e", RUNNING)).failed_share is None
    found = census(("e", ended(1)), ("e", ended(1, "failed")), ("e", ended(1, "cancelled")),
                   ("e", ended(FAILED_MS - 1, "failed")), ("e", ended(FAILED_MS, "failed")))  # fmt: skip
    assert found.failed_share == 0.5


def test_failures_are_grouped_and_the_newest_of_each_is_named():
    found = census(
        ("e", ended(50, "failed", error="timed out after 3 s")),
        ("f", ended(20, "failed", error="timed out after 17 s")),
        ("e", ended(30, "failed", error="timed out after 4 s")),
        ("e", ended(10, "failed", reason="lost")),
        ("e", ended(5, "cancelled", error="not told")),
        ("e", GUESS | {"error": "node a went offline"}),
    )  # fmt: skip
    [first, second] = found.worst(20)
    assert (first.error, first.count, first.newest_key.engine) == ("timed out after # s", 3, "f")
    assert (first.newest_at, second.error, second.count) == (NOW - 20, "lost", 1)
    assert [one.error for one in found.worst(1)] == [first.error]


@pytest.mark.parametrize(
    "error, cut",
    [
        ("x" * 60, False),
        ("x" * 61, True),
        ("x" * 100, True),
        ("\N{GRINNING FACE}" * 16, True),
        ("x" + "\N{GRINNING FACE}" * 16, True),  # the last one had no room
        ("\N{GRINNING FACE}" * 15, False),
        ("", False),
    ],
)
def test_an_error_that_fills_its_place_in_the_record_may_be_cut(error, cut):
    found = census(("e", ended(5, "failed", error=clip(error))))
    assert [one.cut for one in found.worst(20)] == [cut]


def test_a_cut_error_counts_with_its_like_and_marks_them_all():
    """What differs in length is most often the part that is left out."""
    found = census(
        ("e", ended(50, "failed", error=clip("no such file: '/mnt/" + "x" * 80 + "'"))),
        ("e", ended(10, "failed", error="no such file: '/mnt/x'")),
    )
    [failure] = found.worst(20)
    assert (failure.error, failure.count, failure.cut) == ("no such file: <text>", 2, True)
