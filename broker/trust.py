"""Trust: this node's identity, the peers that it trusts, and what it tells of them, as one thing to open and to ask.

It works without Redis: a change stands once it is on disk, and `announce` tells what waits whenever Redis can be
reached. What is decided, kept and told stands in `broker.rules.admission`, `broker.store.trust` and
`broker.store.announce`; here is only who may ask for what, and what is no news.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from broker.config import Settings, settings
from broker.errors import Misconfigured, NotFound, Refused, Untrusted
from broker.rules.certificate import read_certificate
from broker.rules.key import check_name
from broker.rules.signed import parse
from broker.rules.strict import RECORD_BYTES_MAX, check_display, check_epoch
from broker.rules.trust import Card, Pin
from broker.rules.vouch import check_endorsement
from broker.rules.word import Endorsement, Removal
from broker.store.announce import Announcer, announcements
from broker.store.connection import check_version
from broker.store.discover import find_url
from broker.store.identity import Identity
from broker.store.outbox import Announcement
from broker.store.store import Store
from broker.store.trust import TrustStore

#: Words that do not count here, but that nobody need have forged: a pin does without them.
_HARMLESS = frozenset({"unknown_endorser", "stale_epoch", "expired"})


class Pinned(NamedTuple):
    """What became of a card: `change` is `pinned`, `endorsed`, `renamed`, or empty where it said nothing new."""

    pin: Pin
    change: str


@dataclass(frozen=True)
class Admission:
    """What became of a list of cards, each of which is in one of the three.

    `refused` tells of each its node, the rule, and why: of an `unvouched` one by which rule each endorser's word did
    not count, else empty.
    """

    pinned: tuple[Pinned, ...]
    known: tuple[str, ...]
    refused: tuple[tuple[str, str, str], ...]


class Trust:
    """One node's trust. Made by `open` or `init`; for one thread, several processes may share the folder."""

    def __init__(self, config: Settings, identity: Identity) -> None:
        self.config = config
        self.identity = identity
        self.store = TrustStore(
            config.trust_dir, identity.anchor, waiting_max=config.bounds.announcements_max
        )

    @classmethod
    def open(cls, config: Settings | None = None) -> Self:
        """The trust of this node. Raises Misconfigured where it has no identity, or one that is damaged."""
        config = config or settings()
        return cls(config, _load(config))

    @classmethod
    def init(cls, config: Settings | None = None, *, epoch: int | None = None) -> tuple[Self, bool]:
        """Give this node its identity, or raise its epoch to `epoch`, and whether that changed anything.

        Raises Misconfigured as `open`, Invalid, Refused("lower_epoch"), Unwritable.
        """
        config = config or settings()
        if epoch is not None:
            check_epoch(epoch)
        try:
            before = _load(config)
        except NoIdentity:
            before = None
        identity = before or Identity.create(config.trust_dir, config.node, _now_ms())
        if epoch is not None:
            identity = identity.raise_epoch(epoch)
        return cls(config, identity), before is None or before.epoch != identity.epoch

    # --- looking ----------------------------------------------------------------------------------

    def cards(self) -> list[Card]:
        """What this node can give of itself, first, and of every peer, by name."""
        pins = self.store.pins
        return [self.identity.card, *(pins[node].card for node in sorted(pins))]

    def card(self, node: str) -> Card:
        """What this node can give of one node. Raises NotFound, Invalid."""
        if check_name("node", node) == self.identity.node:
            return self.identity.card
        return self._pin(node).card

    def _pin(self, node: str) -> Pin:
        pin = self.store.get(check_name("node", node))
        if pin is None:
            proof = self.store.removal(node)
            removed = f": {proof.by} removed it in epoch {proof.epoch}" if proof else ""
            raise NotFound(f"{node} is not pinned here{removed}")
        return pin

    # --- changing ---------------------------------------------------------------------------------

    def pin(self, card: Card, *, name: str | None = None) -> tuple[Pinned, dict[str, str]]:
        """Trust a peer on the operator's own word; `name` is what it is to be called, else the name it has stays.

        Also gives whose endorsements on the card were left out, and the rule by which they do not count here. Raises
        Refused and Untrusted as `admission.pinned`: a word that was forged refuses the whole card.
        """
        known = self.store.get(card.node)
        if name is not None:
            card = replace(card, name=check_display(name))
        elif known is not None:
            card = replace(card, name=known.name)
        rules = {word: self._rule(word) for word in card.endorsements}
        left_out = {word.by: rule for word, rule in rules.items() if rule in _HARMLESS}
        kept = tuple(word for word, rule in rules.items() if rule not in _HARMLESS)
        change = ""
        if self.store.pin(replace(card, endorsements=kept)):
            is_merge = known is not None and known.epoch == card.epoch
            change = "endorsed" if is_merge else "pinned"
        if name is not None and self.store.rename(card.node, name):
            change = change or "renamed"
        return Pinned(self._pin(card.node), change), left_out

    def admit(self, cards: Iterable[Card]) -> Admission:
        """Trust whom trusted members vouch for, and so on; this node's own card says nothing new to it."""
        others = [card for card in cards if card.node != self.identity.node]
        before = self.store.pins
        found = self.store.admit(others)
        refused = [(card.node, rule, self._why(card, rule)) for card, rule in found.refused.items()]
        changed = {pin.node: pin for pin in found.pins}
        seen = {card.node for card in others if card not in found.refused}
        pinned = []
        for node, pin in changed.items():
            is_merge = node in before and before[node].epoch == pin.epoch
            pinned.append(Pinned(pin, "endorsed" if is_merge else "pinned"))
        return Admission(tuple(pinned), tuple(sorted(seen - changed.keys())), tuple(refused))

    def _why(self, card: Card, rule: str) -> str:
        if rule != "unvouched":
            return ""
        each = (f"{word.by}: {self._rule(word)}" for word in card.endorsements)
        return ", ".join(dict.fromkeys(each))

    def _rule(self, word: Endorsement) -> str:
        """By which rule a word does not count; empty where it does."""
        try:
            check_endorsement(word, self.store.anchors, _now_ms())
        except Untrusted as wrong:
            return wrong.rule
        return ""

    def endorse(self, node: str) -> tuple[Card, bool]:
        """Vouch for a peer: the card to pass on, and whether the word is new. Raises NotFound, Refused, Untrusted."""
        self._check_other(node)
        pin = self._pin(node)
        word = Endorsement.signed(self.identity, pin, _now_ms())
        is_new = self.store.endorse(node, [word])
        return self.card(node), is_new

    def remove(self, node: str) -> tuple[Removal | None, bool]:
        """No longer trust a peer: the proof for the others, and whether anything changed.

        Of a node that was removed before, the proof that stands; none where this node's own certificate has expired,
        for its word would not count. Raises NotFound, Refused("own_node"), Unwritable.
        """
        self._check_other(node)
        pin = self.store.get(node)
        if pin is None:
            standing = self.store.removal(node)
            if standing is None:
                raise NotFound(f"{node} is not pinned here")
            return standing, False
        if self.identity.expired:
            return None, self.store.remove(node)
        proof = Removal.signed(self.identity, pin, _now_ms())
        is_new = self.store.remove(node, proof)
        return self.store.removal(node) or proof, is_new

    def remove_by(self, proof: Removal) -> bool:
        """No longer trust a peer on a trusted member's proof; False where this epoch of it was removed already.

        Raises Untrusted as `vouch.check_removal`, Refused("own_node"), Unwritable.
        """
        self._check_other(proof.node)
        return self.store.remove(proof.node, proof)

    def _check_other(self, node: str) -> None:
        if check_name("node", node) == self.identity.node:
            raise Refused("own_node", f"{node} is this node itself")

    # --- telling ----------------------------------------------------------------------------------

    def announce(self) -> int:
        """Tell Redis what waits; how many there were. Without any, Redis is not asked for.

        Raises Unavailable, Misconfigured, Damaged, Unwritable: then all that was not told waits on.
        """
        if not self.store.pending():
            return 0
        with _redis(self.config) as redis:
            bound = self.config.bounds.announcements_max
            announcer = Announcer(redis, self.identity.node, self.store, announcements_max=bound)
            return announcer.drain()


class NoIdentity(Misconfigured):
    """This node has no identity yet."""


def read_card(raw: bytes, *, epoch: int | None = None) -> Card:
    """A card from its JSON, or made of a bare certificate in PEM (epoch 1 unless it is given). Raises Untrusted.

    `epoch` is the operator's word against the card's: what was said of another epoch is left out.
    """
    if raw.lstrip()[:1] not in (b"{", b"["):
        return Card.of(read_certificate(raw.decode(errors="replace")), epoch or 1)
    card = Card.from_json(parse(raw, RECORD_BYTES_MAX))
    if epoch is None or epoch == card.epoch:
        return card
    return replace(card, epoch=check_epoch(epoch), endorsements=())


def read_announcements(node: str, count: int = 1_000) -> list[Announcement]:
    """What a node announced: the newest `count`, oldest first. Raises Unavailable, Damaged, Invalid."""
    config = settings()
    with _redis(config) as redis:
        return announcements(redis, check_name("node", node), count)


@contextmanager
def _redis(config: Settings) -> Iterator[Store]:
    with closing(Store.from_url(find_url(config), config.namespace)) as store:
        check_version(store.client)
        yield store


def _load(config: Settings) -> Identity:
    """This node's identity; raise NoIdentity or Misconfigured, with what to do."""
    try:
        identity = Identity.load(config.trust_dir, _now_ms())
    except NotFound as missing:
        raise NoIdentity(str(missing)) from None
    if identity.node != config.node:
        raise Misconfigured(
            f"{config.trust_dir} holds the identity of {identity.node}, and this is {config.node}: "
            "set BROKER_NODE or BROKER_TRUST_DIR"
        )
    return identity


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
