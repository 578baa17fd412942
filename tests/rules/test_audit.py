from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.rules.audit import (
    DRIFT,
    GHOST,
    KINDS,
    MISSING,
    NOTHING,
    RELIST,
    REMOVE,
    RESTORE,
    STUCK,
    UNLIST,
    Books,
    Finding,
    Look,
    judge,
)
from broker.rules.entry import Entry
from broker.rules.index import PRIORITY_STEP
from broker.rules.key import Key
from broker.rules.ledger import Ledger
from broker.rules.liveness import Budgets
from broker.rules.record import Record
from broker.rules.replay import fold
from broker.rules.told import Told, Word
from tests.rules.test_replay import EVENTS, KEYS, leader_and_worker, logged

DESK = "desk"
JOB = "ollama//7"
NOW = 1_000_000
BUDGETS = Budgets(graces={"slow": 50_000})
LIVE = Record(kind="reported", state="running", created_at=1_000, rev="5-0")
DONE = replace(LIVE, state="completed", completed_at=2_000)
OURS = replace(LIVE, kind="submitted", last_seen=NOW, attempt=1)
READY = replace(OURS, state="queued")
#: Where each is listed when all is well.
HOME = {
    LIVE: {"live": 1_000},
    DONE: {"done": 2_000},
    OURS: {"live": 1_000},
    READY: {"live": 1_000, "ready": 1_000},
}


def books(begin="1-0", now=NOW):
    return Books(origin=DESK, begin=begin, now=now, budgets=BUDGETS)


def found(record, word=None, *, job=JOB, begin="1-0", now=NOW, **look):
    """Kind and repair of what is wrong; `word` is what the log tells, "same" for the record itself."""
    told = Word("5-0", record) if word == "same" else word
    finding = judge(job, Look(record=record, **look), told, books(begin, now))
    return finding and (finding.kind, finding.what)


@pytest.mark.parametrize("record", HOME, ids=["live", "done", "running", "ready"])
def test_a_record_that_the_log_tells_and_that_is_listed_as_it_should_be_is_fine(record):
    assert found(record, "same", **HOME[record]) is None


def test_what_nobody_tells_and_nothing_lists_is_fine():
    assert found(None, listed=False) is None
    assert found(None, Word("9-0", None), listed=False) is None


def test_a_finding_says_all_that_its_repair_needs():
    word = Word("9-0", DONE)
    finding = judge(JOB, Look(record=LIVE, live=1_000), word, books())
    assert finding == Finding(
        kind=DRIFT, origin=DESK, job=JOB, what=RESTORE, seen="5-0", word=word,
        text="its record differs from entry 9-0 in state, completed_at, rev",
    )  # fmt: skip
    assert "word" not in finding.to_json()
    assert finding.kind in KINDS


def test_many_differing_fields_are_told_shortly():
    told = replace(LIVE, node="n", seq=4, error="e", model="m")
    finding = judge(JOB, Look(record=LIVE, live=1_000), Word("5-0", told), books())
    assert finding.text.endswith("in node, seq, error, ...")


def test_the_log_decides_about_ghost_missing_and_drift():
    gone = Word("9-0", None)
    assert found(LIVE, gone, live=1_000) == (GHOST, REMOVE)
    assert found(None, gone) == (GHOST, UNLIST)
    assert found(None, gone, listed=False, done=5) == (GHOST, UNLIST)
    assert found(None, Word("5-0", LIVE), listed=False) == (MISSING, RESTORE)
    assert found(LIVE, Word("6-0", LIVE), live=1_000) == (DRIFT, RESTORE)
    assert found(None, Word("5-0", LIVE), damaged=True) == (DRIFT, RESTORE)
    assert found(None, gone, damaged=True) == (DRIFT, UNLIST)


def test_a_record_goes_back_to_no_entry_that_is_older_than_its_own():
    assert found(LIVE, Word("4-0", LIVE), live=1_000) == (DRIFT, NOTHING)
    assert found(LIVE, Word("4-0", None), live=1_000) == (GHOST, NOTHING)


@pytest.mark.parametrize("damaged, repair", [(False, None), (True, (DRIFT, UNLIST))])
def test_what_a_tombstone_has_buried_is_not_written_anew(damaged, repair):
    word, look = Word("5-0", LIVE), {"listed": False, "damaged": damaged}
    assert found(None, word, buried=1_000, **look) == repair
    assert found(None, word, pair_buried=1_000, **look) == repair
    assert found(None, word, buried=999, pair_buried=999, **look)[1] == RESTORE
    assert found(None, Word("5-0", OURS), pair_buried=1_000, **look)[1] == RESTORE
    assert found(None, word, buried=1_000, ready=5) == (GHOST, UNLIST)


def test_sightings_are_no_part_of_what_is_compared():
    seen = replace(LIVE, last_seen=NOW, sightings=9, submit_rev="1-0")
    assert found(seen, Word("5-0", LIVE), live=1_000) is None


def test_below_the_logs_beginning_the_record_is_the_truth():
    assert found(LIVE, begin="5-1", live=1_000) is None
    assert found(LIVE, begin="", live=1_000) is None
    assert found(LIVE, begin="5-0", live=1_000) == (GHOST, NOTHING)
    assert found(LIVE, begin="10-0", live=1_000) is None  # as numbers, not as text


@pytest.mark.parametrize(
    "record, buried, pair_buried, is_ghost",
    [
        (LIVE, 999, 999, False),
        (LIVE, 1_000, 0, True),
        (LIVE, 0, 1_000, True),
        (OURS, 1_000, 0, True),
        (OURS, 0, 1_000, False),  # it outlives the removal of its pair
    ],
)
def test_a_tombstone_tells_of_a_ghost_where_the_log_is_silent(
    record, buried, pair_buried, is_ghost
):
    tombs = {"buried": buried, "pair_buried": pair_buried}
    told = found(record, begin="9-0", **tombs, **HOME[record])
    assert told == ((GHOST, REMOVE) if is_ghost else None)


@pytest.mark.parametrize(
    "record, changes, expected",
    [
        (LIVE, {"listed": False}, MISSING),
        (LIVE, {"live": None}, MISSING),
        (LIVE, {"live": 1_001}, DRIFT),
        (LIVE, {"done": 5}, DRIFT),
        (DONE, {"done": None}, MISSING),
        (DONE, {"done": 2_001}, DRIFT),
        (DONE, {"live": 1_000}, DRIFT),
        (replace(DONE, completed_at=0), {"done": None}, MISSING),
        (replace(DONE, completed_at=0), {"done": 77}, None),
        (OURS, {"ready": 1_000}, DRIFT),
        (OURS, {"delayed": 1_000}, DRIFT),
        (READY, {"ready": None}, STUCK),
        (READY, {"ready": 1_001}, DRIFT),
        (READY, {"delayed": 0}, DRIFT),
        (replace(READY, priority=2), {"ready": 1_000 - 2 * PRIORITY_STEP}, None),
        (replace(READY, priority=2), {"ready": 1_000 - 3 * PRIORITY_STEP}, DRIFT),
        (replace(READY, due=3_000), {"ready": 3_000}, None),
        (replace(READY, due=3_000), {"ready": 1_000}, DRIFT),
        (replace(READY, due=NOW - 5), {"ready": None, "delayed": NOW - 5}, None),
        (replace(READY, due=NOW + 5), {"ready": None, "delayed": NOW + 5}, None),
        (replace(READY, due=NOW + 5), {"ready": None, "delayed": NOW + 6}, DRIFT),
        (replace(READY, due=NOW + 60_000), {"ready": NOW + 60_000}, None),
        (replace(READY, due=NOW + 60_001), {"ready": NOW + 60_001}, DRIFT),
    ],
)
def test_a_record_says_where_it_is_listed(record, changes, expected):
    base = next(
        home
        for known, home in HOME.items()
        if (known.kind, known.state) == (record.kind, record.state)
    )
    told = found(record, "same", **(base | changes))
    assert told == (expected and (expected, RELIST))


@pytest.mark.parametrize(
    "record, job, budget_ms",
    [
        (replace(OURS, last_seen=0), JOB, BUDGETS.guess_ms),
        (replace(READY, node="n1", placed_at=0), JOB, BUDGETS.start_ms),
        (
            replace(OURS, state="failed", guessed_from="running", guessed_at=0, last_seen=0),
            JOB,
            BUDGETS.grace_ms + BUDGETS.guess_ms,
        ),
        (
            replace(OURS, state="failed", guessed_from="running", guessed_at=0, last_seen=0),
            "slow//7",
            50_000 + BUDGETS.guess_ms,
        ),
    ],
    ids=["running", "placed", "guess", "slow engine"],
)
def test_what_its_sweep_left_alone_for_twice_its_budget_and_the_brake_is_stuck(
    record, job, budget_ms
):
    late_ms = 2 * budget_ms + BUDGETS.brake_ms
    assert found(record, "same", job=job, now=late_ms, live=1_000) is None
    assert found(record, "same", job=job, now=late_ms + 1, live=1_000) == (STUCK, NOTHING)


def test_a_beat_after_the_guess_gives_its_sweep_time_again():
    guess = replace(OURS, state="failed", guessed_from="running", guessed_at=0, last_seen=NOW)
    assert found(guess, "same", live=1_000, now=NOW + 1_000) is None


# --- what the log says last ------------------------------------------------------------------------


def told_by(*entries):
    told = Told()
    for entry in entries:
        told.take(entry)
    return told


def entry(rev, record=LIVE, job=JOB, event="report"):
    return Entry(rev, event, job, "higher_seq", "", 0, record and replace(record, rev=rev))


def removal(rev, generation=1_000, job=JOB):
    return Entry(rev, "remove", job, "removed", "", generation, None)


def test_the_newest_word_counts_be_it_a_record_or_that_it_is_gone():
    told = told_by(entry("3-0"), removal("4-0"))
    assert told.of(JOB, None) == Word("4-0", None)
    assert told.bearing() == []
    told.take(entry("5-0"))
    assert told.of(JOB, None).record.rev == "5-0"
    assert told.bearing() == [JOB]
    assert told.of("ollama//8", None) is None
    assert told.begin == "3-0"


def test_a_removed_pair_takes_what_it_names_and_is_not_newer():
    told = told_by(entry("3-0"), removal("4-0", 999, "7"))
    assert told.of(JOB, None).rev == "3-0"
    told.take(removal("5-0", 1_000, "7"))
    assert told.of(JOB, None) == Word("5-0", None)
    assert told.of("other//7", LIVE) == Word("5-0", None)
    assert told.of("other//70", LIVE) is None
    told.take(entry("6-0"))
    assert told.of(JOB, None).rev == "6-0"


def test_an_older_removal_of_a_larger_generation_still_counts():
    told = told_by(entry("3-0"), removal("4-0", 5_000, "7"), removal("5-0", 10, "7"))
    assert told.of(JOB, None) == Word("4-0", None)
    assert told.last(JOB) == "5-0"


def test_a_running_job_outlives_the_removal_of_its_pair():
    told = told_by(entry("3-0", OURS), removal("4-0", 9_000, "7"))
    assert told.of(JOB, None).record.state == "running"


def test_the_last_entry_that_speaks_of_a_job_is_its_own_or_its_pairs():
    told = told_by(entry("9-0"))
    assert told.last(JOB) == "9-0"
    told.take(removal("10-0", 1, "7"))
    assert told.last(JOB) == "10-0"
    assert told.last("other//7") == "10-0"
    assert told.last("other//8") == ""


def test_a_word_keeps_what_only_older_entries_told():
    submitted = replace(READY, submit_rev="3-0", last_seen=3)
    told = told_by(
        entry("3-0", submitted, event="submit"), entry("4-0", replace(READY, last_seen=0))
    )
    assert (told.of(JOB, None).record.submit_rev, told.of(JOB, None).record.last_seen) == ("3-0", 3)


def look_of(ledger, key):
    scores = {name: getattr(ledger, name).get(key) for name in ("live", "done", "ready", "delayed")}
    return Look(
        record=ledger.records.get(key),
        listed=key in ledger.records,
        buried=ledger.tombstones.get(key.job, 0),
        pair_buried=ledger.tombstones.get(key.pair, 0),
        **scores,
    )


@given(st.lists(st.one_of(EVENTS, KEYS), max_size=40), st.integers(0, 40))
def test_the_books_that_the_merge_keeps_are_right_at_every_moment(steps, cut):
    """Whatever happens, and from wherever the log is still there; and its words are those of its fold."""
    ledger = Ledger()
    keys = {Key(DESK, engine, "", id) for engine in "ab" for id in "12"}
    for now, step in enumerate(steps, 10):
        event = leader_and_worker(ledger, step) if isinstance(step, Key) else step
        if event is not None:
            ledger.apply(event, now)
        kept = ledger.log[cut:]
        told, words = told_by(*kept), {}
        around = books(told.begin or "999-0", now)
        for key in keys:
            look = look_of(ledger, key)
            word = told.of(key.job, look.record)
            assert judge(key.job, look, word, around) is None
            if cut == 0 and word is not None and word.record is not None:
                words[key] = word.record
        if cut == 0:
            assert logged(words) == logged(fold(DESK, ledger.log))
