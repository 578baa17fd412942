"""Which jobs `broker top` lists, and in which order. Knows no terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from broker.rules.filter import Filter
from broker.rules.key import Key
from broker.rules.record import Record
from broker.rules.replay import rev_order
from broker.rules.state import STATES

Order = Callable[[Key, Record], Any]

_RANKS = {state: rank for rank, state in enumerate(("running", "queued", "failed", "cancelled"))}

#: By name: what is sorted by, and whether the greatest comes first.
ORDERS: dict[str, tuple[Order, bool]] = {
    "newest first": (lambda key, record: (record.created_at, key), True),
    "last changed first": (lambda _, record: rev_order(record.rev), True),
    "oldest first": (lambda key, record: (record.created_at, key), False),
    "by state": (
        lambda key, record: (_RANKS.get(record.believed, 9), -record.created_at, key),
        False,
    ),
    "by node": (lambda key, record: (record.node or "~", -record.created_at, key), False),
    "by key": (lambda key, _: key, False),
}
#: What `state` goes through; None is all.
_STATES = (None, *STATES)


@dataclass
class View:
    """What the user asked for. `text` is looked for in key, node, model and error, in any case."""

    state: str | None = None
    node: str | None = None
    engine: str | None = None
    origin: str | None = None
    text: str = ""
    order: str = "newest first"
    _texts: dict[Key, tuple[Record, str]] = field(default_factory=dict)

    def turn_state(self) -> None:
        """On to the next state."""
        self.state = _STATES[(_STATES.index(self.state) + 1) % len(_STATES)]

    def turn_order(self) -> None:
        """On to the next order."""
        names = list(ORDERS)
        self.order = names[(names.index(self.order) + 1) % len(names)]

    def keys(self, records: Mapping[Key, Record]) -> list[Key]:
        """The jobs that fit, in order."""
        states = None if self.state is None else {self.state}
        fits = Filter(states=states, node=self.node, engine=self.engine, origin=self.origin).fits
        found = [pair for pair in records.items() if fits(*pair)]
        if self.text:
            wanted = self.text.lower()
            found = [pair for pair in found if wanted in self._text_of(*pair)]
        else:
            self._texts.clear()
        by, is_reverse = ORDERS[self.order]
        found.sort(key=lambda pair: by(*pair), reverse=is_reverse)
        return [key for key, _ in found]

    def _text_of(self, key: Key, record: Record) -> str:
        known = self._texts.get(key)
        if known is None or known[0] is not record:
            said = "\n".join((str(key), record.node, record.model, record.error)).lower()
            known = self._texts[key] = (record, said)
        return known[1]

    def __str__(self) -> str:
        """In words, for people."""
        parts = [
            f"{name} {value}"
            for name, value in (
                ("state", self.state),
                ("node", self.node),
                ("engine", self.engine),
                ("origin", self.origin),
                ("/", self.text),
            )
            if value
        ]
        return ", ".join([*parts, self.order])
