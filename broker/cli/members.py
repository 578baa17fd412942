"""How trust is shown: nodes and their cards, what became of a card, what was removed and announced."""

from __future__ import annotations

import time
from typing import Any

from broker.cli.output import Columns, Format, instant, note, print_object
from broker.cli.table import Column
from broker.rules.trust import Card
from broker.rules.word import Removal
from broker.text import safe, to_json
from broker.trust import Pinned, Trust


def _expires(shown: dict[str, Any]) -> str:
    is_over = shown["expires_at"] <= time.time() * 1000
    return "expired" if is_over else instant(shown["expires_at"])[:10]


COLUMNS: Columns = (
    (Column("NODE", least=8), lambda shown: shown["node"]),
    (Column("TRUST", 1), lambda shown: shown["trust"]),
    (Column("EPOCH", 2, right=True), lambda shown: shown["epoch"]),
    (Column("FINGERPRINT", least=20), lambda shown: shown["fingerprint"]),
    (Column("EXPIRES", 3, style=lambda text: "bad" if text == "expired" else ""), _expires),
    (Column("ENDORSED BY", 4, least=12), lambda shown: ", ".join(shown["endorsed_by"]) or "-"),
    (Column("NAME", 5, least=8), lambda shown: shown["name"]),
)

ANNOUNCED_COLUMNS: Columns = (
    (Column("ID"), lambda told: told["id"]),
    (Column("AT", 1), lambda told: instant(told["at"])),
    (Column("CHANGE"), lambda told: told["change"]),
    (Column("NODE", least=8), lambda told: told["node"]),
    (Column("PERSISTED", 2), lambda told: "yes" if told["persisted"] else "no"),
)


def line_of(pinned: Pinned) -> str:
    """What became of a card."""
    what = pinned.pin
    if pinned.change == "endorsed":
        return safe(f"endorsed {what.node}, by {', '.join(_endorsers(what.card))}")
    if pinned.change == "renamed":
        return safe(f"renamed {what.node} to {what.name}")
    return safe(f"{pinned.change} {what.node}, epoch {what.epoch}, {what.fingerprint}")


def print_removal(removal: Removal, output: Format, *, is_new: bool) -> None:
    """The proof, to be passed on, or a line."""
    if not is_new:
        note(f"{removal.node} is already removed")
    if output is not Format.table:
        print(to_json(removal.to_json(), indent=2 if output is Format.json else None))
    elif is_new:
        print(safe(f"removed {removal.node}, epoch {removal.epoch}, by {removal.by}"))


def _endorsers(card: Card) -> list[str]:
    return list(dict.fromkeys(word.by for word in card.endorsements))


def member_json(here: Trust, card: Card) -> dict[str, Any]:
    """A node as the list shows it; times in epoch ms."""
    known = here.store.get(card.node)
    return {
        "node": card.node,
        "name": card.name,
        "trust": "self" if card.node == here.identity.node else "pinned",
        "epoch": card.epoch,
        "fingerprint": card.fingerprint,
        "expires_at": card.certificate.not_after_ms,
        "pinned_at": known.pinned_at if known else None,
        "endorsed_by": _endorsers(card),
    }


def print_card(here: Trust, card: Card, output: Format) -> None:
    """The card, to be passed on, or all that is known of the node."""
    shown = member_json(here, card)
    vouching = (
        f"{word.by} (epoch {word.by_epoch}) on {instant(word.issued_at)}"
        for word in card.endorsements
    )
    lines = [
        ("node", shown["node"]),
        ("name", shown["name"]),
        ("trust", shown["trust"]),
        ("epoch", shown["epoch"]),
        ("fingerprint", shown["fingerprint"]),
        ("expires", instant(shown["expires_at"])),
        ("pinned", instant(shown["pinned_at"])),
        *(("endorsed by", said) for said in vouching),
        ("folder", here.config.trust_dir if shown["trust"] == "self" else ""),
    ]
    print_object(card.to_json(), output, lines)
