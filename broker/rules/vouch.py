"""Whose word counts, and which word: an endorsement or a removal is held against what is pinned now.

It may not know what follows from a word that counts; that is `broker.rules.admission`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from broker.errors import Untrusted
from broker.rules.signed import verify
from broker.rules.trust import Anchor, Pin
from broker.rules.word import Endorsement, Removal


@dataclass(frozen=True)
class Anchors:
    """Whose word counts: every pinned peer, and this node itself where it has an identity."""

    pins: Mapping[str, Pin]
    own: Anchor | None = None

    def get(self, node: str) -> Anchor | None:
        if self.own is not None and node == self.own.node:
            return self.own
        pin = self.pins.get(node)
        return pin.anchor if pin else None

    def is_current(self, word: Endorsement | Removal) -> bool:
        """Whether the word was given in the current epoch of somebody whose word counts."""
        anchor = self.get(word.by)
        return anchor is not None and anchor.epoch == word.by_epoch

    def is_own(self, node: str) -> bool:
        return self.own is not None and node == self.own.node


def check_endorsement(endorsement: Endorsement, anchors: Anchors, now_ms: int) -> None:
    """Raise Untrusted unless this word counts now.

    Rules, the first that fits: `self_endorsement`, `unknown_endorser`, `stale_epoch` (not given in the endorser's
    current epoch), `expired` (the endorser's certificate), `bad_signature`.
    """
    if endorsement.by == endorsement.node:
        raise Untrusted("self_endorsement", f"{endorsement.by} vouches for itself")
    _check_word(endorsement, anchors, now_ms)


def check_removal(removal: Removal, known: Pin | None, anchors: Anchors, now_ms: int) -> None:
    """Raise Untrusted unless this proof of somebody removes what is pinned now. A node may remove itself.

    Rules, the first that fits: `not_pinned`, `other_epoch` (a proof is only taken for the epoch that is pinned: one
    for an invented epoch would bar the real admission), then those of `check_endorsement`.
    """
    if known is None or known.node != removal.node:
        raise Untrusted("not_pinned", f"{removal.node} is not pinned here")
    if known.epoch != removal.epoch:
        raise Untrusted(
            "other_epoch",
            f"the removal is for epoch {removal.epoch} of {removal.node}, pinned is {known.epoch}",
        )
    _check_word(removal, anchors, now_ms)


def _check_word(word: Endorsement | Removal, anchors: Anchors, now_ms: int) -> None:
    anchor = anchors.get(word.by)
    if anchor is None:
        raise Untrusted(
            "unknown_endorser", f"{word.by} is not pinned here: its word does not count"
        )
    if word.by_epoch != anchor.epoch:
        raise Untrusted(
            "stale_epoch",
            f"{word.by} said this in its epoch {word.by_epoch}, its current one is {anchor.epoch}",
        )
    if now_ms > anchor.not_after_ms:
        raise Untrusted("expired", f"the certificate of {word.by} has expired")
    if not verify(anchor.public_key, word.TAG, word.body, word.sig):
        raise Untrusted("bad_signature", f"this is not the signature of {word.by}")
