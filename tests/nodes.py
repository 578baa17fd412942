"""Nodes without files or clocks: each holds a key, gives its card, and says what it is told to say of others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, cached_property
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from broker.rules.certificate import Certificate, read_certificate
from broker.rules.signed import message, to_text
from broker.rules.trust import Anchor, Card, Pin
from broker.rules.vouch import Anchors
from broker.rules.word import Endorsement, Removal
from broker.store import mint

NOW = 1_800_000_000_000


class Node:
    """One node in one epoch; `at` is the same one in another."""

    def __init__(self, node: str, epoch: int = 1) -> None:
        self.node = node
        self.epoch = epoch
        self.key = Ed25519PrivateKey.generate()

    @property
    def anchor(self) -> Anchor:
        return Anchor.of(self.certificate, self.epoch)

    @cached_property
    def certificate(self) -> Certificate:
        return read_certificate(mint.certificate(self.key, self.node, NOW).decode())

    def sign(self, tag: str, body: Mapping[str, Any]) -> str:
        return to_text(self.key.sign(message(tag, body)))

    @cache  # noqa: B019 - the nodes of a test are few, and signing is dear
    def at(self, epoch: int) -> Node:
        other = Node.__new__(Node)
        other.__dict__.update(self.__dict__, certificate=self.certificate, epoch=epoch)
        return other

    @cache  # noqa: B019
    def of(self, subject: Node, now_ms: int = NOW) -> Endorsement:
        """This node's word for another."""
        return Endorsement.signed(self, subject.card(), now_ms)

    def against(self, subject: Node, now_ms: int = NOW) -> Removal:
        """This node's proof that it removes another."""
        return Removal.signed(self, subject.card(), now_ms)

    def card(self, *said: Endorsement | Node, name: str = "") -> Card:
        """What others pin, with what was said of it, and with the word of each of these nodes."""
        words = tuple(by.of(self) if isinstance(by, Node) else by for by in said)
        return replace(Card.of(self.certificate, self.epoch, name=name), endorsements=words)

    def pin(self, *said: Endorsement | Node, name: str = "") -> Pin:
        return Pin.of(self.card(*said, name=name), NOW)


def anchors(*pinned: Node, own: Node | None = None) -> Anchors:
    """What it is to have pinned these, as `own`."""
    pins = {node.node: node.pin() for node in pinned}
    return Anchors(pins, own and own.anchor)
