"""What errors have in common: a text without all that differs from one job to the next, so that like ones count as one.

It is for people: two errors of one fingerprint are most often one cause, and never told apart by it.
"""

from __future__ import annotations

import re
from functools import lru_cache

#: So many characters of an error are looked at: folding takes longer than it is long.
LENGTH_MAX = 200
#: What stands for a folded part.
NUMBER, HEX, PATH, QUOTED = "#", "<hex>", "<path>", "<text>"


def _unless_word(found: re.Match[str]) -> str:
    return found[1] or NUMBER


# In this order: what holds digits is folded before the digits are. Of a text that was cut, the closing quote may be
# missing; a word's apostrophe opens none.
_FOLDS = (
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE), HEX),
    (re.compile(r'"[^"]*(?:"|$)'), QUOTED),
    (re.compile(r"(?<!\w)'[^']*(?:'|$)"), QUOTED),
    (re.compile(r"(?<!\w)`[^`]*(?:`|$)"), QUOTED),
    (re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s,;)\]}]+", re.IGNORECASE), PATH),
    (re.compile(r"(?<![\w/.~])(?:~|\.{1,2})?/[^\s:,;)\]}]+"), PATH),
    (re.compile(r"\b[a-z]:\\[^\s:,;)\]}]+", re.IGNORECASE), PATH),
    (re.compile(r"\b0x[0-9a-f]+\b", re.IGNORECASE), HEX),
    (re.compile(r"\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{6,}\b", re.IGNORECASE), HEX),
    # A word's own digits stay (sha256sum, utf8, E1101), so that it can be read and searched for. Five or more of them,
    # and those of what begins with a digit (30s, 10T12), are a number.
    (
        re.compile(r"((?<![^\W_])[^\W\d_](?:[^\W\d_]|\d{1,4}(?!\d))*)|\d+(?:[.,:]\d+)*"),
        _unless_word,
    ),
    (re.compile(r"\s+"), " "),
)


@lru_cache(maxsize=16_384)
def fingerprint(error: str) -> str:
    """The error without its numbers, hex, paths and quoted texts; empty where it is."""
    error = error[:LENGTH_MAX]
    for found, instead in _FOLDS:
        error = found.sub(instead, error)
    return error.strip()
