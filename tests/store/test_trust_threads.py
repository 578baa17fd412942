"""Many at once: threads, processes of one node, listeners that call the store, nine nodes that never stop talking."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import cycle, islice
from threading import Barrier

from broker.rules.trust import Card
from broker.store.announce import Announcer, announcements
from broker.store.store import Store
from broker.store.trust import TrustStore
from tests.nodes import NOW
from tests.store.readers import patient
from tests.store.trusting import (
    ANN,
    BOB,
    CLEO,
    ME,
    Heard,
    failing,
    files,
    member,
    opened,
    same_on_disk,
    state,
)

THREADS, SUBMISSIONS, REPETITIONS = 16, 1_000, 50


def test_T5_concurrent_identical_submissions_are_one_endorsement_and_one_announcement(tmp_path):
    heard = Heard()
    trust = opened(tmp_path, on_change=heard)
    with ThreadPoolExecutor(THREADS) as pool:
        for repetition in range(REPETITIONS):
            peer = member(f"peer-{repetition}")
            trust.pin(peer.card())
            heard.clear()
            word = ME.of(peer)
            with_word = replace(peer.card(), endorsements=(word,))
            start = Barrier(THREADS)

            def submit(turn: int, peer=peer, word=word, with_word=with_word, start=start) -> int:
                start.wait()
                calls = range(turn, SUBMISSIONS, THREADS)
                return sum(
                    trust.pin(with_word) if call % 3 else trust.endorse(peer.node, [word])
                    for call in calls
                )

            changed = [pool.submit(submit, turn) for turn in range(THREADS)]
            assert sum(done.result() for done in changed) == 1
            assert heard.changes == [("endorsed", peer.node)]
            assert trust.get(peer.node).endorsements == (word,)
    assert len(trust.pending()) == 2 * REPETITIONS
    assert same_on_disk(trust)


def test_concurrent_duplicates_while_a_write_fails_end_in_one_endorsement_and_one_announcement(
    tmp_path,
):
    """The failure goes to one of them; whoever comes next gets it done, and the rest find it done."""
    heard = Heard()
    trust = opened(tmp_path, on_change=heard)
    trust.pin(ANN.card())
    heard.clear()
    start = Barrier(THREADS)
    failures = iter([True, True])

    def submit() -> str:
        start.wait()
        try:
            return "new" if trust.endorse("ann", [ME.of(ANN)]) else "known"
        except OSError:
            return "failed"

    with (
        failing(lambda _, step: step == "replace ann.json.tmp" and next(failures, False)),
        ThreadPoolExecutor(THREADS) as pool,
    ):
        answers = [done.result() for done in [pool.submit(submit) for _ in range(THREADS)]]
    assert sorted(answers) == ["failed"] * 2 + ["known"] * (THREADS - 3) + ["new"]
    assert heard.changes == [("endorsed", "ann")]
    assert same_on_disk(trust)


def test_different_changes_of_many_threads_all_stand_and_are_each_told_once(tmp_path, store):
    heard = Heard()
    trust = opened(tmp_path, on_change=heard)
    members = [member(f"peer-{number}") for number in range(THREADS)]

    def live(peer) -> None:
        trust.pin(peer.card())
        trust.endorse(peer.node, [ME.of(peer)])
        trust.rename(peer.node, f"the {peer.node}")

    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(live, peer) for peer in members]:
            done.result()
    assert sorted(heard.changes) == sorted(
        (change, peer.node) for peer in members for change in ("pinned", "endorsed", "renamed")
    )
    assert sorted(heard, key=lambda told: told.gen) == list(trust.pending())
    assert same_on_disk(trust)
    Announcer(store, "me", trust).drain()
    assert announcements(store, "me") == sorted(heard, key=lambda told: told.gen)


# --- listeners -----------------------------------------------------------------------------------


def test_a_listener_may_change_the_store_and_that_is_announced_too(tmp_path):
    heard = Heard()

    def follow(told) -> None:
        heard.append(told)
        if told.change == "pinned" and told.node == "ann":
            trust.rename("ann", "Ann")
            trust.pin(BOB.card())
        elif told.change == "renamed":
            trust.endorse("ann", [ME.of(ANN)])

    trust = opened(tmp_path, on_change=follow)
    trust.pin(ANN.card())
    assert heard.changes == [
        ("pinned", "ann"), ("renamed", "ann"), ("endorsed", "ann"), ("pinned", "bob")
    ]  # fmt: skip
    assert trust.pending() == tuple(heard)
    assert same_on_disk(trust)


def test_a_listener_may_open_the_folder_in_another_store_and_change_it_there(tmp_path):
    def follow(told) -> None:
        if told.change == "pinned":
            opened(tmp_path).rename(told.node, "by another")

    trust = opened(tmp_path, on_change=follow)
    trust.pin(ANN.card())
    assert trust.get("ann").name == "by another"
    assert [told.change for told in trust.pending()] == ["pinned", "renamed"]


def test_a_listener_that_fails_undoes_nothing(tmp_path, caplog):
    def fail(told) -> None:
        raise RuntimeError("deaf")

    trust = opened(tmp_path, on_change=fail)
    assert trust.pin(ANN.card())
    assert trust.forget("ann")
    assert [told.change for told in trust.pending()] == ["pinned", "forgotten"]
    assert "telling that ann was pinned failed" in caplog.messages


# --- processes of one node --------------------------------------------------------------------------


def child(work) -> int:
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return pid


def test_what_another_process_changed_is_seen_at_once_and_decided_upon(tmp_path):
    heard = Heard()
    trust = opened(tmp_path, on_change=heard)
    other = opened(tmp_path)
    other.pin(ANN.card())
    assert trust.match("ann", ANN.certificate.der)
    assert not trust.pin(ANN.card())
    other.remove("ann", ME.against(ANN))
    assert not trust.match("ann", ANN.certificate.der)
    assert trust.removal("ann")
    assert trust.pending() == other.pending()
    # Each tells of its own changes alone.
    assert heard == []


def test_two_processes_change_and_announce_at_the_same_time_and_nothing_is_lost_or_told_twice(
    tmp_path, redis_url, store, namespace
):
    def live(name: str) -> None:
        own = Store.from_url(patient(redis_url), namespace)
        trust = opened(tmp_path)
        announcer = Announcer(own, "me", trust)
        for number in range(8):
            trust.pin(ANN.card())  # all say it: one of them is first
            trust.pin(member(f"{name}-{number}").card())
            announcer.drain()

    children = [child(lambda name=name: live(name)) for name in ("left", "right", "third")]
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0, 0]
    trust = opened(tmp_path)
    peers = {f"{name}-{number}" for name in ("left", "right", "third") for number in range(8)}
    assert set(trust.pins) == peers | {"ann"}
    assert trust.pending() == ()
    told = [told.node for told in announcements(store, "me")]
    assert sorted(told) == sorted(peers | {"ann"})


def test_what_one_process_forgot_the_other_still_holds(tmp_path):
    trust, other = opened(tmp_path), opened(tmp_path)
    trust.pin(ANN.card())
    assert other.get("ann")
    trust.forget("ann")
    other.rename("ann", "Ann")
    assert trust.get("ann") is None
    assert other.get("ann").name == "Ann"
    assert [told.change for told in other.pending()] == ["pinned", "forgotten", "renamed"]


def test_a_forgetting_that_no_disk_took_keeps_its_place_after_what_others_wrote(tmp_path):
    trust, other = opened(tmp_path), opened(tmp_path)
    trust.pin(ANN.card())
    with failing(lambda *_: True):
        trust.forget("ann")
    other.pin(BOB.card())
    other.rename("bob", "Bob")
    trust.pin(CLEO.card())
    told = trust.pending()
    assert [told.change for told in told] == [
        "pinned", "pinned", "renamed", "forgotten", "pinned"
    ]  # fmt: skip
    assert [told.gen for told in told] == sorted({told.gen for told in told})
    assert other.pending() == told


# --- nine nodes ----------------------------------------------------------------------------------


def test_nine_nodes_that_pin_each_other_10_000_times_announce_nothing_once_they_agree(
    tmp_path, store
):
    nodes = [member(f"node-{number}") for number in range(9)]
    stores = {
        node.node: TrustStore(tmp_path / node.node, node.anchor, clock=lambda: NOW)
        for node in nodes
    }
    announcers = [Announcer(store, name, trust) for name, trust in stores.items()]
    pairs = [(giver, taker) for giver in nodes for taker in nodes if giver is not taker]

    def gossip(giver, taker, now_ms: int) -> None:
        """A card and an endorsement of the giver's neighbour, both issued anew, as the wire brings them."""
        trust = stores[taker.node]
        neighbour = nodes[(nodes.index(giver) + 1) % len(nodes)]
        fresh = Card.from_json(giver.card(neighbour.of(giver, now_ms)).to_json())
        if neighbour is taker or neighbour.node in trust.pins:
            trust.pin(fresh)
        else:
            trust.pin(replace(fresh, endorsements=()))

    def lengths() -> list[int]:
        for announcer in announcers:
            announcer.drain()
        return [store.client.xlen(store.keys.trust(name)) for name in stores]

    for turn in (1, 2):
        for giver, taker in pairs:
            gossip(giver, taker, NOW + turn)
    agreed = lengths()
    assert all(length >= 8 for length in agreed)
    held = [state(trust) for trust in stores.values()]
    before = files(tmp_path)
    for turn, (giver, taker) in enumerate(islice(cycle(pairs), 10_000)):
        gossip(giver, taker, NOW + 10 + turn)
    assert lengths() == agreed
    assert [state(trust) for trust in stores.values()] == held
    assert files(tmp_path) == before
