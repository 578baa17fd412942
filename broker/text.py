"""Foreign text on a terminal: whatever a payload, an error, a model or a node's name holds, it is shown, never obeyed.

Knows nothing of jobs. Every face that prints foreign text goes through `safe`, `block` or `to_json`; nothing of ours
is ever read as rich markup.
"""

from __future__ import annotations

import json
import re
from typing import Any

# What a terminal obeys beside C0: DEL and C1 (one of which begins an escape sequence), what turns the direction of
# writing, what ends a line, half characters, invisible tags.
_BEYOND_C0 = (
    r"\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    r"\ud800-\udfff\U000e0000-\U000e0fff"
)
_LINE = re.compile(rf"[\x00-\x1f{_BEYOND_C0}]")
_BLOCK = re.compile(rf"[\x00-\x08\x0b-\x1f{_BEYOND_C0}]")
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def safe(text: object) -> str:
    """The text on one line, each character that could steer a terminal as a visible escape."""
    return _LINE.sub(_visible, str(text))


def block(text: str) -> str:
    """Like `safe`, but lines and tabs stay."""
    return _BLOCK.sub(_visible, text)


def to_json(value: Any, *, indent: int | None = None) -> str:
    """The value as JSON that is also safe on a terminal: still the very same value when it is read."""
    return _BLOCK.sub(_json_escape, json.dumps(value, ensure_ascii=False, indent=indent))


def _visible(found: re.Match[str]) -> str:
    char = found[0]
    if char in _SHORT:
        return _SHORT[char]
    code = ord(char)
    return (
        f"\\x{code:02x}"
        if code < 0x100
        else f"\\u{code:04x}"
        if code < 0x10000
        else f"\\U{code:08x}"
    )


def _json_escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
