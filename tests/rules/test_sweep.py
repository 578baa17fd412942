"""Whom a sweep judges, how, and from when on: each rule as a case, and the brake as a table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.rules.event import Guess, Lost, Requeue, Unplace
from broker.rules.key import Key
from broker.rules.liveness import Budgets
from broker.rules.merge import merge
from broker.rules.record import Record
from broker.rules.sweep import NEVER, Around, Standing, due_at, in_doubt, is_watched, judge
from broker.rules.verdict import Scene

T = 1_700_000_000_000
KEY = Key("desk", "llama", "", "7")
BUDGETS = Budgets(graces={"slow": 60_000})

QUEUED = Record(kind="submitted", state="queued", attempts=3, attempt=1, rev="9-0")
PLACED = replace(QUEUED, node="a", placed_at=T)
RUNNING = replace(PLACED, state="running", holder="h", tries=1, last_seen=T)
#: The guess came at T, 5 s after the last beat.
GUESS = replace(RUNNING, state="failed", guessed_from="running", guessed_at=T, last_seen=T - 5_000)
REPORTED = Record(kind="reported", state="running", node="a", last_seen=T, rev="9-0")

OFFLINE = Standing(silent_since=T - 1_000)
LEFT = Standing(silent_since=T - 1_000, has_left=True)
DRAINED, DEAD = Standing(flag="drained"), Standing(flag="dead")
DAY = 86_400_000


def around(now, **more):
    return Around(now=now, term=4, budgets=BUDGETS, **more)


def first(record, key=KEY, **more):
    """From when on it is judged, in milliseconds after T, and what is said then; nothing a millisecond before."""
    at = due_at(key, record, around(T, **more))
    if at == NEVER:
        assert judge(key, record, around(T + DAY, **more)) is None
        return None
    assert judge(key, record, around(at - 1, **more)) is None
    event = judge(key, record, around(at, **more))
    assert (event.key, event.rev, event.term) == (key, record.rev, 4)
    return at - T, event.kind


CASES = {
    # --- placed
    "a worker has 15 s to start": (PLACED, {}, (15_000, "unplace")),
    "also once only": (replace(PLACED, at_most_once=1, attempts=1), {}, (15_000, "unplace")),
    "not on a drained node": (PLACED, {"nodes": {"a": DRAINED}}, (0, "unplace")),
    "nor on a dead one": (PLACED, {"nodes": {"a": DEAD}}, (0, "unplace")),
    "nor on a silent one": (PLACED, {"nodes": {"a": OFFLINE}}, (0, "unplace")),
    "nor on one whose workers left": (PLACED, {"nodes": {"a": LEFT}}, (0, "unplace")),
    "whatever another node does": (PLACED, {"nodes": {"b": DEAD, "desk": DEAD}}, (15_000, "unplace")),
    # --- running
    "5 s after the last beat": (RUNNING, {}, (5_000, "guess")),
    "also where its node beats on": (RUNNING, {"nodes": {"a": Standing()}}, (5_000, "guess")),
    "also on a drained node": (RUNNING, {"nodes": {"a": DRAINED}}, (5_000, "guess")),
    "never earlier on a silent one": (RUNNING, {"nodes": {"a": OFFLINE}}, (5_000, "guess")),
    "3 s on a dead one": (RUNNING, {"nodes": {"a": DEAD}}, (3_000, "guess")),
    "also where it shall be cancelled": (replace(RUNNING, desired="cancel"), {}, (5_000, "guess")),
    # --- a guess
    "10 s of grace, then again": (GUESS, {}, (10_000, "requeue")),
    "no grace where the node is dead": (GUESS, {"nodes": {"a": DEAD}}, (0, "requeue")),
    "the same where it is drained": (GUESS, {"nodes": {"a": DRAINED}}, (10_000, "requeue")),
    "no tries left": (replace(GUESS, tries=3), {}, (10_000, "lost")),
    "at most once": (replace(GUESS, at_most_once=1, attempts=1), {}, (10_000, "lost")),
    "not wanted any more": (replace(GUESS, desired="cancel"), {}, (10_000, "lost")),
    "a second death": (replace(GUESS, deaths=1), {}, (10_000, "requeue")),
    "a third death": (replace(GUESS, deaths=2), {}, (10_000, "lost")),
    "last heard of as it was guessed": (replace(GUESS, last_seen=T), {}, (10_000, "requeue")),
    "outlived by a beat": (replace(GUESS, last_seen=T + 1), {}, (5_001, "guess")),
    "outlived, and its node dead": (
        replace(GUESS, last_seen=T + 1), {"nodes": {"a": DEAD}}, (3_001, "guess"),
    ),
    # --- reported
    "nobody promised anything": (REPORTED, {}, None),
    "another origin promised": (REPORTED, {"stale": {"a": 0}}, None),
    "promised: 5 min": (REPORTED, {"stale": {"desk": 0}}, (300_000, "guess")),
    "promised for so long": (REPORTED, {"stale": {"desk": 20_000}}, (20_000, "guess")),
    "a queued one too": (replace(REPORTED, state="queued"), {"stale": {"desk": 0}}, (300_000, "guess")),
    "its node is silent": (REPORTED, {"nodes": {"a": OFFLINE}}, (5_000, "guess")),
    "its origin is silent": (REPORTED, {"nodes": {"desk": OFFLINE}}, (5_000, "guess")),
    "whoever is silent first": (REPORTED, {"nodes": {"a": OFFLINE}, "stale": {"desk": 1_000}}, (1_000, "guess")),
    "its node is drained": (REPORTED, {"nodes": {"a": DRAINED}}, None),
    "its node is dead": (REPORTED, {"nodes": {"a": DEAD}}, (3_000, "guess")),
    "its node's workers ended in good order": (REPORTED, {"nodes": {"a": LEFT}}, None),
    "heard of when its node was silent for long": (
        REPORTED, {"nodes": {"a": Standing(silent_since=T - 5_001)}}, (300_000, "guess"),
    ),
    "and its origin promised more": (
        REPORTED, {"nodes": {"a": Standing(silent_since=T - 5_001)}, "stale": {"desk": 20_000}}, (20_000, "guess"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_silence_has_to_last_and_then_one_word_is_said(name):
    record, more, expected = CASES[name]
    assert first(record, **more) == expected


@pytest.mark.parametrize(
    "record",
    [
        QUEUED,
        replace(RUNNING, state="completed"),
        replace(RUNNING, state="failed"),
        replace(REPORTED, state="completed"),
        replace(REPORTED, state="failed", guessed_from="running", guessed_at=T),
    ],
    ids=["waiting", "completed", "failed", "reported_completed", "reported_guess"],
)
def test_nobody_is_watched_of_whom_a_sweep_has_nothing_to_say(record):
    everything = around(T + DAY, nodes={"a": DEAD, "desk": DEAD}, stale={"desk": 1})
    assert not is_watched(record)
    assert judge(KEY, record, everything) is None


def test_an_engine_may_have_a_grace_of_its_own():
    assert first(GUESS, key=KEY._replace(engine="slow")) == (60_000, "requeue")
    assert first(RUNNING, key=KEY._replace(engine="slow")) == (5_000, "guess")


@pytest.mark.parametrize(
    "record,more,error",
    [
        (RUNNING, {}, "node a went offline"),
        (REPORTED, {"nodes": {"a": OFFLINE}}, "node a went offline"),
        (REPORTED, {"nodes": {"desk": OFFLINE}, "stale": {"desk": 0}}, "node desk went offline"),
        (REPORTED, {"stale": {"desk": 0}}, "stopped reporting"),
        (REPORTED, {"nodes": {"a": LEFT}, "stale": {"desk": 0}}, "stopped reporting"),
    ],
)
def test_a_guess_says_by_what(record, more, error):
    event = judge(KEY, record, around(T + 300_000, **more))
    assert (event.error, event.last_seen) == (error, T)


def test_its_text_fits_into_a_small_record():
    node = "n" * 63
    event = judge(KEY, replace(RUNNING, node=node), around(T + 5_000))
    assert event.error == f"node {node} went offline"[:64]


def test_each_word_has_a_mark_of_its_own_that_a_re_send_shares():
    words = [
        judge(KEY, record, around(T + 60_000))
        for record in (
            RUNNING,
            replace(RUNNING, last_seen=T + 1),
            replace(RUNNING, rev="9-1"),
            GUESS,
            replace(GUESS, tries=3),
            PLACED,
        )
    ]
    assert len({word.event_id for word in words}) == len(words)
    assert judge(KEY, RUNNING, around(T + 60_000)) == words[0]
    later = replace(around(T + 60_000), term=5)
    assert judge(KEY, RUNNING, later).event_id != words[0].event_id


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name][2]])
def test_the_merge_takes_each_judgement_of_what_still_stands(name):
    """Both have one rule for what may run again: the one must never offer what the other refuses."""
    record, more, (after, _) = CASES[name]
    verdict = merge(record, judge(KEY, record, around(T + after, **more)), Scene(now=T + after))
    assert verdict.outcome == "applied"


@pytest.mark.parametrize("event", [Guess, Requeue, Lost, Unplace])
def test_all_of_it_is_said_as_the_sweeper(event):
    assert event.role == "sweeper"


# --- the brake --------------------------------------------------------------------------------------------------

BEATS, GONE = 500, 6_000


FLEETS = {
    "nobody": ([], False),
    "all beat": ([BEATS] * 9, False),
    "one of four": ([BEATS] * 3 + [GONE], False),
    "half of four": ([BEATS] * 2 + [GONE] * 2, False),
    "most of four": ([BEATS] + [GONE] * 3, True),
    "all of four": ([GONE] * 4, True),
    "all of three": ([GONE] * 3, False),
    "most of three": ([BEATS] + [GONE] * 2, False),
    "most of a hundred": ([BEATS] * 49 + [GONE] * 51, True),
    "half of a hundred": ([BEATS] * 50 + [GONE] * 50, False),
    "before anybody is guessed": ([BEATS] + [3_001] * 3, True),
    "not even late": ([3_000] * 4, False),
    "within one budget": ([BEATS, GONE, GONE + 2_500, GONE + 5_000], True),
    "one after another": ([BEATS, GONE, GONE + 5_001, GONE + 10_002], False),
    "replaced, one after another": ([BEATS] * 4 + [GONE + n * 3_000 for n in range(15)], False),
    "the most that fell together": ([BEATS] * 2 + [GONE + 20_000] * 3 + [GONE, GONE + 9_000], True),
    "nearly for as long as the brake": ([BEATS] + [64_999] * 3, True),
    "for longer": ([BEATS] + [65_000] * 3, False),
    "those long gone do not count": ([BEATS] * 2 + [GONE] + [70_000] * 50, False),
}  # fmt: skip


@pytest.mark.parametrize("name", FLEETS)
def test_nobody_is_judged_while_most_of_a_fleet_is_silent_together(name):
    silences, doubt = FLEETS[name]
    assert in_doubt(silences, BUDGETS) is doubt
    assert in_doubt(reversed(silences), BUDGETS) is doubt


@pytest.mark.parametrize(
    "beaten_at,silent_ms,has_workers,stands",
    [
        (T, 4_999, True, Standing()),
        (T, 5_000, True, Standing(silent_since=T)),
        (T, 5_000, False, Standing(silent_since=T, has_left=True)),
        (T, 0, False, Standing()),
        (0, T, False, Standing()),  # known by nothing but a flag: nobody heard it fall silent
    ],
)
def test_how_a_node_stands_changes_only_when_it_falls_silent(
    beaten_at, silent_ms, has_workers, stands
):
    assert Standing.of(beaten_at, silent_ms, has_workers, "", BUDGETS) == stands
    flagged = Standing.of(beaten_at, silent_ms, has_workers, "dead", BUDGETS)
    assert flagged == stands._replace(flag="dead")
    assert flagged.is_offline
