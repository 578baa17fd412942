"""What the outcome of a wish means to people, and as an exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.cli.exits import ERROR, NOT_FOUND, REFUSED, UNKNOWN_RULES, USAGE
from broker.rules.phrases import SAID

if TYPE_CHECKING:
    from broker.jobs.outcome import Outcome


def said(rule: str) -> str:
    """What a rule means to who asked."""
    return SAID.get(rule, rule)


def named(rule: str) -> str:
    """The same with the rule's name, which is what documents and programs know it by."""
    return f"{said(rule)} ({rule})" if rule in SAID else rule


def code_of(outcome: Outcome) -> int:
    """The exit code of an outcome that is not ok."""
    if outcome.outcome == "error":
        return ERROR
    if outcome.rule in UNKNOWN_RULES:
        return NOT_FOUND
    return USAGE if outcome.rule == "invalid" else REFUSED
