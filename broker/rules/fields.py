"""The fields of an event from outside: what each dialect calls them, and what each may hold.

Every complaint is Invalid, names the field as the sender wrote it, and stays on one line whatever the value is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Literal, Required, TypedDict

from broker.errors import Invalid
from broker.rules.event import NUMBER_MAX
from broker.rules.jsonl import LINE_BYTES_MAX, dump
from broker.rules.key import check_name, check_part
from broker.rules.record import TEXT_BYTES_MAX, clip


@dataclass(frozen=True, kw_only=True)
class Names:
    """What one dialect calls the fields of an event."""

    origin: str = "origin"
    engine: str = "engine"
    run: str = "run"
    id: str = "id"
    state: str = "state"
    node: str = "node"
    seq: str = "seq"
    created_at: str = "created_at"
    started_at: str = "started_at"
    completed_at: str = "completed_at"
    error: str = "error"
    model: str = "model"
    requester: str = "requester"
    removed_at: str = "removed_at"
    stale_after: str = "stale_after"

    @cached_property
    def known(self) -> frozenset[str]:
        """The fields of a report that are read; any other one is kept as it is."""
        here = {value for name, value in asdict(self).items() if name != "removed_at"}
        return frozenset(here if self is FRAME else here | {"event", "resync", "event_id"})


NATIVE = Names()
FRAME = Names(
    origin="originatedFrom",
    run="runId",
    node="scheduledOn",
    created_at="createdAt",
    started_at="startedAt",
    completed_at="completedAt",
    requester="requesterId",
    removed_at="removedAt",
    stale_after="staleAfter",
)
FRAME_REMOVAL = replace(FRAME, id="workloadId")
_DIGITS = re.compile(r"[0-9]{1,15}\Z")


@lru_cache(maxsize=4096)
def node_name(what: str, name: str) -> str:
    if len(name) > 63:
        raise Invalid(f"{what} must have at most 63 characters, not {len(name)}", field=what)
    return check_name(what, name)


part = lru_cache(maxsize=4096)(check_part)


def string(said: Mapping[str, Any], name: str) -> str:
    value = said.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Invalid(f"{name} must be a text, not {shown(value)}", field=name)
    return value


def number(said: Mapping[str, Any], name: str) -> int:
    value = said.get(name)
    if value is None:
        return 0
    if type(value) is int:  # true and false are no numbers
        if 0 <= value <= NUMBER_MAX:
            return value
    elif isinstance(value, str) and _DIGITS.match(value):
        return int(value)
    raise Invalid(
        f"{name} must be a whole number of 1 to 15 digits, not {shown(value)}", field=name
    )


def flag(said: Mapping[str, Any], name: str) -> bool:
    value = said.get(name)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise Invalid(f"{name} must be true or false, not {shown(value)}", field=name)


def shown(value: Any) -> str:
    """A value in a complaint: short, on one line, harmless to a terminal."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return ascii(value if len(value) <= 40 else value[:40] + "...")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) or (isinstance(value, int) and abs(value) < 10**20):
        return str(value)
    return f"a JSON {'number' if isinstance(value, int) else type(value).__name__}"


class Texts(TypedDict, total=False):
    """Fields of a Report."""

    error: Required[str]
    model: Required[str]
    requester: Required[str]
    extras: str
    full: str


_CUT: tuple[Literal["error", "model", "requester"], ...] = ("error", "model", "requester")


def cut(
    error: str = "",
    model: str = "",
    requester: str = "",
    unknown: Mapping[str, str] | None = None,
) -> Texts:
    """The fields of a Report that hold these texts: what a record has no room for is kept whole beside it.

    `unknown` maps further names to JSON text. Raises Invalid naming the text that is not valid Unicode or too long.
    """
    texts: Texts = {"error": error, "model": model, "requester": requester}
    kept = dict(unknown or {})
    for name in _CUT:
        text = texts[name]
        if len(text) <= TEXT_BYTES_MAX and text.isascii():
            continue
        whole = dump(name, text)
        texts[name] = clip(text)
        if texts[name] == text:
            continue
        if name == "error":
            texts["full"] = whole
        else:
            kept[name] = whole
    if kept:
        texts["extras"] = _joined(kept)
    return texts


def _joined(kept: Mapping[str, str]) -> str:
    text = "{" + ",".join(f"{dump('a name', name)}:{value}" for name, value in kept.items()) + "}"
    if len(text) > LINE_BYTES_MAX or len(text.encode()) > LINE_BYTES_MAX:
        raise Invalid(f"the fields kept beside the record have more than {LINE_BYTES_MAX} bytes")
    return text
