"""How sentences for people name instants, lengths, counts, nodes and outcomes. Pure; knows no jobs."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime

#: So many nodes a sentence names, then dots.
NAMES_MAX = 5


def when(ms: int) -> str:
    """An instant, UTC; `ms` is epoch milliseconds."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def seconds(ms: int) -> str:
    """A length of time."""
    return f"{max(ms, 0) / 1000:.0f} s"


def names(known: Collection[str]) -> str:
    """Some of these names, in order."""
    some = sorted(known)
    return ", ".join(some[:NAMES_MAX]) + (", ..." if len(some) > NAMES_MAX else "")


def holders_lost(count: int) -> str:
    """How often a job lost its holder: killed, frozen or cut off, nobody knows."""
    return "1 holder was lost" if count == 1 else f"{count} holders were lost"


def capital(word: str) -> str:
    """The word as a sentence begins with it."""
    return word[:1].upper() + word[1:]


#: What the rule of a wish's outcome means to who wished.
SAID = {
    "desired": "asked to stop",
    "no_change": "was asked before",
    "removed": "removed",
    "remove_requested": "asked to stop; it is removed when it has ended",
    "seen": "was removed before",
    "submitted": "handed in again",
    "too_late": "it has ended already",
    "not_ours": "it is reported: only its origin can do that",
    "not_terminal": "it has not ended",
    "expired": "its payload is gone",
    "older_generation": "a newer job of this identity is there",
    "unknown": "no such job is known",
    "tombstoned": "it was removed",
}
