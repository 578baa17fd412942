"""Promise 4: whatever was removed stays away, whichever comes first, in whatever order the rest arrives."""

from __future__ import annotations

import itertools

import pytest

from broker.rules.event import Remove, RemovePair, Report
from broker.rules.key import Key
from broker.rules.ledger import Ledger

CREATED, NOW = 1_000, 9_000
KEY = Key("desk", "ollama", "", "7")
STREAM = ["queued", "queued a", "running a", "running b", "completed b"]


def reports(*, numbered, key=KEY, created_at=CREATED):
    return [
        Report(
            key=key, created_at=created_at, state=state, node=node, seq=seq if numbered else 0
        )
        for seq, (state, _, node) in enumerate((told.partition(" ") for told in STREAM), 1)
    ]  # fmt: skip


def removal(form, removed_at):
    if form == "exact":
        return Remove(key=KEY, removed_at=removed_at)
    return RemovePair(origin=KEY.origin, id=KEY.id, removed_at=removed_at)


def tell(events):
    ledger = Ledger()
    for now, event in enumerate(events, NOW):
        ledger.apply(event, now)
    return ledger


each_form = pytest.mark.parametrize("form", ["exact", "broad"])
each_generation = pytest.mark.parametrize("removed_at", [0, CREATED, CREATED + 5], ids=str)


@each_form
@each_generation
@pytest.mark.parametrize("numbered", [True, False])
def test_any_order_of_a_removal_and_a_stream_leaves_nothing(form, removed_at, numbered):
    events = [*reports(numbered=numbered), removal(form, removed_at)]
    for order in itertools.permutations(events):
        ledger = tell(order)
        assert not ledger.records
        assert not ledger.live
        assert not ledger.done


@each_form
@pytest.mark.parametrize("length", range(len(STREAM) + 1))
def test_a_removal_told_twice_among_a_stream_leaves_nothing(form, length):
    stream = reports(numbered=True)[:length]
    for first, second in itertools.combinations_with_replacement(range(length + 1), 2):
        told = list(stream)
        told.insert(second, removal(form, CREATED))
        told.insert(first, removal(form, CREATED))
        assert not tell(told).records


@each_form
def test_a_newer_generation_lives_whichever_comes_first(form):
    """The removal speaks of what was created up to then; the next job of that identity is another one."""
    older = reports(numbered=True)[:2]
    newer = reports(numbered=True, created_at=CREATED + 6)[:2]
    for order in itertools.permutations([*older, *newer, removal(form, CREATED + 5)]):
        ledger = tell(order)
        assert ledger.records[KEY].created_at == CREATED + 6
        assert ledger.records[KEY].seq == 2


def test_a_broad_removal_holds_for_engines_and_runs_not_yet_seen():
    others = [Key("desk", "lmstudio", "", "7"), Key("desk", "ollama", "r1", "7")]
    stream = [reports(numbered=True, key=key)[0] for key in (KEY, *others)]
    for order in itertools.permutations([*stream, removal("broad", CREATED)]):
        assert not tell(order).records


@each_form
def test_a_guess_does_not_bring_a_removed_job_back(form):
    ledger = tell([reports(numbered=True)[2], removal(form, 0)])
    assert not ledger.records
    for report in reports(numbered=True):
        assert ledger.apply(report, NOW).rule == "tombstoned"
