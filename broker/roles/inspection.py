"""What an auditor looks at, in bounded pieces. It reads; what is done about it is the auditor's.

A part that fails ends alone, and takes no other part with it: its error comes as a piece.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from broker.errors import BrokerError
from broker.roles.leftovers import Leftovers
from broker.rules.audit import Finding
from broker.rules.liveness import Budgets
from broker.store.audit import Audit
from broker.store.beats import Beats
from broker.store.counts import read_counts
from broker.store.groups import Groups
from broker.store.lease import fence
from broker.store.scan import mending
from broker.store.store import Store
from broker.store.strays import Strays
from broker.store.typed import find_unreadable, find_wrong, fleet_keys, said_keys
from broker.store.view import View

#: How many keys one piece asks for their type: some milliseconds.
KEYS_MAX = 1_000

#: What each piece found, or why it failed.
Piece = list[Finding] | BrokerError
Pieces = Iterator[Piece]


class Inspection:
    """Looks at one store."""

    def __init__(self, store: Store, budgets: Budgets, leftovers: Leftovers) -> None:
        #: How many origins the newest round has looked through so far.
        self.origins = 0
        #: Those of them whose `ids` was being made anew when its look began, and since when.
        self.mending: dict[str, str] = {}
        #: Origins whose lists hold, at two looks at the keys in turn, not as many jobs, or whose `ids` went since.
        self.uneven: set[str] = set()
        self._odd: set[str] = set()
        self._listed: set[str] = set()
        self._store = store
        self._budgets = budgets
        self._view = View(store)
        self._groups = Groups(store)
        self._leftovers = leftovers

    def of_keys(self) -> Pieces:
        """The keys that everybody stands on: those of the fleet, then those of each origin."""
        return _guarded(self._through_keys())

    def of_everything(self) -> Pieces:
        """One round: all keys of the namespace, the workers, the books of each origin known by then, RQ's notes."""
        self.origins = 0
        self.mending.clear()
        strays = Strays(self._store)
        yield from _guarded(strays.walk())
        yield from _guarded(Beats(self._store, strays.telling).walk())
        yield from _guarded(self._through_origins(strays))
        yield from _guarded(self._leftovers.look())

    def _through_keys(self) -> Pieces:
        self.uneven = set()
        yield find_wrong(self._store, fleet_keys(self._store))
        names = said_keys(self._store)
        groups, origins = self._groups.names(), self._view.origins()
        for origin in origins:
            names += self._store.keys.of(origin).fixed(groups)
        for at in range(0, len(names), KEYS_MAX):
            yield find_wrong(self._store, names[at : at + KEYS_MAX])
        for at in range(0, len(origins), KEYS_MAX):
            yield find_unreadable(self._store, origins[at : at + KEYS_MAX])
        odd, listed, lost = set[str](), set[str](), set[str]()
        for at in range(0, len(origins), KEYS_MAX):
            for origin, counts in read_counts(self._store, origins[at : at + KEYS_MAX]):
                if counts.ids:
                    listed.add(origin)
                elif origin in self._listed:
                    lost.add(origin)
                if counts.ids != counts.live + counts.done:
                    odd.add(origin)
            yield []
        # Writers are at work: only what stays so is worth a round. All of `ids` may have gone with its jobs, once.
        self.uneven = (odd & self._odd) | lost
        self._odd, self._listed = odd, listed

    def _through_origins(self, strays: Strays) -> Pieces:
        for origin in self._view.origins():
            also = strays.unlisted.get(origin, ())
            yield from _guarded(self._through_books(origin, also))

    def _through_books(self, origin: str, also: Sequence[str]) -> Pieces:
        fence(self._store, origin)
        mark = mending(self._store, origin)
        audit = Audit(self._store, origin, self._budgets, also)
        while not audit.step():
            yield []
        self.origins += 1
        if mark:
            self.mending[origin] = mark
        yield audit.findings


def _guarded(pieces: Iterator[list[Finding]] | Pieces) -> Pieces:
    try:
        yield from pieces
    except BrokerError as error:
        yield error
