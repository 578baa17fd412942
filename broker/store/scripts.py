"""The Lua scripts: reads `lua/*.lua` once, checks each call against the script's own header, runs it by its hash.

A script begins with its contract, in comments that this module reads:

    --- What it does, in one sentence or more.
    -- KEYS
    --   log      stream: what the key is
    --   job...   the last name may end in dots: any number of these follow
    -- ARGV
    --   now      epoch ms
    -- RETURNS
    --   what comes back
    -- WRITES
    --   what it may change, or: nothing

A name stands three columns in; what goes on about it stands deeper. A line `--- @include "name"` takes in
`lua/include/name.lua` in its place.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import redis
from redis.commands.core import Script

from broker.errors import BrokerError, Damaged
from broker.store.connection import SET_ASIDE_SOON, WRONG_TYPE, redis_errors
from broker.store.keys import Keys

#: How Redis calls the type of what is not there.
NO_TYPE = "none"
FOLDER = Path(__file__).parent / "lua"

_INCLUDE = re.compile(r'^--- @include "(\w+)"$', re.MULTILINE)
_SECTION = re.compile(r"-- (KEYS|ARGV|RETURNS|WRITES)$")
_NAME = re.compile(r"--   (\w+(?:\.\.\.)?)(?:\s|$)")


@dataclass(frozen=True, slots=True)
class Source:
    """One script: its whole text, and the names of what it takes."""

    name: str
    text: str
    keys: tuple[str, ...]
    args: tuple[str, ...]
    sections: tuple[str, ...]

    def check(self, keys_count: int, args_count: int) -> None:
        """Raise TypeError where a call does not fit the header: a mistake in our own code."""
        for what, names, count in (
            ("KEYS", self.keys, keys_count),
            ("ARGV", self.args, args_count),
        ):
            is_open = bool(names) and names[-1].endswith("...")
            if count < len(names) - is_open or (count > len(names) and not is_open):
                raise TypeError(
                    f"{self.name}.lua takes {what} {' '.join(names)}, not {count} of them"
                )


@cache
def source(name: str) -> Source:
    """Read `lua/<name>.lua` with what it includes."""
    text = (FOLDER / f"{name}.lua").read_text()
    keys, args, sections = _contract(text)
    return Source(name, _INCLUDE.sub(_included, text), keys, args, sections)


def names() -> list[str]:
    """Every script there is."""
    return sorted(path.stem for path in FOLDER.glob("*.lua"))


def _included(line: re.Match[str]) -> str:
    return (FOLDER / "include" / f"{line[1]}.lua").read_text()


def _contract(text: str) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    section = ""
    for line in text.splitlines():
        if not line.startswith("--"):
            break
        if heading := _SECTION.match(line):
            section = heading[1]
            found[section] = []
        elif section in ("KEYS", "ARGV") and (named := _NAME.match(line)):
            found[section].append(named[1])
    return tuple(found.get("KEYS", ())), tuple(found.get("ARGV", ())), tuple(found)


class Scripts:
    """The scripts on one client, for the keys of one namespace."""

    def __init__(self, client: redis.Redis, keys: Keys) -> None:
        self._client = client
        self._keys = keys
        self._ready: dict[str, Script] = {}

    def run(self, name: str, keys: Sequence[str], args: Sequence[str | int | bytes]) -> Any:
        """Run a script; it is loaded again where Redis forgot it. Raises Unavailable, Damaged."""
        script = source(name)
        script.check(len(keys), len(args))
        if name not in self._ready:
            self._ready[name] = self._client.register_script(script.text)
        try:
            with redis_errors():
                return self._ready[name](keys=keys, args=args)
        except Damaged as error:
            # Redis names the line of the script, and not the key.
            text = self._wrong(keys) if WRONG_TYPE in str(error) else ""
            raise Damaged(text or f"{name}.lua: {error}") from error

    def _wrong(self, keys: Sequence[str]) -> str:
        """Which of the keys is of a wrong type; empty where none is any more, or Redis does not say."""
        try:
            found = mistyped(self._client, self._keys, keys)
        except BrokerError:
            return ""
        return f"{found[0].text} {SET_ASIDE_SOON}" if found else ""


class Mistyped(NamedTuple):
    """A key of a wrong type: whose it is (as in `Named`), its name, and what is wrong in a sentence."""

    origin: str
    name: str
    text: str


def mistyped(client: redis.Redis, keys: Keys, names: Sequence[str]) -> list[Mistyped]:
    """Those of these keys that are of another type than their names say. Raises Unavailable."""
    with redis_errors(), client.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.type(name)
        types = [raw.decode() for raw in pipe.execute()]
    return [
        Mistyped(named.origin, name, f"{name} is a {found}, not a {named.type}")
        for name, named, found in zip(names, map(keys.read, names), types, strict=True)
        if named and found not in (NO_TYPE, named.type)
    ]
