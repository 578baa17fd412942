"""Every group's subscriptions as an onlooker sees them: who reads, how far behind, what is parked; and their removal.

Truth about a subscription is its hash, which its members write. Nothing here judges, and nothing looks through keys:
groups and origins are listed, so all is found by name.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from broker.rules.key import NAME, check_name
from broker.store.connection import redis_errors
from broker.store.decode import read_number, read_text
from broker.store.lag import UNKNOWN, Lag, Stand, ask_each, lags
from broker.store.log import Place
from broker.store.store import Store
from broker.store.view import View

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GroupSeen:
    """A group at one origin; one that has not begun anywhere has an empty origin. Times are in milliseconds."""

    group: str
    looked_at: (
        int  #: when a member of the group last looked, at any origin; 0 where that cannot be read
    )
    silent_ms: int  #: since then
    origin: str = ""
    owner: str = ""  #: the member that reads here, empty where nobody does
    live: bool = False  #: whether the owner's lease stands
    term: int = 0
    acked: str = ""  #: the last entry that is done with
    lag: Lag = UNKNOWN
    tries: int = 0  #: failed tries of the first unread entry
    parked: int = 0
    replaying: int = 0  #: of them, those that are to be delivered again
    evicted: int = 0  #: parked entries that went unhandled, since newer ones took their place
    gaps: int = 0  #: how often unread entries were lost


class _Sub(NamedTuple):
    """A subscription's hash."""

    group: str
    origin: str
    said: dict[bytes, bytes]

    @property
    def stand(self) -> Stand:
        return Stand(self.group, self.origin, Place(self.text(b"epoch"), self.text(b"acked")))

    def is_live(self, now: int) -> bool:
        return bool(self.text(b"owner")) and self.number(b"until") > now

    def text(self, name: bytes) -> str:
        return read_text(self.said.get(name))

    def number(self, name: bytes) -> int:
        return read_number(self.said.get(name))


class Groups:
    """`broker:groups`, and the subscriptions of every group. Every method raises Unavailable, Damaged."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._client = store.client
        self._keys = store.keys
        self._view = View(store)

    def names(self) -> list[str]:
        """Every group that has looked and was not removed since."""
        return sorted(self._looked())

    def dead(self, now: int, ms: int) -> list[str]:
        """The groups of which no member has looked for `ms`. One whose stamp cannot be read is none of them."""
        found = self._looked()
        return sorted(name for name, looked_at in found.items() if 0 < looked_at < now - ms)

    def is_live(self, name: str, now: int, silence_ms_max: int) -> bool:
        """Whether a member reads or waits to: it looked within `silence_ms_max`, or an owner's lease stands."""
        if now - self._looked().get(name, 0) <= silence_ms_max:
            return True
        return any(sub.is_live(now) for sub in self._subs([name]))

    def seen(self, now: int) -> list[GroupSeen]:
        """Every group at every origin where it has begun, by group and origin; `now` is Redis's time."""
        looked = self._looked()
        subs = self._subs(sorted(looked))
        found_lags = lags(self._store, [sub.stand for sub in subs], now)
        parked = self._parked([(sub.group, sub.origin) for sub in subs])
        found = [
            GroupSeen(
                group=sub.group,
                looked_at=looked[sub.group],
                silent_ms=max(0, now - looked[sub.group]),
                origin=sub.origin,
                owner=sub.text(b"owner"),
                live=sub.is_live(now),
                term=sub.number(b"term"),
                acked=sub.stand.place.rev,
                lag=lag,
                tries=sub.number(b"tries"),
                parked=count,
                replaying=len(sub.text(b"replay").split()),
                evicted=sub.number(b"evicted"),
                gaps=sub.number(b"gaps"),
            )
            for sub, lag, count in zip(subs, found_lags, parked, strict=True)
        ]
        idle = looked.keys() - {sub.group for sub in subs}
        found += [GroupSeen(name, looked[name], max(0, now - looked[name])) for name in idle]
        return sorted(found, key=lambda seen: (seen.group, seen.origin))

    def parked_at(self, name: str) -> list[str]:
        """The origins of which the group has parked entries, by name."""
        origins = self._view.origins()
        counts = self._parked([(name, origin) for origin in origins])
        return [origin for origin, count in zip(origins, counts, strict=True) if count]

    def remove(self, name: str) -> bool:
        """Forget the group and what it has parked; whether it was known. A member that still reads makes it anew.

        Its name goes last: where this is broken off, it is still listed, and can be removed again.
        """
        check_name("group", name)
        origins = [self._keys.of(origin) for origin in self._view.origins()]
        ask_each(self._store, origins, lambda pipe, of: pipe.xgroup_destroy(of.log, name), None)
        ask_each(
            self._store, origins, lambda pipe, of: pipe.delete(of.parked(name), of.sub(name)), None
        )
        with redis_errors():
            return bool(self._client.hdel(self._keys.groups, name))

    def _looked(self) -> dict[str, int]:
        """When a member of each group last looked."""
        with redis_errors():
            found = cast("dict[bytes, bytes]", self._client.hgetall(self._keys.groups))
        named = {read_text(raw): read_number(stamp) for raw, stamp in found.items()}
        return {name: stamp for name, stamp in named.items() if NAME.match(name)}

    def _subs(self, groups: Sequence[str]) -> list[_Sub]:
        """Their subscriptions that have begun. One that is no hash is passed over: it must not hide all others."""
        pairs = [(group, origin) for origin in self._view.origins() for group in groups]

        def ask(pipe: Any, pair: tuple[str, str]) -> None:
            pipe.hgetall(self._keys.of(pair[1]).sub(pair[0]))

        found = []
        for (group, origin), said in zip(
            pairs, ask_each(self._store, pairs, ask, None), strict=True
        ):
            if said is None:
                _log.warning("the subscription of %s at %s cannot be read", group, origin)
            elif said:
                found.append(_Sub(group, origin, said))
        return found

    def _parked(self, pairs: Sequence[tuple[str, str]]) -> list[int]:
        """How many entries each (group, origin) has parked."""

        def ask(pipe: Any, pair: tuple[str, str]) -> None:
            pipe.xlen(self._keys.of(pair[1]).parked(pair[0]))

        return ask_each(self._store, pairs, ask, 0)
