"""Random walks: two processes' stores, steps that fail or kill, restarts, telling in between; the story stays true."""

from __future__ import annotations

import random
from contextlib import closing, suppress

import pytest

from broker.errors import Unwritable
from broker.store.announce import Announcer, announcements
from broker.store.store import Store
from tests.store.trusting import (
    ANN,
    BOB,
    CLEO,
    ME,
    failing,
    is_killed,
    opened,
    state,
    unfinished,
)

PEERS = {peer.node: peer for peer in (ANN, BOB, CLEO)}
STEPS_MAX = 24


def change_between(before, after) -> list[tuple[str, str]]:
    """How the one change between two states is announced."""
    told = []
    for node in PEERS:
        was, now = before["pins"].get(node), after["pins"].get(node)
        if was == now:
            continue
        if now is None:
            told.append(("removed", node))
        elif was is None or was.epoch != now.epoch:
            told.append(("pinned", node))
        else:
            told.append(("endorsed" if was.name == now.name else "renamed", node))
    return told


class Walk:
    """One node's folder, the stores of two processes on it, and what must have been told so far."""

    def __init__(self, seed: int, folder, redis_url: str, namespace: str) -> None:
        self.chance = random.Random(seed)
        self.folder = folder
        self.redis_url = redis_url
        self.namespace = namespace
        self.stores = [opened(folder), opened(folder)]
        self.told: list[tuple[str, str]] = []

    def work(self, trust):
        """Any change, perhaps one that changes nothing."""
        node = self.chance.choice(list(PEERS))
        peer = PEERS[node].at(self.chance.choice([1, 1, 2, 3]))
        number = self.chance.randrange(3)
        kind = self.chance.choice(["pin", "endorse", "rename", "remove", "remove with a proof"])
        known = trust.get(node)
        if kind == "rename":
            return lambda: trust.rename(node, f"Name {number}")
        if kind == "remove":
            return lambda: trust.remove(node)
        if known is None or kind == "pin":
            barred = trust.removal(node)
            if barred is not None and peer.epoch <= barred.epoch:
                peer = PEERS[node].at(barred.epoch + 1)
            return lambda: trust.pin(peer.card(ME))
        current = PEERS[node].at(known.epoch)
        if kind == "endorse":
            return lambda: trust.endorse(node, [ME.of(current)])
        return lambda: trust.remove(node, ME.against(current))

    def tell(self, trust) -> None:
        with closing(
            Store.from_url(self.redis_url, self.namespace)
        ) as own:  # also in a forked child
            Announcer(own, "me", trust).drain()

    def step(self) -> None:
        trust = self.chance.choice(self.stores)
        before = state(opened(self.folder))
        is_telling = self.chance.random() < 0.2
        work = (lambda: self.tell(trust)) if is_telling else self.work(trust)
        at = self.chance.randrange(1, STEPS_MAX)
        how = self.chance.choice(["well", "well", "fail once", "fail on", "kill", "restart"])
        if how == "kill":
            is_killed(work, at)
        elif how.startswith("fail"):
            strikes = failing(lambda count, _: count == at or (how == "fail on" and count > at))
            with strikes, suppress(Unwritable):
                work()
        else:
            if how == "restart":
                self.stores[self.stores.index(trust)] = opened(self.folder)
            work()
        fresh = opened(self.folder)
        after = state(fresh)
        changes = change_between(before, after)
        assert len(changes) <= 1
        assert not (is_telling and changes)
        self.told += changes
        assert unfinished(self.folder) == []
        for store in self.stores:
            assert state(store) == after
            assert store.pending() == fresh.pending()


def walk(seed: int, length: int, folder, redis_url: str, store: Store) -> None:
    made = Walk(seed, folder, redis_url, store.keys.namespace)
    for _ in range(length):
        made.step()
    made.tell(opened(folder))
    told = announcements(store, "me", 1_000)
    assert [(one.change, one.node) for one in told] == made.told
    assert len({one.gen for one in told}) == len(told)


@pytest.mark.parametrize("seed", range(5))
def test_whatever_fails_or_dies_each_change_that_stands_was_told_once_and_in_order(
    tmp_path, redis_url, store, seed
):
    walk(seed, 30, tmp_path, redis_url, store)
