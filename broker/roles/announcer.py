"""Tells what this node's trust store changed while Redis, or the command that changed it, was away.

Each node that runs the roles has its own; there is nothing to lead, for a change is told once by whoever comes first.
"""

from __future__ import annotations

import time
from pathlib import Path

from broker.errors import NotFound
from broker.store import announce
from broker.store.identity import Identity
from broker.store.store import Store
from broker.store.trust import TrustStore


class Announcer:
    """`step()` tells what waits in `folder`, once this node has an identity there."""

    def __init__(self, store: Store, folder: Path, *, announcements_max: int = 10_000) -> None:
        self._store = store
        self._folder = folder
        self._announcements_max = announcements_max
        self._outbox: announce.Announcer | None = None

    def step(self) -> int:
        """How many changes were told. Raises Misconfigured where the identity is damaged."""
        if self._outbox is None:
            try:
                identity = Identity.load(self._folder, time.time_ns() // 1_000_000)
            except NotFound:
                return 0
            trust = TrustStore(self._folder, identity.anchor, waiting_max=self._announcements_max)
            self._outbox = announce.Announcer(
                self._store, identity.node, trust, announcements_max=self._announcements_max
            )
        return self._outbox.drain()
