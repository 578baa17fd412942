"""The announcer: what a node's trust store changed while nobody could tell of it."""

from __future__ import annotations

import pytest

from broker.errors import Misconfigured, Unavailable
from broker.roles.announcer import Announcer
from broker.rules.trust import Card
from broker.store.announce import announcements
from broker.store.identity import Identity
from broker.store.store import Store
from broker.store.trust import TrustStore

NOW = 1_790_000_000_000


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "trust"


@pytest.fixture
def announcer(store, folder):
    return Announcer(store, folder, announcements_max=3)


def peer(tmp_path, node) -> Card:
    return Identity.create(tmp_path / node, node, NOW).card


def told(store):
    return [(said.gen, said.change, said.node) for said in announcements(store, "desk")]


def test_a_node_without_an_identity_has_nothing_to_tell(announcer, folder):
    assert announcer.step() == 0
    assert not folder.exists()


def test_an_identity_that_comes_later_is_found(announcer, store, folder, tmp_path):
    announcer.step()
    Identity.create(folder, "desk", NOW)
    assert announcer.step() == 0
    trust = TrustStore(folder, clock=lambda: NOW)
    trust.pin(peer(tmp_path, "alpha"))
    trust.pin(peer(tmp_path, "beta"))
    assert announcer.step() == 2
    assert announcer.step() == 0
    trust.rename("alpha", "Alpha")
    assert announcer.step() == 1
    assert told(store) == [(1, "pinned", "alpha"), (2, "pinned", "beta"), (3, "renamed", "alpha")]


def test_the_stream_keeps_its_bound(announcer, store, folder, tmp_path):
    Identity.create(folder, "desk", NOW)
    trust = TrustStore(folder, clock=lambda: NOW)
    trust.pin(peer(tmp_path, "alpha"))
    for name in "abcd":
        trust.rename("alpha", name)
        announcer.step()
    assert [gen for gen, *_ in told(store)] == [3, 4, 5]


def test_what_cannot_be_told_waits(store, folder, tmp_path, namespace):
    Identity.create(folder, "desk", NOW)
    TrustStore(folder, clock=lambda: NOW).pin(peer(tmp_path, "alpha"))
    nowhere = Store.from_url("redis://127.0.0.1:1", namespace)
    with pytest.raises(Unavailable):
        Announcer(nowhere, folder).step()
    assert Announcer(store, folder).step() == 1
    assert told(store) == [(1, "pinned", "alpha")]


def test_a_damaged_identity_is_told_loudly_and_heals(announcer, store, folder, tmp_path):
    Identity.create(folder, "desk", NOW)
    TrustStore(folder, clock=lambda: NOW).pin(peer(tmp_path, "alpha"))
    key = folder / "node.key"
    raw = key.read_bytes()
    key.write_bytes(b"")
    with pytest.raises(Misconfigured, match=r"node\.key"):
        announcer.step()
    key.write_bytes(raw)
    assert announcer.step() == 1
