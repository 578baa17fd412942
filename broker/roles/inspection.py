"""What an auditor looks at, in bounded pieces. It reads; what is done about it is the auditor's.

A part that fails ends alone, and takes no other part with it: its error comes as a piece.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from broker.errors import BrokerError
from broker.rules.audit import Finding
from broker.rules.liveness import Budgets
from broker.store.audit import Audit
from broker.store.groups import Groups
from broker.store.lease import fence
from broker.store.store import Store
from broker.store.strays import Strays
from broker.store.typed import find_wrong, fleet_keys, said_keys
from broker.store.view import View

#: How many keys one piece asks for their type: some milliseconds.
KEYS_MAX = 1_000

#: What each piece found, or why it failed.
Pieces = Iterator[list[Finding] | BrokerError]


class Inspection:
    """Looks at one store."""

    def __init__(self, store: Store, budgets: Budgets) -> None:
        #: How many origins the newest round has looked through so far.
        self.origins = 0
        self._store = store
        self._budgets = budgets
        self._view = View(store)
        self._groups = Groups(store)

    def of_keys(self) -> Pieces:
        """The keys that everybody stands on: those of the fleet, then those of each origin."""
        return _guarded(self._through_keys())

    def of_everything(self) -> Pieces:
        """One round: all keys of the namespace, then the books of each origin known by then."""
        self.origins = 0
        strays = Strays(self._store)
        yield from _guarded(strays.walk())
        yield from _guarded(self._through_origins(strays))

    def _through_keys(self) -> Pieces:
        yield find_wrong(self._store, fleet_keys(self._store))
        names = said_keys(self._store)
        groups = self._groups.names()
        for origin in self._view.origins():
            names += self._store.keys.of(origin).fixed(groups)
        for at in range(0, len(names), KEYS_MAX):
            yield find_wrong(self._store, names[at : at + KEYS_MAX])

    def _through_origins(self, strays: Strays) -> Pieces:
        for origin in self._view.origins():
            also = strays.unlisted.get(origin, ())
            yield from _guarded(self._through_books(origin, also))

    def _through_books(self, origin: str, also: Sequence[str]) -> Pieces:
        fence(self._store, origin)
        audit = Audit(self._store, origin, self._budgets, also)
        while not audit.step():
            yield []
        self.origins += 1
        yield audit.findings


def _guarded(pieces: Pieces) -> Pieces:
    try:
        yield from pieces
    except BrokerError as error:
        yield error
