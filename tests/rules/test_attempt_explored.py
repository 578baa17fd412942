"""The attempt machine, explored from the rules themselves: what may never happen, whatever happens around it.

And each rule earns its place: without it, the same exploration finds the accident that it prevents.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.rules.merge import merge
from broker.rules.record import Record
from broker.rules.state import RUN
from tests.rules.explore import NEWEST, Explorer, Size, Violated

SMALL = {
    "two tries": Size(),
    "at most once": Size(attempts=1, at_most_once=True),
}
FULL = SMALL | {
    "three tries": Size(attempts=3, executions=2, handoffs=2),
    "three executions": Size(attempts=2, executions=3, handoffs=2),
    "two nodes": Size(attempts=2, executions=2, handoffs=2, nodes=("node-a", "node-b")),
    "four tries, to poison": Size(attempts=4, executions=2, handoffs=1),
}


def pytest_generate_tests(metafunc):
    if "size" in metafunc.fixturenames:
        sizes = FULL if metafunc.config.getoption("explore") == "full" else SMALL
        metafunc.parametrize("size", sizes.values(), ids=sizes)


@pytest.mark.timeout(1800)
def test_every_reachable_state_keeps_the_promises(size):
    explorer = Explorer(size)
    states = explorer.explore()
    print(f"{states:,} states, {explorer.edges_count:,} edges")
    assert states > 500


# --- weakened rules ---------------------------------------------------------------------------------


def no_fence(record, event, scene):
    """A report of an attempt given up counts for the one that runs."""
    if record and event.kind in {"start", "finish", "reassert"}:
        event = replace(event, attempt=record.attempt)
    return merge(record, event, scene)


def no_holder_check(record, event, scene):
    """Whoever comes with the right attempt may start."""
    if record and event.kind == "start" and record.holder and not record.ended:
        record = replace(record, holder="", state="queued", guessed_from="")
    return merge(record, event, scene)


def kept(verdict, **fields):
    """The verdict with other fields in the record that it leaves."""
    record = replace(verdict.record, **fields)
    return verdict._replace(record=record, steps=(verdict.steps[0]._replace(record=record),))


def requeue_keeps_the_attempt(record, event, scene):
    verdict = merge(record, event, scene)
    return kept(verdict, attempt=record.attempt) if verdict.rule == "requeued" else verdict


def cancel_leaves_a_placed_job(record, event, scene):
    """Its worker will notice: but there may be none."""
    is_placed = record and record.state == "queued" and record.node
    if event.kind == "intent" and is_placed and not event.force:
        verdict = merge(replace(record, state="running"), event, scene)
        return kept(verdict, state="queued") if verdict.steps else verdict
    return merge(record, event, scene)


def a_late_result_counts(record, event, scene):
    """A finish is taken even after the end."""
    if record and record.ended and event.kind == "finish":
        record = replace(record, state="running", holder=event.holder, attempt=event.attempt)
    return merge(record, event, scene)


def a_cancel_takes_a_removal_back(record, event, scene):
    if event.kind == "intent" and record and not record.ended:
        record = replace(record, desired=RUN)
    return merge(record, event, scene)


def no_lost(record, event, scene):
    """A guess that may not run again waits for its holder."""
    if event.kind == "lost":
        return merge(None, event, scene)._replace(record=record)
    return merge(record, event, scene)


def removal_leaves_no_tombstone(record, event, scene):
    if record is None and event.kind == "start":
        record = Record(
            kind="submitted", state="queued", node=event.node, created_at=1, attempt=1, rev=NEWEST
        )
        return merge(record, replace(event, attempt=1), scene)
    return merge(record, event, scene)


def unplace_is_missing(record, event, scene):
    """A hand-off that got lost is waited for."""
    if event.kind == "unplace":
        return merge(None, event, scene)._replace(record=record)
    return merge(record, event, scene)


def a_guess_is_made_once(record, event, scene):
    """Its holder will reassert, for it beat once more: but it may die before."""
    if event.kind == "guess" and record and record.inferred:
        return merge(None, event, scene)._replace(record=record)
    return merge(record, event, scene)


#: One execution is enough where what goes wrong is that nobody comes.
ALONE = Size(executions=1, handoffs=1)
WEAKENED = {
    no_fence: (Size(), "given up counted"),
    no_holder_check: (Size(), "started twice"),
    requeue_keeps_the_attempt: (Size(), "started twice"),
    a_late_result_counts: (Size(), "not absorbing"),
    a_cancel_takes_a_removal_back: (ALONE, "fell"),
    cancel_leaves_a_placed_job: (ALONE, "no end"),
    no_lost: (ALONE, "no end"),
    unplace_is_missing: (ALONE, "no end"),
    removal_leaves_no_tombstone: (ALONE, "came back"),
    a_guess_is_made_once: (ALONE, "no end"),
}


@pytest.mark.parametrize("weakened", WEAKENED, ids=lambda rule: rule.__name__)
def test_each_weakened_rule_is_caught(weakened):
    size, accident = WEAKENED[weakened]
    with pytest.raises(Violated, match=accident) as caught:
        Explorer(size, weakened).explore()
    print(caught.value)
