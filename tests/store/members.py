"""What the tests of groups share: a member that owns one origin, in short words."""

from __future__ import annotations

from contextlib import contextmanager
from typing import NamedTuple

import pytest

from broker.errors import Refused
from broker.store.group import Group
from tests.store.readers import ORIGIN

GROUP = "sink"
LEASE_MS = 5_000
PARKED_MAX = 1_000


def group(store, holder="a", *, name=GROUP, lease_ms=LEASE_MS, parked_max=PARKED_MAX):
    return Group(store, name, holder, lease_ms=lease_ms, parked_max=parked_max)


class Sub(NamedTuple):
    """All that a subscription's hash says, empty and 0 where it says nothing."""

    owner: str
    term: int
    until: int
    epoch: str
    acked: str
    sent: str
    tries: int
    gaps: int
    evicted: int
    asked: str
    replay: str


class Owner:
    """A member and its term at one origin."""

    def __init__(self, store, holder="a", *, known=None, term=0, **more):
        self.store = store
        self.group = group(store, holder, **more)
        self.term = term
        if not term:
            self.claim = self.group.claim(ORIGIN, known)
            assert self.claim, "another one holds it"
            self.term = self.claim.term

    def renew(self):
        return self.group.claim(ORIGIN, term=self.term)

    def fetch(self, count=100):
        """The revs that it is handed."""
        return [rev.decode() for rev, _ in self.group.fetch(ORIGIN, self.term, count).entries]

    @property
    def tries(self):
        return self.group.fetch(ORIGIN, self.term, 1).tries

    def ack(self, rev):
        self.group.ack(ORIGIN, self.term, rev)

    def fail(self):
        return self.group.fail(ORIGIN, self.term)

    def park(self, rev, reason="it broke"):
        return self.group.park(ORIGIN, self.term, rev, reason)

    def skip(self):
        self.group.skip(ORIGIN, self.term)

    def release(self):
        return self.group.release(ORIGIN, self.term)

    def to_replay(self):
        return self.group.to_replay(ORIGIN, self.term)

    def done(self, id):
        self.group.done(ORIGIN, self.term, id)

    def again(self, id, reason="still broken"):
        self.group.again(ORIGIN, self.term, id, reason)

    def handle_all(self, count=100):
        """Fetch and acknowledge until nothing comes; the revs in the order in which they came."""
        handled = []
        while found := self.fetch(count):
            for rev in found:
                self.ack(rev)
            handled += found
        return handled

    def seen(self):
        """The subscription's hash."""
        found = self.store.client.hgetall(self.store.keys.of(ORIGIN).sub(self.group.name))
        said = {name.decode(): value.decode() for name, value in found.items()}
        numbers = {
            name: int(said.get(name, 0)) for name in ("term", "until", "tries", "gaps", "evicted")
        }
        texts = {
            name: said.get(name, "")
            for name in ("owner", "epoch", "acked", "sent", "asked", "replay")
        }
        return Sub(**texts, **numbers)

    def pending(self):
        """What the Redis group shows as handed out and not acknowledged."""
        keys = self.store.keys.of(ORIGIN)
        found = self.store.client.xpending_range(keys.log, self.group.name, "-", "+", 1_000)
        return [one["message_id"].decode() for one in found]

    def everything(self, rev):
        """Each call of an owner, by name; those that are about an entry: about `rev`."""
        return {
            "fetch": self.fetch,
            "ack": lambda: self.ack(rev),
            "fail": self.fail,
            "park": lambda: self.park(rev),
            "skip": self.skip,
            "to_replay": self.to_replay,
            "done": lambda: self.done("1-0"),
            "again": lambda: self.again("1-0"),
        }


@contextmanager
def refused_as_stale():
    with pytest.raises(Refused) as refused:
        yield
    assert refused.value.rule == "stale_term"


def everything(store):
    """All keys of the namespace and what they hold, groups of streams included."""
    found = {}
    for name in sorted(store.client.scan_iter(f"{store.keys.namespace}:*", count=1000)):
        kind = store.client.type(name)
        if kind == b"hash":
            found[name] = store.client.hgetall(name)
        elif kind == b"stream":
            groups = store.client.xinfo_groups(name)
            pending = [
                store.client.xpending_range(name, one["name"], "-", "+", 1_000) for one in groups
            ]
            shown = [
                [(p["message_id"], p["consumer"], p["times_delivered"]) for p in each]
                for each in pending
            ]
            found[name] = (store.client.xrange(name), groups, shown)
        else:
            found[name] = kind
    return found
