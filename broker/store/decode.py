"""Redis's bytes as records and log entries, fast: what `rules.record.from_fields` and `rules.entry.read_entry` say.

And single values, whoever wrote them: one that was written wrongly must not blind its readers to all others.

A listing of 10,000 jobs decodes 300,000 values. So an entry's text is decoded at once (its fields are always the same,
in the same order), and a record's field by field without a dict of texts in between.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from broker.rules.entry import ENTRY_FIELDS, GONE_RULES, SIGHTINGS, Entry, read_entry
from broker.rules.key import Key
from broker.rules.record import FIELDS, INTEGERS, PROJECTION, Record
from broker.rules.state import RUN

_NUMBER = re.compile(r"[0-9]{1,15}")

_TEXTS = {name.encode(): name for name in FIELDS if name not in INTEGERS}
_NUMBERS = {name.encode(): name for name in FIELDS if name in INTEGERS}

_IN_ORDER = [name.encode() for name in ENTRY_FIELDS]
_LOGGED_NUMBERS = tuple(name for name in PROJECTION if name in INTEGERS)

_log = logging.getLogger(__name__)


def read_record(found: Mapping[bytes, bytes]) -> Record:
    """A record of its hash; unknown fields are passed over. Raises ValueError, TypeError where it is none."""
    values: dict[str, Any] = {}
    for name, raw in found.items():
        if name in _TEXTS:
            values[_TEXTS[name]] = raw.decode()
        elif name in _NUMBERS:
            values[_NUMBERS[name]] = int(raw or 0)
    if not values.get("desired"):
        values["desired"] = RUN
    return Record(**values)


def flaw(found: object) -> str:
    """What is wrong with a record's hash that `read_record` refused, for people."""
    if not isinstance(found, Mapping):
        return "it is no hash"
    for name, raw in found.items():
        text = read_text(raw)
        if name in _NUMBERS and raw and not _NUMBER.fullmatch(text):
            return f"{_NUMBERS[name]} is {text!r:.50}, not a number"
        if name in _TEXTS and text.encode() != raw:
            return f"{_TEXTS[name]} is no text: {text!r:.50}"
    return "fields are missing, or its rev is none"


def read_logged(rev: bytes, flat: Sequence[bytes]) -> Entry:
    """An entry of its id and its fields and values in turn. Raises ValueError, TypeError, KeyError where it is none."""
    texts = b"\0".join(flat[1::2]).decode().split("\0")
    if flat[::2] != _IN_ORDER or len(texts) != len(_IN_ORDER):  # other fields, or a text with a NUL
        pairs = zip(flat[::2], flat[1::2], strict=True)
        return read_entry(rev.decode(), {name.decode(): raw.decode() for name, raw in pairs})
    event, job, *rest = texts
    values: dict[str, Any] = dict(zip(PROJECTION, rest, strict=True))
    for name in _LOGGED_NUMBERS:
        values[name] = int(values[name] or 0)
    at, rule, by = rev.decode(), values["rule"], values["by"]
    if rule in GONE_RULES:
        return Entry(at, event, job, rule, by, values["created_at"], None)
    if not values["desired"]:
        values["desired"] = RUN
    values["rev"] = at
    if event in SIGHTINGS:
        values["last_seen"] = int(at.partition("-")[0])
        values["submit_rev"] = at if event == "submit" else ""
    return Entry(at, event, job, rule, by, 0, Record(**values))


def read_keys(of: Callable[[str, str], Key], origin: str, listed: Iterable[bytes]) -> Iterator[Key]:
    """The jobs that an index names, read with `of`; what names none is passed over with a warning."""
    for raw in listed:
        try:
            yield of(origin, raw.decode())
        except ValueError:
            _log.warning("an index of %s lists %r, which names no job", origin, raw[:100])


def read_text(raw: bytes | None) -> str:
    """A value as text; empty where there is none. What is no UTF-8 in it is marked as that."""
    return raw.decode(errors="replace") if raw else ""


def read_number(raw: bytes | None) -> int:
    """A value as the number that it is; 0 where it is none, or none of ours."""
    return int(raw) if raw and _NUMBER.fullmatch(read_text(raw)) else 0
