"""What the outcome of a wish means to people, and as an exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.cli.exits import ERROR, NOT_FOUND, REFUSED, UNKNOWN_RULES, USAGE

if TYPE_CHECKING:
    from broker.outcome import Outcome

_SAID = {
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


def said(rule: str) -> str:
    """What a rule means to who asked."""
    return _SAID.get(rule, rule)


def named(rule: str) -> str:
    """The same with the rule's name, which is what documents and programs know it by."""
    return f"{said(rule)} ({rule})" if rule in _SAID else rule


def code_of(outcome: Outcome) -> int:
    """The exit code of an outcome that is not ok."""
    if outcome.outcome == "error":
        return ERROR
    if outcome.rule in UNKNOWN_RULES:
        return NOT_FOUND
    return USAGE if outcome.rule == "invalid" else REFUSED
