"""Promise 8: any permutation and duplication of one well-formed stream of numbered events gives the same record.

And: numbers change nothing where no number is needed.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from functools import reduce

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.rules.event import Report
from broker.rules.key import Key
from broker.rules.ledger import Ledger
from broker.rules.merge import merge
from broker.rules.state import RANK, TERMINAL
from broker.rules.verdict import Scene

KEY = Key("desk", "ollama", "", "7")
SCENE = Scene(now=9_000)
ENDS = sorted(TERMINAL)


def stream(*told):
    """Numbered from 1, in the producer's order: each `state` or `state node`."""
    return [
        Report(
            key=KEY, created_at=1_000, seq=seq, state=state, node=node, started_at=seq, error=f"e{seq}", by=f"b{seq}"
        )
        for seq, (state, _, node) in enumerate((one.partition(" ") for one in told), 1)
    ]  # fmt: skip


#: Whatever the sources do: dispatch, re-point, re-queue on another node, come back, end on any node or none.
STREAMS = {
    "a life": ["queued", "queued a", "running a", "running a", "completed a"],
    "re-pointed": ["queued", "queued a", "queued b", "running b", "running c", "completed c"],
    "re-queued": ["queued", "running a", "queued b", "running b", "failed b"],
    "there and back": ["running a", "running b", "running a", "queued", "running b", "cancelled b"],
    "ends elsewhere": ["queued", "running a", "queued", "running b", "queued", "failed"],
    "never ends": ["queued", "running a", "queued b", "running c", "queued", "running a"],
    "ends at once": ["cancelled"],
}


def what_matters(record):
    """The record without how it came about: which rule let the deciding event in, and how often it was seen."""
    return replace(record, rule="", sightings=0, last_seen=0)


def tell(record, report):
    return merge(record, report, SCENE).record


def fold(reports):
    return what_matters(reduce(tell, reports, None))


def ends_of(reports):
    """The records that all permutations of the reports lead to: exact, for what was told alike is folded once."""
    reached = {(None, tuple(range(len(reports))))}
    ends = set()
    while reached:
        following = set()
        for record, left in reached:
            if not left:
                ends.add(what_matters(record))
            for place, one in enumerate(left):
                following.add((tell(record, reports[one]), left[:place] + left[place + 1 :]))
        reached = following
    return ends


@pytest.mark.parametrize("told", STREAMS.values(), ids=STREAMS)
def test_every_permutation_with_any_single_duplicate_gives_the_same_record(told):
    reports = stream(*told)
    expected = fold(reports)
    assert (expected.state, expected.seq) == (reports[-1].state, len(reports))
    for twice in reports:
        assert ends_of([*reports, twice]) == {expected}


def test_the_search_is_the_plain_one():
    """`ends_of` against permutations written out, on a stream that must not converge: two terminals."""
    reports = stream("queued", "failed a", "completed a")
    plain = {fold(order) for order in itertools.permutations(reports)}
    assert ends_of(reports) == plain
    assert len(plain) == 2


def test_two_thousand_long_streams_shuffled_and_repeated():
    dice = random.Random(50)
    for _ in range(2_000):
        told = [f"{dice.choice(('queued', 'running'))} {dice.choice('abc')}" for _ in range(49)]
        reports = stream(*told, dice.choice(ENDS))
        heard = reports + dice.choices(reports, k=15)
        dice.shuffle(heard)
        assert fold(heard) == fold(reports)


ranks_that_never_drop = st.lists(
    st.tuples(st.sampled_from(["queued", "running"]), st.sampled_from("abc")), max_size=6, unique=True
).map(lambda told: sorted(told, key=lambda one: RANK[one[0]]))  # fmt: skip


@settings(max_examples=300)
@given(told=ranks_that_never_drop, end=st.sampled_from(["", *ENDS]))
def test_in_order_numbers_decide_as_none_where_the_rank_never_drops(told, end):
    reports = stream(*(f"{state} {node}" for state, node in told), *([f"{end} a"] if end else []))
    numbered, plain = Ledger(), Ledger()
    for report in reports:
        answers = numbered.apply(report, 9_000), plain.apply(replace(report, seq=0), 9_000)
        assert answers[0].outcome == answers[1].outcome == "applied"
    if reports:
        with_seq = what_matters(numbered.records[KEY])
        assert replace(with_seq, seq=0) == what_matters(plain.records[KEY])
