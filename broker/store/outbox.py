"""The outbox of the trust store: which changes still wait to be told, and which one is under way.

Values and their file; how they go together with the files of the peers is `broker.store.peers`'s.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, Self

from broker.errors import Untrusted
from broker.rules.key import check_name
from broker.rules.signed import parse

PINNED, ENDORSED, RENAMED, REMOVED, FORGOTTEN = CHANGES = (
    "pinned", "endorsed", "renamed", "removed", "forgotten"
)  # fmt: skip

#: More than any bound of ours fills: an announcement has at most 200 bytes.
BYTES_MAX = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Announcement:
    """A change of the trust store of some node: `change` (one of CHANGES) of what it holds of `node`.

    `gen` numbers the changes of that store, rising, with gaps; `at` in epoch ms. What was only forgotten is not
    `persisted`: the next start holds it again.
    """

    gen: int
    change: str
    node: str
    at: int
    persisted: bool = True

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Self:
        """Read one; raise Untrusted, Invalid, KeyError or TypeError where it is none."""
        made = cls(**said)
        is_typed = type(made.gen) is type(made.at) is int and type(made.persisted) is bool
        if not is_typed or made.gen < 1 or made.change not in CHANGES:
            raise Untrusted("malformed_record", "no announcement")
        check_name("node", made.node)
        return made

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Outbox(NamedTuple):
    """What the file says.

    `gen` is the highest number given. `waiting` are changes that stand and were not yet told, in order. `begun` is the
    change that the file was last written for, just before the change itself: whether that came to pass, the peer's
    file tells.
    """

    gen: int = 0
    waiting: tuple[Announcement, ...] = ()
    begun: Announcement | None = None

    @classmethod
    def read(cls, data: bytes) -> Self:
        """Read it; raise what `Announcement.from_json` raises where it is none."""
        said = parse(data, BYTES_MAX)
        waiting = tuple(map(Announcement.from_json, said["waiting"]))
        begun = [Announcement.from_json(said["begun"])] if "begun" in said else []
        gens = [announcement.gen for announcement in (*waiting, *begun)]
        if type(said["gen"]) is not int or sorted({*gens, said["gen"]})[: len(gens)] != gens:
            raise Untrusted("malformed_record", "numbers that do not rise up to `gen`")
        return cls(said["gen"], waiting, *begun)

    def to_bytes(self) -> bytes:
        said: dict[str, Any] = {"gen": self.gen}
        said["waiting"] = [announcement.to_json() for announcement in self.waiting]
        if self.begun:
            said["begun"] = self.begun.to_json()
        return json.dumps(said).encode()

    def settled(self, *, came_to_pass: bool) -> Self:
        """The same, once it is known what became of the change under way."""
        came = (self.begun,) if self.begun and came_to_pass else ()
        return self._replace(waiting=self.waiting + came, begun=None)


def renumbered(announcements: Sequence[Announcement], above: int) -> tuple[Announcement, ...]:
    """The same announcements in their order, with the numbers that follow `above`."""
    return tuple(replace(told, gen=gen) for gen, told in enumerate(announcements, above + 1))
