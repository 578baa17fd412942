"""Leases: the origins that one member of a group owns, how it comes by them, and how it gives them back.

It knows nothing of what entries mean. A lease may lapse unnoticed, so nobody is trusted for holding one: its term is
what counts, and a new term is a new beginning.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from broker.errors import Damaged, Invalid, Unavailable
from broker.rules.key import check_name
from broker.rules.replay import rev_order
from broker.rules.sharing import Stand, share
from broker.store.group import Group
from broker.store.log import Place, Raw
from broker.store.store import Store
from broker.store.view import View

#: How often a member looks at all origins at least, so that a new one is read within a second; and how often while one
#: that it asked for may come free. In ms.
LOOK_MS_MAX = 500
LOOK_MS_ASKED = 100
#: How long an origin rests whose keys hold what they should not, in ms.
DAMAGED_MS = 5_000

_log = logging.getLogger(__package__)


@dataclass(slots=True, eq=False)
class Held:
    """An origin that is owned under one term, and what its owner is about to hand over."""

    origin: str
    term: int
    epoch: str
    rev: str  #: the last entry that is done with
    until: int  #: Redis's ms up to which the lease stands
    waiting: deque[Raw] = field(default_factory=deque)  #: fetched, the one in hand included
    is_due: bool = True  #: whether anything may have come since the last fetch
    replays: bool = False  #: whether somebody asked for parked entries
    not_before: int = 0  #: Redis's ms: after a failure it waits
    tries: int = 0  #: of the first one that waits, or of telling that the log lost it
    is_told: bool = False  #: whether that was told
    fell_from: str = (
        ""  #: the last entry that was done with, where Redis fell back behind it and has it no more
    )

    @property
    def unread_ms(self) -> int:
        """When the first one that waits happened, epoch ms; 0 where none waits. For any thread."""
        with suppress(IndexError):
            return int(self.waiting[0][0].partition(b"-")[0])
        return 0


class Leases:
    """For one thread, but for `renew`. All that talks to Redis raises Unavailable.

    `origins`: None for all, new ones as they appear.
    """

    def __init__(
        self, store: Store, group: Group, lease_ms: int, origins: Sequence[str] | None
    ) -> None:
        self._clock = store.clock
        self._view = View(store)
        self._group = group
        self._lease_ms = lease_ms
        if isinstance(origins, str):
            raise Invalid(f"origins are a list of names, not the text {origins!r}")
        self._named = None if origins is None else [check_name("origin", one) for one in origins]
        if self._named == []:
            raise Invalid("origins names none: leave it out for all")
        self._held: dict[str, Held] = {}
        #: Held while one is taken, renewed or given back: what was given back must not be renewed.
        self._lock = threading.Lock()
        #: Where the group stood as far as this process knows, for the case that Redis forgets it.
        self._places: dict[str, Place] = {}
        #: Free origins -> since when they were seen so.
        self._free: dict[str, int] = {}
        #: Damaged origins -> when to look at them again.
        self._resting: dict[str, int] = {}
        #: Redis's ms at which the next `look` is due.
        self.look_at = 0

    @property
    def held(self) -> list[Held]:
        """What is owned, as far as is known."""
        return list(self._held.values())

    def owns(self, held: Held, now: int) -> bool:
        """Whether this lease still stands."""
        return self._held.get(held.origin) is held and now < held.until

    def look(self) -> None:
        """Take what is free; give back, or ask for, what makes it even."""
        now = self._clock.now()
        seen = self._group.look(self._origins(now))
        for origin, one in seen.items():
            if one.acked:
                self._note(origin, Place(one.epoch, one.acked))
        stands = {
            origin: Stand(one.owner if one.until > now else "", one.asked)
            for origin, one in seen.items()
        }
        for origin, stand in stands.items():
            if stand.owner == self._group.holder and origin not in self._held:
                self._take(origin)  # its taking was not heard of, or it is to begin anew
        for held in self.held:
            held.is_due = True  # a log that was lost does not ring
            held.replays = held.origin in seen and bool(seen[held.origin].replay)
        plan = share(self._group.holder, stands, self._waited(stands, now))
        for held in self.held:
            if held.origin in plan.give:
                self.release(held)
        for origin in plan.take:
            self._take(origin)
        if plan.ask:
            self._group.ask(plan.ask)
        pace_ms = LOOK_MS_ASKED if plan.awaits else LOOK_MS_MAX
        self.look_at = now + min(pace_ms, self._lease_ms // 3)

    def renew(self) -> None:
        """Renew every lease, and tell that a member of the group lives, also while a handler runs; from any thread."""
        self._group.look([])
        for held in self.held:
            with suppress(Damaged):  # whoever reads on there names it; the others must be renewed
                self.refresh(held)

    def refresh(self, held: Held) -> None:
        """Renew one lease, where it is still owned; afterwards it may be lost, or another one."""
        with self._lock:
            if self._held.get(held.origin) is held:
                self._claim(held.origin)

    def drop(self, held: Held) -> None:
        """Own it no longer. Where Redis still names this member, the next look takes it anew."""
        self._places[held.origin] = Place(held.epoch, held.rev)
        if self._held.get(held.origin) is held:
            del self._held[held.origin]

    def begin_anew(self, held: Held) -> None:
        """It was told what was lost there, and stands where Redis says: the next look, at once, asks."""
        self.drop(held)
        del self._places[held.origin]
        self.look_at = 0

    def release(self, held: Held) -> None:
        """Give it back, so that another member may take it at once."""
        with self._lock:
            self.drop(held)
            self._group.release(held.origin, held.term)

    def release_all(self) -> None:
        """Give back all of them. Where Redis is away they lapse by themselves."""
        for held in self.held:
            try:
                self.release(held)
            except Damaged:
                continue
            except Unavailable as away:
                _log.warning("group %s: its leases are left to lapse: %s", self._group.name, away)
                break

    def rest(self, origin: str, met: Damaged) -> None:
        """Leave an origin alone for a while whose keys hold what they should not; told until it works again once."""
        if origin not in self._resting:
            _log.error("group %s cannot read %s, trying on: %s", self._group.name, origin, met)
        self._resting[origin] = self._clock.now() + DAMAGED_MS
        if held := self._held.get(origin):
            self.drop(held)

    def works(self, origin: str) -> None:
        """The origin could be read."""
        self._resting.pop(origin, None)

    def _note(self, origin: str, place: Place) -> None:
        """The group stands there. A Redis that fell back says less than is known: whoever takes the origin tells it."""
        known = self._places.get(origin)
        if known is None or not _is_behind(place, known):
            self._places[origin] = place

    def _origins(self, now: int) -> list[str]:
        names = self._view.origins() if self._named is None else self._named
        return [origin for origin in names if self._resting.get(origin, 0) <= now]

    def _waited(self, stands: dict[str, Stand], now: int) -> list[str]:
        """The free origins that were left for a whole lease to whoever asked for them."""
        free = [origin for origin, stand in stands.items() if not stand.owner]
        self._free = {origin: self._free.get(origin, now) for origin in free}
        return [origin for origin, since in self._free.items() if now - since >= self._lease_ms]

    def _take(self, origin: str) -> None:
        try:
            with self._lock:
                self._claim(origin)
        except Damaged as met:
            self.rest(origin, met)

    def _claim(self, origin: str) -> None:
        now = self._clock.now()
        held = self._held.get(origin)
        known = Place(held.epoch, held.rev) if held else self._places.get(origin)
        claim = self._group.claim(origin, known, held.term if held else 0)
        fell_from = known.rev if claim and known and _is_behind(claim.place, known) else ""
        if held is not None and (claim is None or claim.term != held.term):
            self.drop(held)
            held = None
        if claim is not None:
            if held is None:
                self._held[origin] = held = Held(origin, claim.term, *claim.place, until=0)
            # None while nothing is logged: a fetch may have told it meanwhile.
            held.epoch = claim.place.epoch or held.epoch
            held.fell_from = fell_from or held.fell_from
            held.until = now + self._lease_ms


def _is_behind(place: Place, known: Place) -> bool:
    """Whether the log's reader stands before an entry that was done with: only a Redis that fell back forgets that."""
    return place.epoch == known.epoch and rev_order(place.rev) < rev_order(known.rev)
