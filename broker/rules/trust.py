"""Who is trusted, as records: the card that nodes give each other, and the pin that a node keeps of a peer.

A node is pinned under its name with one certificate and one *epoch*, the number of its admission: whoever was removed
comes back with a higher one. Whether a word about it counts is `broker.rules.vouch`'s, what follows from it
`broker.rules.admission`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

from broker.errors import Untrusted
from broker.rules.certificate import Certificate, read_certificate
from broker.rules.signed import parse_value
from broker.rules.strict import CHECKS, RECORD_BYTES_MAX, check_display, check_epoch, fields
from broker.rules.word import Endorsement, Subject

ENDORSEMENTS_MAX = 16
MEMBERS_MAX = 1_024


@dataclass(frozen=True)
class Anchor:
    """By what the word of one node is checked: its key, its current epoch, and until when (epoch ms) it holds."""

    node: str
    public_key: bytes = field(repr=False)
    epoch: int
    not_after_ms: int

    @classmethod
    def of(cls, certificate: Certificate, epoch: int) -> Self:
        return cls(certificate.node, certificate.public_key, epoch, certificate.not_after_ms)


@dataclass(frozen=True)
class Card:
    """What one node gives another of itself or of a third: a certificate, its epoch, and who vouches for both."""

    node: str
    name: str
    epoch: int
    certificate_pem: str = field(repr=False)
    endorsements: tuple[Endorsement, ...] = ()

    @classmethod
    def of(cls, certificate: Certificate, epoch: int, *, name: str = "") -> Self:
        """A card for a bare certificate; raise Invalid where epoch or name is outside its bounds."""
        shown = check_display(name) or certificate.node
        return cls(certificate.node, shown, check_epoch(epoch), certificate.pem)

    @staticmethod
    def from_json(said: object) -> Card:
        """Read one; raise Untrusted.

        Rules: those of `strict.fields` and `read_certificate`, `too_many_endorsements`, `name_mismatch` where the
        certificate is another node's, and `wrong_subject` where an endorsement is not for it in this epoch.
        """
        return _card(fields(said, _CARD))

    def to_json(self) -> dict[str, Any]:
        return {
            "node": self.node,
            "name": self.name,
            "epoch": self.epoch,
            "certificate": self.certificate_pem,
            "endorsements": [endorsement.to_json() for endorsement in self.endorsements],
        }

    @property
    def fingerprint(self) -> str:
        return self.certificate.fingerprint

    @cached_property
    def certificate(self) -> Certificate:
        return read_certificate(self.certificate_pem)


@dataclass(frozen=True)
class Pin:
    """A trusted peer, as this node keeps it. `name` is for display alone; `pinned_at` in epoch ms."""

    node: str
    name: str
    epoch: int
    certificate_pem: str = field(repr=False)
    fingerprint: str
    pinned_at: int
    endorsements: tuple[Endorsement, ...] = ()

    @classmethod
    def of(cls, card: Card, now_ms: int) -> Self:
        """The card as it would be pinned now, with every endorsement on it, checked or not."""
        return cls(
            card.node, card.name, card.epoch, card.certificate_pem, card.fingerprint, now_ms,
            card.endorsements,
        )  # fmt: skip

    @classmethod
    def from_json(cls, said: object) -> Self:
        """Read one; raise Untrusted: as `Card.from_json`, and `fingerprint_mismatch`."""
        found = fields(said, _PIN)
        pin = cls.of(_card(found), found["pinned_at"])
        if pin.fingerprint != found["fingerprint"]:
            raise Untrusted(
                "fingerprint_mismatch",
                f"the certificate of {pin.node} is not the one named beside it",
            )
        return pin

    def to_json(self) -> dict[str, Any]:
        return self.card.to_json() | {
            "fingerprint": self.fingerprint,
            "pinned_at": self.pinned_at,
        }

    @property
    def card(self) -> Card:
        """What this node can give of the peer to others."""
        return Card(self.node, self.name, self.epoch, self.certificate_pem, self.endorsements)

    @cached_property
    def certificate(self) -> Certificate:
        return read_certificate(self.certificate_pem)

    @cached_property
    def anchor(self) -> Anchor:
        return Anchor.of(self.certificate, self.epoch)


def read_cards(text: str | bytes) -> tuple[Card, ...]:
    """Read one card, or an array of at most MEMBERS_MAX; raise Untrusted: as `parse` and `Card.from_json`."""
    value = parse_value(text, MEMBERS_MAX * RECORD_BYTES_MAX)
    said = value if isinstance(value, list) else [value]
    if len(said) > MEMBERS_MAX:
        raise Untrusted("too_large", f"{len(said)} cards where {MEMBERS_MAX} are allowed")
    return tuple(map(Card.from_json, said))


def check_subject(endorsement: Endorsement, subject: Subject) -> None:
    """Raise Untrusted("wrong_subject") where the endorsement is not for this certificate in this epoch."""
    about = endorsement.node, endorsement.epoch, endorsement.fingerprint
    if about != (subject.node, subject.epoch, subject.fingerprint):
        raise Untrusted(
            "wrong_subject",
            f"the endorsement by {endorsement.by} is not for the certificate and epoch of {subject.node}",
        )


def _card(found: Mapping[str, Any]) -> Card:
    certificate: Certificate = found["certificate"]
    if certificate.node != found["node"]:
        raise Untrusted(
            "name_mismatch", f"a certificate of {certificate.node} on a card of {found['node']}"
        )
    card = Card(
        node=found["node"],
        name=found["name"] or found["node"],
        epoch=found["epoch"],
        certificate_pem=certificate.pem,
        endorsements=found["endorsements"],
    )
    for endorsement in card.endorsements:
        check_subject(endorsement, card)
    return card


def _endorsements(value: object) -> tuple[Endorsement, ...]:
    if not isinstance(value, list):
        raise TypeError
    if len(value) > ENDORSEMENTS_MAX:
        raise Untrusted(
            "too_many_endorsements",
            f"{len(value)} endorsements where {ENDORSEMENTS_MAX} are allowed",
        )
    return tuple(map(Endorsement.from_json, value))


_CARD = {
    **{name: CHECKS[name] for name in ("node", "name", "epoch", "certificate")},
    "endorsements": _endorsements,
}
_PIN = _CARD | {name: CHECKS[name] for name in ("fingerprint", "pinned_at")}
