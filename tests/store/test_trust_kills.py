"""Kill -9 at every step of a change, and of announcing it: it is whole and told once, or absent and not told."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.store.announce import Announcer, announcements
from broker.store.store import Store
from broker.store.trust import TrustStore
from tests.store.trusting import (
    ANN,
    BOB,
    CHANGES,
    Change,
    at_its_beginning,
    is_killed,
    opened,
    same_on_disk,
    state,
    steps_of,
    unfinished,
)


@pytest.fixture(params=CHANGES)
def change(request):
    return CHANGES[request.param]


def tell(store: Store, node: str, trust: TrustStore) -> list[str]:
    """What the stream of a node holds of `ann`'s changes, after all that waits was told."""
    Announcer(store, node, trust).drain()
    assert trust.pending() == ()
    return [told.change for told in announcements(store, node) if told.node == "ann"]


def before_and_after(folder: Path, change: Change):
    trust, _ = at_its_beginning(folder, change)
    before = state(trust)
    change.work(trust)
    return before, state(trust)


def test_killed_at_any_step_the_change_is_whole_and_told_once_or_absent(tmp_path, store, change):
    before, after = before_and_after(tmp_path / "counted", change)
    step, stood = 1, []
    while True:
        node = f"node-{step}"
        trust, _ = at_its_beginning(tmp_path / node, change)
        earlier = tell(store, node, trust)
        if not is_killed(lambda trust=trust: change.work(trust), step):
            break
        restarted = opened(trust.folder)
        assert state(restarted) in (before, after)
        stood.append(state(restarted) == after)
        assert unfinished(trust.folder) == []
        told = earlier + [change.change] * stood[-1]
        assert [waiting.change for waiting in restarted.pending()] == told[len(earlier) :]
        assert tell(store, node, restarted) == told
        # The one that lived on, started before all of it, sees the same.
        assert state(trust) == state(restarted)
        assert trust.pending() == ()
        # Whoever tries again gets it done, and once more nothing is told twice.
        assert change.work(restarted) is not stood[-1]
        assert tell(store, node, restarted) == [*earlier, change.change]
        assert tell(store, node, opened(trust.folder)) == [*earlier, change.change]
        assert same_on_disk(restarted)
        step += 1
    assert step > 15
    # It stands from one step on, and never before.
    assert stood == sorted(stood)
    assert set(stood) == {False, True}
    assert tell(store, node, opened(trust.folder)) == [*earlier, change.change]


def test_killed_at_any_step_of_telling_what_waits_is_told_once(
    tmp_path, redis_url, store, namespace
):
    change = CHANGES["rename"]

    def work(trust: TrustStore, node: str) -> None:
        own = Store.from_url(redis_url, namespace)  # a forked child shares no connection
        Announcer(own, node, trust).drain()

    step, told_by_the_dead = 1, []
    while True:
        node = f"node-{step}"
        trust, _ = at_its_beginning(tmp_path / node, change)
        change.work(trust)
        waiting = trust.pending()
        assert [told.change for told in waiting] == ["pinned", "pinned", "renamed"]
        if not is_killed(lambda trust=trust, node=node: work(trust, node), step):
            break
        told_by_the_dead.append(announcements(store, node) == list(waiting))
        restarted = opened(trust.folder)
        Announcer(store, node, restarted).drain()
        assert announcements(store, node) == list(waiting)
        assert opened(trust.folder).pending() == ()
        assert unfinished(trust.folder) == []
        step += 1
    assert announcements(store, node) == list(waiting)
    # Some were killed before they had told anything, some between telling and striking out.
    assert set(told_by_the_dead) == {False, True}


def test_killed_at_any_step_of_an_admission_each_peer_is_whole_and_told_once_or_absent(
    tmp_path, store
):
    cards = [ANN.card(BOB), BOB.card()]
    template = opened(tmp_path / "template")
    template.pin(BOB.card())
    steps = len(steps_of(lambda: template.admit(cards)))
    assert steps > 15
    for step in range(1, steps + 1):
        node = f"node-{step}"
        trust = opened(tmp_path / node)
        trust.pin(BOB.card())
        killed = is_killed(lambda trust=trust: trust.admit(cards), step)
        assert killed
        restarted = opened(trust.folder)
        assert tell(store, node, restarted) == ["pinned"] * ("ann" in restarted.pins)
        restarted.admit(cards)
        assert tell(store, node, restarted) == ["pinned"]


def test_killed_at_any_step_of_the_very_first_opening_the_next_one_finds_its_way(tmp_path):
    step = 1
    while is_killed(lambda step=step: opened(tmp_path / str(step) / "trust"), step):
        trust = opened(tmp_path / str(step) / "trust")
        assert trust.pin(ANN.card())
        assert same_on_disk(trust)
        step += 1
    assert step > 3
