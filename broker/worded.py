"""What pydantic finds wrong with a setting or an option, in our words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: What pydantic finds wrong, by its own name of it, in our words; `{...}` stands for what it says of the bound.
_WORDS = {
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "dataclass_type": "must be a table",
    "dict_type": "must be a table",
    "extra_forbidden": "there is no such setting",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "greater_than_equal": "must be at least {ge}",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "less_than_equal": "must be at most {le}",
    "literal_error": "must be {expected}",
    "missing": "is missing",
    "model_type": "must be a table",
    "path_type": "must be a path",
    "string_pattern_mismatch": "must match {pattern}",
    "string_type": "must be a text",
    "unexpected_keyword_argument": "there is no such setting",
}


def worded(wrong: Mapping[str, Any]) -> str:
    """One of pydantic's findings (`errors()`) for people: what the value must be, and what it is."""
    words = _WORDS.get(wrong["type"])
    if words is None:  # what we said ourselves comes behind a word of pydantic's
        return str(wrong["msg"]).removeprefix("Value error, ")
    given = wrong["input"]
    is_told = words.startswith("must") and isinstance(given, str | int | float)
    return words.format(**wrong.get("ctx", {})) + (f", not {given!r:.60}" if is_told else "")
