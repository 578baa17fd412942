"""What is wrong with a value, in our own words: pydantic's are for programmers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_WORDS = {
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "extra_forbidden": "no such field is known",
    "finite_number": "must be a number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "greater_than": "must be above {gt:.15g}",
    "greater_than_equal": "must be at least {ge:.15g}",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a whole number, and has too many digits",
    "int_type": "must be a whole number",
    "less_than_equal": "must be at most {le:.15g}",
    "list_type": "must be an array",
    "literal_error": "must be {expected}",
    "missing": "is missing",
    "model_type": "must be an object",
    "string_pattern_mismatch": "must match {pattern}",
    "string_too_long": "must have at most {max_length} characters",
    "string_too_short": "must have at least {min_length} characters",
    "string_type": "must be a text",
    "string_unicode": "must be valid Unicode text",
    "too_long": "must have at most {max_length} elements",
    "too_short": "must have at least {min_length} elements",
}

_ONE = re.compile(r"\b(1 (?:character|element))s")


def complaint(wrong: Mapping[str, Any]) -> str:
    """One error of pydantic's, as a person says it of the field."""
    words = _WORDS.get(wrong["type"])
    if words is None:  # what we said ourselves comes behind a word of pydantic's
        return str(wrong["msg"]).removeprefix("Value error, ")
    given = wrong.get("input")
    is_told = words.startswith("must") and isinstance(given, str | int | float)
    # A number may have more digits than Python writes.
    is_told &= not isinstance(given, int) or abs(given) < 10**30
    said = _ONE.sub(r"\1", words.format(**wrong.get("ctx", {})))
    return said + (f", not {given!r:.60}" if is_told else "")


def place(parts: tuple[int | str, ...]) -> str:
    """Where it stands: names and numbers, with dots between. A name is the sender's own, and may hold anything."""
    return ".".join(ascii(part).strip("'")[:80] for part in parts)
