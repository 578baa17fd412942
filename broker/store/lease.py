"""Who leads a role, and with which term: the fence against a leader that only believes that it leads.

A lease may lapse unnoticed, so no leader is trusted for holding one. Each term is higher than all before (it is at
least Redis's time in milliseconds, so that even a Redis that lost its last second never gives one twice), each of a
leader's writes carries it, and the scripts refuse a lower one than they have seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

from broker.store.connection import redis_errors
from broker.store.decode import read_number
from broker.store.store import Store

#: The roles of which one process leads.
LED_ROLES = ("auditor", "chronicle", "dispatcher", "janitor", "sweeper")
#: Those that write at origins, and are fenced there.
FENCED_ROLES = ("auditor", "dispatcher", "janitor", "sweeper")
#: Those that no fleet needs: nothing is told of one that was never led.
OPTIONAL_ROLES = frozenset(LED_ROLES) - frozenset(FENCED_ROLES)


class Lease:
    """One holder's way to the lead of a role. `holder` must be unique among all processes, now and later."""

    def __init__(self, store: Store, role: str, holder: str, ttl_ms: int) -> None:
        self._store = store
        self._keys = [store.keys.leader(role), store.keys.term(role)]
        self._holder = holder
        self._ttl_ms = ttl_ms

    def hold(self) -> int:
        """Take or renew the lease: its term, or 0 while another one holds it. Raises Unavailable."""
        return self._lease(self._ttl_ms)

    def release(self) -> None:
        """Let another one lead at once. Does nothing where this one does not hold the lease."""
        self._lease(0)

    def _lease(self, ttl_ms: int) -> int:
        args = (self._holder, ttl_ms, self._store.clock.now())
        return int(self._store.scripts.run("lease", self._keys, args))


class Leader(NamedTuple):
    """How a role is led."""

    role: str
    term: int  #: the newest one; 0: nobody ever led
    held: bool  #: whether somebody leads now


def leaders(store: Store) -> list[Leader]:
    """Of each role, by name, but for an optional one that nobody ever led. A key of a wrong type counts as none.

    Raises Unavailable.
    """
    names = [name(role) for role in LED_ROLES for name in (store.keys.term, store.keys.leader)]
    with redis_errors():
        told = cast("Sequence[bytes | None]", store.client.mget(names))
    return [
        Leader(role, read_number(term), holder is not None)
        for role, term, holder in zip(LED_ROLES, told[::2], told[1::2], strict=True)
        if read_number(term) or role not in OPTIONAL_ROLES
    ]


def raise_term(store: Store, origin: str, role: str, term: int) -> None:
    """Have the origin refuse every lower term of the role: a new leader's first act, before its first write there."""
    raise_number(store, origin, f"term:{role}", term)


def raise_number(store: Store, origin: str, field: str, value: int) -> None:
    """Have a number in the origin's meta be at least this: one that must never fall. Raises Unavailable, Damaged."""
    store.scripts.run("raise", [store.keys.of(origin).meta], [field, value])


def fence(store: Store, origin: str) -> None:
    """Have the origin refuse every term but each role's newest: it may have lost what it knew of them.

    Raises Unavailable, Damaged.
    """
    with redis_errors():
        told = store.client.mget(map(store.keys.term, FENCED_ROLES))
    for role, term in zip(
        FENCED_ROLES, map(read_number, cast("list[bytes | None]", told)), strict=True
    ):
        if term:
            raise_term(store, origin, role, term)
