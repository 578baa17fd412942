"""Readers that are killed or frozen: nothing is skipped, and a repetition means a kill between handler and ack."""

from __future__ import annotations

import itertools
import os
import random
from collections import Counter
from typing import NamedTuple

import pytest

from tests.store.members import GROUP, Owner, group
from tests.store.mortal_reader import ANYTIME, FROZEN, POINTS, Nursery
from tests.store.readers import ORIGIN, Desk, until

RUNS = 200
#: Lapses at once: the next reader takes over without a pause.
LEASE_MS = 1


class Line(NamedTuple):
    what: str
    run: int
    rest: str


@pytest.fixture
def ledger(tmp_path):
    return tmp_path / "ledger"


@pytest.fixture
def nursery(redis_url, namespace, ledger):
    with Nursery(redis_url, namespace, GROUP, ledger) as made:
        yield made


@pytest.fixture
def desk(store):
    return Desk(store)


def lines_of(ledger):
    return [
        Line(what, int(run), rest)
        for what, run, rest in (line.split(" ", 2) for line in ledger.read_text().splitlines())
    ]


@pytest.fixture
def seed():
    return int(os.environ.get("KILL_SEED") or random.SystemRandom().randrange(10**6))


def test_killed_before_during_and_after_ack_every_entry_is_handled_in_order_and_none_skipped(
    desk, nursery, ledger, seed
):
    dice = random.Random(seed)
    told, died_at = [], {}
    for run in range(RUNS):
        new = dice.randrange(1, 7)
        told += desk.report_many(range(len(told), len(told) + new))
        point = dice.choice((*POINTS, ANYTIME))
        ended, _ = nursery.run(
            run=run, point=point, at=dice.randrange(1, new + 1), count=dice.randrange(1, 5),
            strike_ms=dice.randrange(30), lease_ms=LEASE_MS,
        )  # fmt: skip
        assert ended == "killed", f"seed {seed}, run {run}, {point}: {ended}"
        died_at[run] = point
    assert nursery.run(run=RUNS, lease_ms=LEASE_MS)[0] == "exit 0"

    lines = lines_of(ledger)
    handled = [line for line in lines if line.what == "handled"]
    first_times = list(dict.fromkeys(line.rest for line in handled))
    assert first_times == told, f"seed {seed}: skipped, or out of order"
    check_repetitions(lines, died_at, seed)
    last = Owner(desk.store, "onlooker")
    assert (last.fetch(), last.pending()) == ([], []), f"seed {seed}"
    assert set(died_at.values()) == {*POINTS, ANYTIME}


def check_repetitions(lines, died_at, seed):
    """An entry is handled again only as the first of a run, and only where the run before died with it in hand."""
    acked = {(line.run, line.rest) for line in lines if line.what == "acked"}
    handled = [line for line in lines if line.what == "handled"]
    repeated = Counter()
    for before, after in itertools.pairwise(handled):
        if before.run == after.run:
            assert before.rest != after.rest, f"seed {seed}: twice in run {after.run}"
            continue
        point = died_at[before.run]
        is_repeated = before.rest == after.rest
        repeated[point] += is_repeated
        if is_repeated:
            assert (before.run, before.rest) not in acked, f"seed {seed}: after ack, {after}"
            assert point not in ("before", "acked"), f"seed {seed}: {point}, {after}"
        elif point in ("handled", "torn"):
            # Whoever died after its handler and before its ack left the entry to the next.
            pytest.fail(f"seed {seed}: {before} was taken for acknowledged")
    counts = Counter(line.rest for line in handled)
    assert sum(counts.values()) - len(counts) == sum(repeated.values()), f"seed {seed}: {repeated}"
    assert repeated["handled"] > 0 < repeated["torn"]


def test_an_owner_frozen_past_its_lease_and_thawed_is_refused_everything(desk, nursery, ledger):
    told = desk.report_many("abcd")
    ended, pid = nursery.run(run=0, point=FROZEN, at=2, lease_ms=100)
    assert ended == "stopped"
    second = group(desk.store, "second", lease_ms=600_000)  # which none of this lasts
    claim = until(lambda: second.claim(ORIGIN))
    owner = Owner(desk.store, "second", term=claim.term)
    assert (owner.fetch(), owner.tries) == (told[1:], 1)
    owner.ack(told[1])
    before = owner.seen(), owner.pending()

    assert nursery.run(thaw=pid)[0] == "exit 0"

    refused = [line.rest for line in lines_of(ledger) if line.what == "refused"]
    assert refused == [
        "ack stale_term", "fetch stale_term", "park stale_term", "fail stale_term",
        "skip stale_term", "lease held",
    ]  # fmt: skip
    assert (owner.seen(), owner.pending()) == before
    assert not desk.store.client.exists(desk.keys.parked(GROUP))
    assert owner.handle_all() == told[2:]
