from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from broker.rules.entry import Entry, read_entry
from broker.rules.event import Finish, Intent, Place, Remove, RemovePair, Report, Start, Submit
from broker.rules.key import Key
from broker.rules.ledger import Ledger
from broker.rules.record import PROJECTION, Record, projection
from broker.rules.replay import absorb, differences, fold, rev_order

DESK = "desk"
JOB = Key(DESK, "ollama", "", "7")


def record(state="running", **more):
    return Record(kind="reported", state=state, created_at=1_000, **more)


def entry(rev, found=None, *, key=JOB, event="report"):
    return Entry(rev, event, key.job, "higher_seq", "desk", 0, found or record())


def removal(rev, generation, job=JOB.job):
    return Entry(rev, "remove", job, "removed", "user", generation, None)


def logged(records):
    return {
        key: (record.rev, *(getattr(record, name) for name in PROJECTION))
        for key, record in records.items()
    }


def test_revs_compare_as_numbers():
    assert rev_order("9-0") < rev_order("10-0")
    assert rev_order("5-9") < rev_order("5-10")
    assert rev_order("") < rev_order("0-1")


def test_an_entry_becomes_the_record_with_its_rev():
    records = {}
    change = absorb(records, DESK, entry("5-0"))[0]
    assert records == {JOB: record(rev="5-0")}
    assert (change.key, change.record, change.rev, change.event, change.rule, change.by) == (
        JOB, record(rev="5-0"), "5-0", "report", "higher_seq", "desk",
    )  # fmt: skip
    assert not change.synthesized


def test_an_older_or_equal_rev_never_overwrites():
    records = {JOB: record("completed", rev="10-0")}
    assert absorb(records, DESK, entry("9-0")) == []
    assert absorb(records, DESK, entry("10-0")) == []
    assert records[JOB].state == "completed"


def test_an_older_removal_takes_nothing_away():
    records = {JOB: record(rev="10-0")}
    assert absorb(records, DESK, removal("9-0", 1_000)) == []
    assert JOB in records


def test_a_removal_takes_its_generation_and_older_ones_only():
    records = {JOB: record(rev="5-0")}
    assert absorb(records, DESK, removal("6-0", 999)) == []
    assert absorb(records, DESK, removal("6-0", 1_000))[0].record is None
    assert records == {}


def test_a_removal_of_a_job_that_is_not_held_is_told_all_the_same():
    change = absorb({}, DESK, removal("6-0", 1_000))[0]
    assert (change.key, change.record, change.rule) == (JOB, None, "removed")


def test_a_job_can_come_again_after_its_removal():
    records = {JOB: record(rev="5-0")}
    absorb(records, DESK, removal("6-0", 1_000))
    absorb(records, DESK, entry("7-0", replace(record(), created_at=2_000)))
    assert records[JOB].created_at == 2_000


def test_a_pair_removal_is_told_for_each_job_held():
    other = JOB._replace(engine="openai")
    elsewhere = JOB._replace(origin="shelf")
    newer = JOB._replace(run="r2")
    records = {
        JOB: record(rev="5-0"),
        other: record(rev="5-1"),
        elsewhere: record(rev="5-2"),
        newer: replace(record(rev="5-3"), created_at=9_000),
        JOB._replace(id="77"): record(rev="5-4"),
    }
    told = absorb(records, DESK, removal("6-0", 1_000, JOB.pair))
    assert {change.key for change in told} == {JOB, other}
    assert set(records) == {elsewhere, newer, JOB._replace(id="77")}


def test_a_pair_removal_of_which_nothing_is_held_names_the_pair():
    odd = Key(DESK, "", "", "a/b")
    assert absorb({}, DESK, removal("6-0", 1_000, odd.pair))[0].key == odd


def test_a_pair_removal_older_than_all_that_is_held_is_told_to_nobody():
    assert absorb({JOB: record(rev="5-0")}, DESK, removal("6-0", 999, JOB.pair)) == []


def test_what_entries_do_not_tell_is_carried_within_a_generation():
    records = {JOB: record(rev="5-0", last_seen=900, sightings=3, submit_rev="1-0")}
    absorb(records, DESK, entry("6-0"))
    kept = records[JOB]
    assert (kept.last_seen, kept.sightings, kept.submit_rev) == (900, 3, "1-0")
    absorb(records, DESK, entry("7-0", replace(record(), created_at=2_000)))
    anew = records[JOB]
    assert (anew.last_seen, anew.sightings, anew.submit_rev) == (0, 0, "")


def test_an_entry_of_the_jobs_own_word_is_a_sighting():
    def read(event):
        fields = {"event": event, "job": JOB.job, **projection(record())}
        return read_entry("1700000000000-3", fields).record

    assert read("report").last_seen == 1_700_000_000_000
    assert read("guess").last_seen == 0
    assert read("submit").submit_rev == "1700000000000-3"


def test_fold_stops_after_the_rev_it_is_given():
    entries = [entry("9-0"), entry("10-0", record("completed")), removal("11-0", 1_000)]
    assert fold(DESK, entries, "9-0")[JOB].state == "running"
    assert fold(DESK, entries, "10-5")[JOB].state == "completed"
    assert fold(DESK, entries) == {}


def test_differences_are_told_in_the_order_of_the_log_and_what_vanished_last():
    changed, same, lost, new = (JOB._replace(id=name) for name in ("a", "b", "c", "d"))
    held = {changed: record(rev="1-0"), same: record(rev="2-0"), lost: record(rev="3-0")}
    found = {
        changed: record("completed", rev="10-0"),
        same: record(rev="2-0", last_seen=5, sightings=9),
        new: record(rev="9-0"),
    }
    told = differences(held, found, "12-0")
    assert [(change.key, change.rev) for change in told] == [
        (new, "9-0"),
        (changed, "10-0"),
        (lost, "12-0"),
    ]
    assert told[-1].record is None
    assert all(change.synthesized for change in told)


def test_the_same_rev_with_another_state_is_a_difference():
    assert differences({JOB: record(rev="1-0")}, {JOB: record("failed", rev="1-0")}, "1-0")


NUMBERS = st.integers(1, 3)
KEYS = st.builds(
    Key, st.just(DESK), st.sampled_from(["a", "b"]), st.just(""), st.sampled_from("12")
)
EVENTS = st.one_of(
    st.builds(
        Report,
        key=KEYS,
        created_at=NUMBERS,
        state=st.sampled_from(["queued", "running", "completed", "failed"]),
        seq=st.integers(0, 4),
        node=st.sampled_from(["", "n"]),
    ),
    st.builds(Submit, key=KEYS, created_at=NUMBERS, digest=st.just("d"), attempts=st.just(2)),
    st.builds(Remove, key=KEYS, removed_at=st.sampled_from([0, 1, 2, 50, 60]), force=st.booleans()),
    st.builds(
        RemovePair,
        origin=st.just(DESK),
        id=st.sampled_from("12"),
        removed_at=st.sampled_from([0, 1, 2, 50, 60]),
        force=st.booleans(),
    ),
    st.builds(Intent, key=KEYS, desired=st.sampled_from(["cancel", "remove"])),
)


def leader_and_worker(ledger, key):
    """Whatever dispatcher and worker could do next with a submitted job."""
    found = ledger.records.get(key)
    if found is None:
        return None
    if found.holder:
        return Finish(
            key=key, created_at=found.created_at, attempt=found.attempt, holder=found.holder,
            state="failed", retryable=True,
        )  # fmt: skip
    if found.node:
        return Start(
            key=key, created_at=found.created_at, attempt=found.attempt, node=found.node,
            holder="h", worker="w",
        )  # fmt: skip
    return Place(key=key, node="n", rev=found.rev, term=1)


def test_a_running_job_outlives_a_second_removal_of_its_pair():
    ledger = Ledger()
    ledger.apply(Submit(key=JOB, created_at=1, digest="d"), 10)
    for now in (11, 12):
        ledger.apply(leader_and_worker(ledger, JOB), now)
    for removed_at in (0, 50):
        ledger.apply(RemovePair(origin=DESK, id="7", removed_at=removed_at), 13)
    assert ledger.records[JOB].state == "running"
    assert logged(fold(DESK, ledger.log)) == logged(ledger.records)
    done = Finish(key=JOB, created_at=1, attempt=1, holder="h", state="completed")
    ledger.apply(done, 14)
    assert fold(DESK, ledger.log) == ledger.records == {}


@given(st.lists(st.one_of(EVENTS, KEYS), max_size=30))
def test_the_fold_of_the_log_equals_the_records(steps):
    ledger = Ledger()
    for now, step in enumerate(steps, 10):
        event = leader_and_worker(ledger, step) if isinstance(step, Key) else step
        if event is not None:
            ledger.apply(event, now)
    assert logged(fold(DESK, ledger.log)) == logged(ledger.records)
