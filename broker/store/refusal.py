"""Why an event was refused, as `merge.lua` keeps it for `why`: one flat text that redis-cli shows as it is."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import unquote


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The refusals of one job by one rule, of one kind of event and state: the newest, and how many there were."""

    rule: str
    event: str
    state: str = ""
    node: str = ""
    seq: int = 0
    attempt: int = 0
    by: str = ""
    at: int = 0  #: epoch ms of the newest
    count: int = 1

    def to_json(self) -> dict[str, Any]:
        """As every face shows it."""
        return asdict(self)


def read_refusal(text: str) -> Refusal:
    """Read `rule=... event=... ... count=...`; each value is percent-encoded where it held a space."""
    found = dict(part.split("=", 1) for part in text.split(" "))
    numbers = {name: _number(found.pop(name, "")) for name in ("seq", "attempt", "at", "count")}
    return Refusal(**{name: unquote(value) for name, value in found.items()}, **numbers)  # type: ignore[arg-type]


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0
