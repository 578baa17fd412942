"""The trust store: whom this node trusts, on its own disk, where no server can roll it back.

Every change is decided by `broker.rules.admission`, stands on disk before it stands in memory, and is announced exactly
once, after the locks are released; what changes nothing is silent. Values that are handed out are frozen. Threads may
share a store, and processes a folder: each looks whether another one changed something before it decides or answers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock

from broker.errors import Refused, Untrusted, Unwritable
from broker.rules.admission import Admitted, admissible, endorsed, pinned, renamed
from broker.rules.trust import Anchor, Card, Pin
from broker.rules.vouch import Anchors, check_removal
from broker.rules.word import Endorsement, Removal
from broker.store import durable
from broker.store.outbox import ENDORSED, PINNED, REMOVED, RENAMED, Announcement
from broker.store.peers import PEERS_MAX, Peers

_log = logging.getLogger(__name__)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class TrustStore:
    """What one folder holds. `own` is this node itself, whose word counts beside that of the pinned peers.

    `on_change` hears of each change of this process, in the thread that made it; it may call the store. Changes of
    several threads can reach it in another order than their numbers. Opening raises Unwritable where the peers cannot
    even be read; where only the rest of the folder fails, they are trusted all the same.
    """

    def __init__(
        self,
        folder: Path,
        own: Anchor | None = None,
        *,
        on_change: Callable[[Announcement], None] | None = None,
        clock: Callable[[], int] = _wall_ms,
        waiting_max: int = 10_000,
    ) -> None:
        self.folder = folder
        self._own = own
        self._on_change = on_change
        self._clock = clock
        self._thread = Lock()
        self._peers = Peers(folder, waiting_max)
        try:
            with durable.locked(folder):
                self._peers.sweep()
                self._peers.load()
        except Unwritable as failed:
            _log.warning("the trust store can only be read: %s", failed)
            self._peers.load_peers()

    # --- reading -------------------------------------------------------------------------------

    @property
    def pins(self) -> Mapping[str, Pin]:
        """Every trusted peer by its node name, as of now."""
        self._glance()
        return self._peers.pins

    @property
    def removals(self) -> Mapping[str, Removal]:
        """The proofs of removals that stand: up to their epoch nobody pins the node again."""
        self._glance()
        return self._peers.removals

    @property
    def anchors(self) -> Anchors:
        """Whose word counts now."""
        return Anchors(self.pins, self._own)

    def get(self, node: str) -> Pin | None:
        """The pin of a peer, None where it is not trusted."""
        return self.pins.get(node)

    def removal(self, node: str) -> Removal | None:
        """The proof that the node was removed, None where there is none, or a newer admission."""
        return self.removals.get(node)

    def match(self, node: str, der: bytes) -> bool:
        """Whether these are exactly the bytes of the certificate that is pinned for the node."""
        pin = self.get(node)
        return pin is not None and pin.certificate.der == der

    # --- changing: each tells whether anything changed, and raises Unwritable ---------------------

    def pin(self, card: Card) -> bool:
        """Trust a peer on the operator's own word. Raises Refused and Untrusted as `admission.pinned`."""
        with self._changing() as changes:
            known = self._peers.pins.get(card.node)
            removal = self._peers.removals.get(card.node)
            now = self._clock()
            new = pinned(known, removal, Pin.of(card, now), self._anchors, now)
            self._keep(known, new, changes)
        return bool(changes)

    def admit(self, cards: Iterable[Card]) -> Admitted:
        """Trust whom trusted members vouch for, to a fixpoint: whom that pinned, and who was refused by which rule.

        Whose own file was passed over is refused `damaged`: it may hold the proof of a removal. The operator may pin.
        """
        with self._changing() as changes:
            given = list(cards)
            refused = {card: "damaged" for card in given if card.node in self._peers.damaged}
            sound = [card for card in given if card not in refused]
            found = admissible(sound, self._peers.removals, self._anchors, self._clock())
            # However many steps led there: one write a peer.
            for node, pin in {step.node: step for step in found.pins}.items():
                self._keep(self._peers.pins.get(node), pin, changes)
        return Admitted(found.pins, {**found.refused, **refused})

    def endorse(self, node: str, endorsements: Iterable[Endorsement]) -> bool:
        """Add endorsements of a pinned peer, all or none. Raises Refused and Untrusted as `admission.endorsed`."""
        with self._changing() as changes:
            known = self._peers.pins.get(node)
            if known is not None:
                new = endorsed(known, endorsements, self._anchors, self._clock())
                self._keep(known, new, changes)
        return bool(changes)

    def rename(self, node: str, name: str) -> bool:
        """Show a pinned peer under another name. Raises Invalid."""
        with self._changing() as changes:
            known = self._peers.pins.get(node)
            new = None if known is None else renamed(known, name)
            if new is not None:
                changes.append(self._peers.change(RENAMED, node, new, self._clock()))
        return bool(changes)

    def remove(self, node: str, proof: Removal | None = None) -> bool:
        """No longer trust a peer; with a proof, not before a higher epoch of it.

        What was only forgotten can be removed as well. Raises Untrusted: `wrong_subject`, and as `check_removal`.
        """
        with self._changing() as changes:
            known = self._peers.pins.get(node) or self._peers.forgotten.get(node)
            if proof is not None:
                if proof.node != node:
                    raise Untrusted("wrong_subject", f"the proof is of {proof.node}, not {node}")
                standing = self._peers.removals.get(node)
                if standing is not None and proof.epoch <= standing.epoch:
                    return False
                check_removal(proof, known, self._anchors, self._clock())
            if known is not None:
                changes.append(self._peers.change(REMOVED, node, proof, self._clock()))
        return bool(changes)

    def forget(self, node: str) -> bool:
        """Stop trusting a peer at once, in this process's memory alone: for when the disk takes no removal.

        It needs no disk, raises nothing, and is announced as not persisted.
        """
        told = None
        with self._thread:
            try:
                with durable.locked(self.folder):
                    self._look()
                    if told := self._forget(node):
                        self._peers.flush()
            except Unwritable as failed:
                _log.warning("%s is forgotten without the disk: %s", node, failed)
                told = told or self._forget(node)
        if told is not None:
            self._announce(told)
        return told is not None

    def reload(self) -> None:
        """Read every file anew. What was forgotten stays so. Raises Unwritable: memory stays as it is."""
        with self._thread, durable.locked(self.folder):
            self._peers.load()

    # --- the outbox, for `broker.store.announce` ---------------------------------------------------

    def pending(self) -> tuple[Announcement, ...]:
        """The changes that Redis was not yet told of, in order."""
        with self._thread:
            with suppress(Unwritable), durable.locked(self.folder):
                self._look()
            return self._peers.waiting

    def announced(self, gen: int) -> None:
        """Redis was told of every change up to this number. Raises Unwritable."""
        with self._thread, durable.locked(self.folder):
            self._look()
            if any(told.gen <= gen for told in self._peers.waiting):
                self._peers.told(gen)

    def renumber(self, first: Announcement, above: int) -> None:
        """Give the changes that wait, from `first` on, numbers above `above`. Raises Unwritable: they keep theirs.

        Where `first` no longer waits under its number, another process was here before: nothing happens.
        """
        with self._thread, durable.locked(self.folder):
            self._look()
            if first in self._peers.waiting:
                self._peers.renumber(first.gen, above)

    # --- within ------------------------------------------------------------------------------------

    @property
    def _anchors(self) -> Anchors:
        return Anchors(self._peers.pins, self._own)

    @contextmanager
    def _changing(self) -> Iterator[list[Announcement]]:
        """Hold both locks; what is listed meanwhile is announced after they are released, also before an error."""
        changes: list[Announcement] = []
        try:
            with self._thread, durable.locked(self.folder):
                self._look()
                yield changes
        finally:
            for told in changes:
                self._announce(told)

    def _look(self) -> None:
        if not self._peers.is_current:
            self._peers.load()

    def _glance(self) -> None:
        """Look whether another process changed something. Whoever only reads waits for no thread of this process."""
        if self._peers.is_current or not self._thread.acquire(blocking=False):
            return
        try:
            with durable.locked(self.folder):
                self._look()
        except Unwritable as failed:
            _log.debug("memory is as current as it can be: %s", failed)
        finally:
            self._thread.release()

    def _keep(self, known: Pin | None, new: Pin | None, changes: list[Announcement]) -> None:
        if new is None:
            return
        kept = {*self._peers.pins, *self._peers.removals, *self._peers.damaged}
        if len(kept) >= PEERS_MAX and new.node not in kept:
            raise Refused(
                "too_many_members",
                f"{len(kept)} peers are kept, pinned or removed: {self.folder} takes no more",
            )
        change = ENDORSED if known is not None and known.epoch == new.epoch else PINNED
        changes.append(self._peers.change(change, new.node, new, self._clock()))

    def _forget(self, node: str) -> Announcement | None:
        return self._peers.forget(node, self._clock()) if node in self._peers.pins else None

    def _announce(self, told: Announcement) -> None:
        if self._on_change is None:
            return
        try:
            self._on_change(told)
        except Exception:  # noqa: BLE001 - whatever a listener raises
            # The change stands, and its announcement waits: whoever hears of it cannot undo that.
            _log.exception("telling that %s was %s failed", told.node, told.change)
