"""`broker replay ORIGIN --until REV` rebuilds the list as it was at any entry of the log."""

from __future__ import annotations

import random

import pytest

from broker.rules.event import RemovePair
from broker.rules.record import PROJECTION
from tests.clock import StillClock
from tests.store.churn import jobs, next_event
from tests.store.readers import ORIGIN, Desk, logged

EVENTS = 400


@pytest.fixture
def told(store):
    """A random story: after which entry the list was which, and the seed."""
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance, desk = random.Random(seed), Desk(store)
    store.clock = StillClock(store.clock)
    lists, keys = {}, jobs(24)
    for _ in range(EVENTS):
        store.clock.ahead_ms += chance.choice([0, 1, 50, 500])
        key, now = chance.choice(keys), store.clock.now()
        event = next_event(key, desk.view.get(key), now, chance)
        if chance.random() < 0.1:
            removed_at = chance.choice([0, now, now - 50])
            event = RemovePair(origin=ORIGIN, id=key.id, removed_at=removed_at)
        if event != "beat":
            [answer] = desk.view.apply([event])
            if answer.outcome == "applied":
                lists[answer.rev] = logged(desk.records())
    assert len(lists) > EVENTS / 3, seed
    return lists, seed


def test_at_each_entry_the_fold_is_the_list_as_it_was(broker, told):
    lists, seed = told
    before = {}
    entries = broker.log(ORIGIN).read()
    assert len({entry.rule for entry in entries}) > 8, seed
    for entry in entries:
        found = logged(broker.replay(ORIGIN, entry.rev))
        if entry.rev in lists:
            assert found == lists[entry.rev], (seed, entry)
        else:  # one of several that one event wrote in one step: nobody ever saw the list between them
            changed = {
                key for key in found.keys() | before.keys() if found.get(key) != before.get(key)
            }
            assert changed <= {entry.key(ORIGIN)}, (seed, entry)
        before = found
    assert found == lists[entries[-1].rev]


def test_the_command_shows_it(broker, command, told):
    lists, seed = told
    for rev in random.Random(seed).sample(sorted(lists), 5):
        shown = command.ok("replay", ORIGIN, "--until", rev, "-o", "json").json
        at_that_time = {str(key): values for key, values in lists[rev].items()}
        assert {job["key"]: job["rev"] for job in shown} == {
            key: values[0] for key, values in at_that_time.items()
        }, seed
        for job in shown:
            held = dict(zip(PROJECTION, at_that_time[job["key"]][1:], strict=True))
            for name in ("state", "node", "seq", "attempt", "desired", "created_at", "priority"):
                assert job[name] == held[name], (seed, job)
