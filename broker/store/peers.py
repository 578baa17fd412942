"""The files of the trust store: one a peer, and the outbox, which together survive a crash at any moment.

A peer's file holds its pin, or the proof that it was removed, and the number of the change that wrote it. A change is
three steps: the outbox names it as begun; the peer's file is replaced or unlinked; memory follows. So there is no
moment at which a change stands on disk and its announcement does not: whoever opens the folder sees by the number in
the peer's file (a removal without a proof: by its absence) whether what was begun came to pass. After a failure this
process looks as well, just as it would after a crash.

It may not know who is trusted. For one thread at a time; all but `forget` is called while the folder's lock is held.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from broker.errors import BrokerError, Untrusted
from broker.rules.key import check_name
from broker.rules.signed import canonical, parse
from broker.rules.strict import RECORD_BYTES_MAX
from broker.rules.trust import MEMBERS_MAX, Pin
from broker.rules.word import Removal
from broker.store import durable
from broker.store.outbox import (
    FORGOTTEN,
    REMOVED,
    Announcement,
    Outbox,
    renumbered,
)

#: A peer as it is kept.
Peer = Pin | Removal

#: Pins and proofs together. No proof is ever let go of to make room: that would admit the removed one again.
PEERS_MAX = 2 * MEMBERS_MAX

#: What reading a file that is none of ours can raise.
_UNREADABLE = (OSError, BrokerError, KeyError, TypeError)

_log = logging.getLogger(__name__)


class Peers:
    """The folder as this process knows it. `pins` and `removals` are whole new mappings after each change."""

    def __init__(self, folder: Path, waiting_max: int) -> None:
        self._folder = folder / "peers"
        self._outbox_path = folder / "outbox.json"
        self._waiting_max = waiting_max
        self._stamp: tuple[int, ...] | None = None
        self._gen = 0
        self._waiting: tuple[Announcement, ...] = ()
        self._unwritten: tuple[Announcement, ...] = ()  # forgotten while the disk failed
        #: Pins that this process let go of although their files stand.
        self.forgotten: Mapping[str, Pin] = MappingProxyType({})
        #: Whose files were passed over: what they hold, perhaps the proof of a removal, is not known.
        self.damaged: frozenset[str] = frozenset()
        self.pins: Mapping[str, Pin] = MappingProxyType({})
        self.removals: Mapping[str, Removal] = MappingProxyType({})
        durable.make_folder(folder)
        durable.make_folder(self._folder)

    @property
    def waiting(self) -> tuple[Announcement, ...]:
        """The changes that were not yet told to Redis, in order."""
        return self._waiting + self._unwritten

    @property
    def is_current(self) -> bool:
        """Whether nobody changed the files since this process last looked."""
        return self._stamp == self._stamp_now()

    # --- reading -------------------------------------------------------------------------------

    def load(self) -> None:
        """Take in what the files say. Raises Unwritable as `load_peers`, and where the outbox cannot be settled."""
        stamp = self._stamp_now()
        outbox = self._read_outbox()
        begun = outbox.begun
        if begun is not None:
            # Whoever began it may be dead, or have failed, before this: what is told now must outlast a power cut.
            durable.sync(self._folder)
        gens = self.load_peers()
        if begun is not None:
            is_written = gens.get(begun.node) == begun.gen
            is_unlinked = begun.change == REMOVED and begun.node not in gens
            outbox = outbox.settled(came_to_pass=is_written or is_unlinked)
        self._gen = max(self._gen, outbox.gen, *gens.values(), 0)
        if self._unwritten and self._unwritten[0].gen <= outbox.gen:
            self._unwritten = renumbered(self._unwritten, self._gen)
            self._gen = self._unwritten[-1].gen
        self._waiting = outbox.waiting
        self._stamp = stamp

    def load_peers(self) -> dict[str, int]:
        """Take in the peers; give for each file the number of the change that wrote it, 0 for a bad one.

        Raises Unwritable where the folder cannot be read: memory stays as it is.
        """
        with durable.disk_errors(self._folder, "read"):
            names = sorted(path.name for path in self._folder.iterdir())
        names = [name for name in names if name.endswith(".json")]
        if len(names) > PEERS_MAX:
            _log.warning("of %s, all files after %d are passed over", self._folder, PEERS_MAX)
        found: dict[str, Peer] = {}
        gens = {name.removesuffix(".json"): 0 for name in names}
        for name in names[:PEERS_MAX]:
            node = name.removesuffix(".json")
            try:
                gens[node], found[node] = self._read(node)
            except _UNREADABLE as wrong:
                _log.warning("in %s, %r is passed over: %s", self._folder, name, wrong)
        self.damaged = frozenset(gens.keys() - found.keys())
        self._hold(found)
        return gens

    def sweep(self) -> None:
        """Unlink what killed writers left unfinished."""
        for folder in (self._folder, self._folder.parent):
            durable.sweep(folder)

    def _read(self, node: str) -> tuple[int, Peer]:
        return _from_bytes(node, durable.read(self._path(node), RECORD_BYTES_MAX) or b"")

    def _read_outbox(self) -> Outbox:
        with durable.disk_errors(self._outbox_path, "read"):
            data = durable.read(self._outbox_path)
        try:
            return Outbox() if data is None else Outbox.read(data)
        except _UNREADABLE as wrong:
            # The pins are not held up by it: numbers go on from theirs, or from where the stream stands.
            _log.warning(
                "what waited in %s is never announced, the next change begins it anew: %s",
                self._outbox_path,
                wrong,
            )
            return Outbox()

    def _stamp_now(self) -> tuple[int, ...]:
        # Every change replaces the outbox first and takes its stamp last, so one that failed is looked into again.
        try:
            found = self._outbox_path.stat()
        except OSError:
            return ()
        return found.st_ino, found.st_mtime_ns, found.st_size

    # --- writing -------------------------------------------------------------------------------

    def change(self, change: str, node: str, peer: Peer | None, now_ms: int) -> Announcement:
        """Keep this of the node, or (None) nothing. Raises Unwritable, Untrusted, Invalid: then nothing changed."""
        path = self._path(node)
        begun = Announcement(self._gen + 1, change, node, now_ms)
        data = b""
        if peer is not None:
            data = _to_bytes(begun.gen, peer)
            _, peer = _from_bytes(node, data)  # what could not be read again is never written
        self._gen = begun.gen
        self._save(self.waiting, begun)
        if peer is None:
            durable.remove(path)
        else:
            durable.replace(path, data)
        self._waiting = (*self._waiting, begun)
        self.damaged -= {node}
        held: dict[str, Peer] = {**self.removals, **self.pins}
        held.pop(node, None)
        if peer is not None:
            held[node] = peer
        self.forgotten = MappingProxyType(
            {name: pin for name, pin in self.forgotten.items() if name != node}
        )
        self._hold(held)
        self._stamp = self._stamp_now()
        return begun

    def forget(self, node: str, now_ms: int) -> Announcement:
        """Let go of the pin in memory alone; a reload does not bring it back, the next start does."""
        self._gen += 1
        told = Announcement(self._gen, FORGOTTEN, node, now_ms, persisted=False)
        self.forgotten = MappingProxyType({**self.forgotten, node: self.pins[node]})
        self._hold({**self.removals, **self.pins})
        self._unwritten = (*self._unwritten, told)
        return told

    def flush(self) -> None:
        """Write down what was only forgotten. Raises Unwritable: it waits in memory then."""
        self._settle(self.waiting)

    def told(self, gen: int) -> None:
        """Strike what was announced, up to this number. Raises Unwritable: the file may still hold it then."""
        self._unwritten = tuple(told for told in self._unwritten if told.gen > gen)
        self._settle(tuple(told for told in self.waiting if told.gen > gen))

    def renumber(self, first: int, above: int) -> None:
        """Give all that waits from the number `first` on numbers above `above`. Raises Unwritable: nothing changed."""
        kept = tuple(told for told in self.waiting if told.gen < first)
        moved = renumbered(self.waiting[len(kept) :], max(self._gen, above))
        self._gen = moved[-1].gen
        self._settle((*kept, *moved))

    def _settle(self, waiting: tuple[Announcement, ...]) -> None:
        self._save(waiting)
        self._stamp = self._stamp_now()

    def _save(self, waiting: tuple[Announcement, ...], begun: Announcement | None = None) -> None:
        over = len(waiting) + (begun is not None) - self._waiting_max
        if over > 0:
            waiting = waiting[over:]
            _log.warning("the oldest announcements that wait for Redis are dropped: see the bound")
        durable.replace(self._outbox_path, Outbox(self._gen, waiting, begun).to_bytes())
        self._waiting, self._unwritten = waiting, ()

    def _hold(self, peers: Mapping[str, Peer]) -> None:
        self.pins = MappingProxyType(
            {
                node: peer
                for node, peer in peers.items()
                if isinstance(peer, Pin) and node not in self.forgotten
            }
        )
        self.removals = MappingProxyType(
            {node: peer for node, peer in peers.items() if isinstance(peer, Removal)}
        )

    def _path(self, node: str) -> Path:
        return self._folder / f"{check_name('node', node)}.json"


def _to_bytes(gen: int, peer: Peer) -> bytes:
    kind = "pin" if isinstance(peer, Pin) else "removal"
    return canonical({"gen": gen, kind: peer.to_json()})


def _from_bytes(node: str, data: bytes) -> tuple[int, Peer]:
    said = parse(data, RECORD_BYTES_MAX)
    gen = said.pop("gen")
    if type(gen) is not int or gen < 1 or len(said) != 1:
        raise Untrusted("malformed_record", "neither a pin nor a removal")
    peer = Pin.from_json(said["pin"]) if "pin" in said else Removal.from_json(said["removal"])
    if peer.node != node:
        raise Untrusted("name_mismatch", f"what it holds is of {peer.node}")
    return gen, peer
