"""The identity of a job: four parts, one text, one encoding.

Ids are only unique within one run of one engine of one origin, so every record, key and listing carries all four
parts. The text form percent-encodes what would be ambiguous in it (or in a Redis key), so that engine `a:b` with
run `c` and engine `a` with run `b:c` stay two jobs.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Self

from broker.errors import Invalid

#: Origin and node names.
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}\Z")
#: Bounds of the free parts, in bytes of UTF-8.
ENGINE_BYTES_MAX = 64
RUN_BYTES_MAX = 64
ID_BYTES_MAX = 256

_UNSAFE = re.compile(r"[/:%{} \x00-\x1f\x7f-\x9f]")


def check_name(what: str, name: str) -> str:
    """Return `name` if it is a valid origin or node name; raise Invalid otherwise."""
    if not NAME.match(name):
        raise Invalid(
            f"{what} {name!r} is not a name of the form [a-z0-9][a-z0-9._-]{{0,62}}", field=what
        )
    return name


def check_part(what: str, text: str, bytes_max: int, *, empty: bool = False) -> str:
    """Return `text` if it is valid UTF-8 of 1 (or 0, where `empty`) to `bytes_max` bytes; raise Invalid otherwise."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise Invalid(f"{what} is not valid Unicode text", field=what) from None
    if size > bytes_max or (size == 0 and not empty):
        raise Invalid(
            f"{what} must have {0 if empty else 1} to {bytes_max} bytes, not {size}", field=what
        )
    return text


def encode(part: str) -> str:
    """Percent-encode a part where it holds `/ : % { }`, space or control characters."""
    return _UNSAFE.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), part)


def decode(text: str) -> str:
    """Undo `encode`; raise Invalid where the escapes are no UTF-8 text."""
    if "%" not in text:
        return text
    raw = re.sub(rb"%([0-9A-Fa-f]{2})", lambda found: bytes([int(found[1], 16)]), text.encode())
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise Invalid(f"{text!r} is not the encoding of a text") from None


class Key(NamedTuple):
    """(origin, engine, run, id), unencoded. Build one from outside input with `Key.of`, which checks the bounds."""

    origin: str
    engine: str
    run: str
    id: str

    @classmethod
    def of(cls, origin: str, engine: str, run: str, id: str) -> Self:
        """Check each part's bounds and return the key; raise Invalid naming the part that is outside."""
        check_name("origin", origin)
        check_part("engine", engine, ENGINE_BYTES_MAX)
        check_part("run", run, RUN_BYTES_MAX, empty=True)
        check_part("id", id, ID_BYTES_MAX)
        return cls(origin, engine, run, id)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `origin/engine/run/id`; raise Invalid where it is no key."""
        parts = text.split("/")
        if len(parts) != 4:
            raise Invalid(f"{text!r} is not a key of the form origin/engine/run/id")
        return cls.of(*map(decode, parts))

    @classmethod
    def of_job(cls, origin: str, job: str) -> Self:
        """Read `engine/run/id` as our own keys and log entries hold it; unchecked."""
        engine, run, id = job.split("/")
        return cls(origin, decode(engine), decode(run), decode(id))

    @classmethod
    def of_member(cls, origin: str, member: str) -> Self:
        """Read `id/engine/run`, a member of the origin's `ids`; unchecked."""
        id, engine, run = member.split("/")
        return cls(origin, decode(engine), decode(run), decode(id))

    def __str__(self) -> str:
        return "/".join(map(encode, self))

    @property
    def job(self) -> str:
        """`engine/run/id`, encoded: the key text without its origin."""
        return f"{encode(self.engine)}/{encode(self.run)}/{encode(self.id)}"

    @property
    def member(self) -> str:
        """`id/engine/run`, encoded: the member of `ids`, where all that share (origin, id) lie side by side."""
        return f"{encode(self.id)}/{encode(self.engine)}/{encode(self.run)}"

    @property
    def pair(self) -> str:
        """The encoded id alone: names every engine and run that shares (origin, id)."""
        return encode(self.id)

    def fits(self, text: str) -> bool:
        """Whether `text` names this job: the whole key, or a suffix of it; an empty run may be left out."""
        parts = text.split("/")
        own = str(self).split("/")
        return parts == own[-len(parts) :] or (len(parts) == 2 and parts == [own[1], own[3]])
