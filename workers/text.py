"""Text from outside, for a log line."""

from __future__ import annotations


def plain(text: str) -> str:
    """The text with nothing in it that moves a cursor or turns the writing direction."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "replace").decode()
        for char in text
    )
