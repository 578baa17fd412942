"""The lead of a role as one process holds it: renewed in time, fenced by its term at every origin.

A process that was frozen believes that it leads until it asks again, or until a write of its term is refused. It
knows nothing of what the role does.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import time

from broker.store.lease import Lease, raise_term
from broker.store.store import Store

log = logging.getLogger(__name__)


class Deposed(Exception):
    """A later leader took over: this one's lease had run out unnoticed."""


class Lead:
    """`hold()` before each turn, `raise_term(origin)` before a term's first write there. Both raise Unavailable."""

    def __init__(self, store: Store, role: str, ttl_ms: int, holder: str = "") -> None:
        self.term = 0  #: as of the last `hold()`; 0: another one leads
        self._store = store
        self._role = role
        own_name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._lease = Lease(store, role, holder or own_name, ttl_ms)
        self._renew_seconds = ttl_ms / 3000
        self._renew_at = 0.0
        self._raised: set[str] = set()
        self._led = False  # and nobody was told yet that it does no longer

    def hold(self) -> int:
        """Take the lead, or renew it when that is due: its term, 0 while another one leads."""
        now = time.monotonic()
        if now >= self._renew_at:
            term = self._lease.hold()
            if term != self.term:
                self.term = term
                self._raised.clear()
            self._renew_at = now + self._renew_seconds
            if term:
                self._led = True
            else:
                self._tell_lost()
        return self.term

    def raise_term(self, origin: str) -> None:
        """Have the origin refuse what an earlier leader may still write. Raises Deposed, Damaged.

        Where it was born after a later leader had raised its term everywhere, nothing there tells of one: so it is
        asked once more who leads, now that the origin is known. Whoever takes the lead after that finds it listed.
        """
        if origin not in self._raised:
            if self._lease.hold() != self.term:
                raise Deposed
            raise_term(self._store, origin, self._role, self.term)
            self._raised.add(origin)

    def lose(self) -> None:
        """A later leader wrote: say so, and ask before anything else is done."""
        self._tell_lost()
        self.doubt()

    def _tell_lost(self) -> None:
        if self._led:
            log.warning("another %s leads now: this one stands by", self._role)
        self._led = False

    def doubt(self) -> None:
        """Something went wrong: ask before anything else is done."""
        self.term, self._renew_at = 0, 0.0

    def release(self) -> None:
        """Give the lead to another one at once. Raises Unavailable; the lease runs out by itself then."""
        self.doubt()
        self._led = False
        self._lease.release()
