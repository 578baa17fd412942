"""Member: one member of a group, step by step. It looks, delivers, acks; it has no thread and never sleeps by itself.

Each origin stands by itself: its entries are handed over one after the other, and none is begun before the one before
it was acked or parked. A handler that fails makes its own origin wait, no other.

Two threads may work on it: one steps, a second one renews the leases, also while a handler runs. What is done to an
entry carries the term that it was fetched under, so nothing depends on either being in time.
"""

from __future__ import annotations

import logging
import random
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from broker.config import Settings
from broker.errors import BrokerError, Damaged, Gone, Invalid, Refused
from broker.rules.backoff import backoff_ms
from broker.rules.lag import LagWatch
from broker.store.doorbell import Doorbell
from broker.store.group import FETCH_MAX, Group
from broker.store.log import Place
from broker.store.store import Store
from broker.subscriptions.delivery import read_delivery
from broker.subscriptions.handler import Handler, check_function, try_on
from broker.subscriptions.leases import Held, Leases

#: How long one origin's entries are handed over, in ms, before the next origin has its turn; one entry at least.
TURN_MS = 100
#: How often an entry is tried before it is parked, unless said otherwise.
TRIES_MAX = 5
#: The reason of an entry whose failures nobody lived to tell.
INTERRUPTED = "its tries were interrupted: its handler may have killed the process"

_log = logging.getLogger(__package__)


class Member:
    """One member of the group `name`. For one thread, but for `renew`, `watch_lag` and `close`.

    `origins`: None for all, new ones as they appear. After `tries` failures an entry is parked. `chance` is uniform
    in [0, 1): it spreads the retries.
    """

    def __init__(
        self,
        store: Store,
        config: Settings,
        name: str,
        handler: Handler,
        *,
        origins: Sequence[str] | None = None,
        tries: int = TRIES_MAX,
        on_gone: Callable[[Gone], object] | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        if type(tries) is not int or tries < 1:
            raise Invalid(f"an entry is tried once at least, not {tries} times")
        check_function("handler", handler)
        if on_gone is not None:
            check_function("on_gone", on_gone)
        self.name = name
        self.lease_ms = config.budgets.guess_ms
        self._handler = handler
        self._tries_max = tries
        self._on_gone = on_gone or self._say_gone
        self._chance = chance
        self._store = store
        me, parked_max = secrets.token_hex(8), config.bounds.parked_max
        self._group = Group(store, name, me, lease_ms=self.lease_ms, parked_max=parked_max)
        self._leases = Leases(store, self._group, self.lease_ms, origins)
        self._bell = Doorbell(store.client)
        self._lag = LagWatch()
        #: The last entry of each origin that the handler is done with: an ack that was lost is given again without it.
        self._handled: dict[str, bytes] = {}
        #: Why the handler failed last at each origin, and on which entry.
        self._reasons: dict[str, tuple[bytes, str]] = {}
        self._turn = 0
        self.closing = False

    @property
    def owned(self) -> list[str]:
        """The origins that it owns, as far as it knows."""
        return sorted(held.origin for held in self._leases.held)

    # --- for the thread that steps ---------------------------------------------------------------

    def step(self) -> int:
        """Look where that is due, then deliver until the next look is. How many entries were dealt with.

        Raises Unavailable; nothing is lost by it, the next step goes on. What the handler raises beside
        Exceptions comes out here.
        """
        if not self.closing and self._store.clock.now() >= self._leases.look_at:
            self._leases.look()
        done = 0
        for held in self._in_turn():
            try:
                done += self._serve(held)
            except Refused as refused:
                _log.warning("group %s, %s: %s", self.name, held.origin, refused)
                self._leases.drop(held)
            except Damaged as met:
                self._leases.rest(held.origin, met)
        return done

    def wait(self, wait_ms: int) -> bool:
        """Sleep until there is something to do, at most `wait_ms`. Whether a log rang. Raises Unavailable."""
        now = self._store.clock.now()
        held_back = [held.not_before for held in self._leases.held if held.not_before > now]
        moment = min(self._leases.look_at, *held_back, now + wait_ms)
        listening = {
            self._store.keys.of(held.origin).log: held
            for held in self._leases.held
            if held.not_before <= now
        }
        if any(held.is_due or held.waiting for held in listening.values()):
            return False
        places = {log: held.rev for log, held in listening.items()}
        try:
            rung = self._bell.wait(places, max(0, moment - now))
        except Damaged:
            rung = None  # one log that is none must not keep the others silent: fetching names it
        for log in listening if rung is None else rung:
            listening[log].is_due = True
        return rung is None or bool(rung)

    def leave(self) -> None:
        """Give back every lease. Where Redis is away they lapse by themselves."""
        self.close()
        self._leases.release_all()

    # --- for any thread --------------------------------------------------------------------------

    def close(self) -> None:
        """Begin no further entry, and let nobody sleep. Returns at once, also inside the handler."""
        self.closing = True
        self._bell.wake()

    def renew(self) -> None:
        """Renew every lease. Raises Unavailable."""
        self._leases.renew()

    def watch_lag(self) -> None:
        """Warn where the oldest event that waits grew older for a whole minute. Raises Unavailable."""
        now = self._store.clock.now()
        # Asked once each: the thread that steps may be done with it meanwhile.
        unread = [(held.unread_ms, held.origin) for held in self._leases.held]
        waiting = [one for one in unread if one[0]]
        since, origin = min(waiting, default=(now, ""))
        lag_ms = max(0, now - since)
        if grown_ms := self._lag.grew(now, lag_ms):
            _log.warning(
                "group %s falls behind: its next event of %s is %.0f s old, %.0f s more than a minute ago",
                self.name, origin, lag_ms / 1000, grown_ms / 1000,
            )  # fmt: skip

    # --- delivering ------------------------------------------------------------------------------

    def _in_turn(self) -> Iterator[Held]:
        """Each origin once, beginning behind the one that was served last, until it is time to look again."""
        row = self._leases.held
        first = self._turn % len(row) if row else 0
        for held in row[first:] + row[:first]:
            self._turn += 1
            yield held
            if self.closing or self._store.clock.now() >= self._leases.look_at:
                break

    def _serve(self, held: Held) -> int:
        begun = self._store.clock.now()
        if begun >= held.until:
            self._leases.refresh(held)
        if held.fell_from and self._may(held):
            self._lost(held, Gone(held.origin, "rolled back, after it was handled"))
            return 0
        done = 0
        if held.replays and self._may(held):
            done += self._replay(held)
        if held.is_due and not held.waiting and self._may(held):
            self._fetch(held)
        while held.waiting and self._may(held):
            self._deal(held, *held.waiting[0])
            done += 1
            if self._store.clock.now() - begun >= TURN_MS:
                break
        return done

    def _may(self, held: Held) -> bool:
        """Whether the next entry may be begun."""
        now = self._store.clock.now()
        return not self.closing and self._leases.owns(held, now) and now >= held.not_before

    def _fetch(self, held: Held) -> None:
        try:
            found = self._group.fetch(held.origin, held.term)
        except Gone as gone:
            self._lost(held, gone)
            return
        self._leases.works(held.origin)
        if found.entries:
            held.epoch = found.epoch  # the log may have begun since its origin was claimed
        held.waiting.extend(found.entries)
        held.tries = found.tries
        held.is_due = len(found.entries) == FETCH_MAX

    def _deal(self, held: Held, rev: bytes, flat: list[bytes]) -> None:
        """Hand over one entry: then it is acked, or parked, or waits to be tried again."""
        if self._handled.get(held.origin) != rev:
            if held.tries >= self._tries_max:
                known, reason = self._reasons.get(held.origin, (b"", ""))
                self._park(held, rev, reason if known == rev else INTERRUPTED)
                return
            delivery = read_delivery(held.origin, (rev, flat), term=held.term, tries=held.tries + 1)
            if isinstance(delivery, str):
                self._park(held, rev, delivery)
                return
            self._handled.pop(held.origin, None)
            try:
                reason = try_on(self._handler, delivery, self.name)
            except BaseException:
                with suppress(BrokerError):
                    self._group.fail(held.origin, held.term)
                raise
            if reason:
                self._failed(held, rev, reason)
                return
            self._handled[held.origin] = rev
        self._group.ack(held.origin, held.term, rev.decode())
        self._pass(held, rev)

    def _failed(self, held: Held, rev: bytes, reason: str) -> None:
        self._reasons[held.origin] = rev, reason
        held.tries = self._group.fail(held.origin, held.term)
        if held.tries >= self._tries_max:
            self._park(held, rev, reason)
        else:
            self._back_off(held, held.tries)

    def _park(self, held: Held, rev: bytes, reason: str) -> None:
        evicted = self._group.park(held.origin, held.term, rev.decode(), reason)
        _log.error("group %s parked %s of %s: %s", self.name, rev.decode(), held.origin, reason)
        if evicted:
            _log.error("group %s lost %d parked entries of %s", self.name, evicted, held.origin)
        self._pass(held, rev)

    @staticmethod
    def _pass(held: Held, rev: bytes) -> None:
        held.rev, held.tries = rev.decode(), 0
        held.waiting.popleft()

    def _back_off(self, held: Held, tries: int) -> None:
        held.not_before = self._store.clock.now() + backoff_ms(tries, self._chance())

    def _replay(self, held: Held) -> int:
        """Hand over one parked entry once more, out of its order: then it is gone, or parked with the new reason."""
        parked = self._group.to_replay(held.origin, held.term)
        if parked is None:
            held.replays = False
            return 0
        delivery = read_delivery(
            held.origin, parked.raw, term=held.term, tries=parked.tries + 1, replayed=True
        )
        try:
            reason = (
                delivery
                if isinstance(delivery, str)
                else try_on(self._handler, delivery, self.name)
            )
        except BaseException:
            with suppress(BrokerError):
                self._group.again(held.origin, held.term, parked.id, INTERRUPTED)
            raise
        if reason:
            self._group.again(held.origin, held.term, parked.id, reason)
        else:
            self._group.done(held.origin, held.term, parked.id)
        return 1

    # --- a log that no longer holds what follows -------------------------------------------------

    def _lost(self, held: Held, gone: Gone) -> None:
        """Tell it once, and go on where the log can be read."""
        if not held.is_told:
            held.tries += 1
            try:
                self._on_gone(gone)
            except Exception:  # noqa: BLE001 - as with the handler
                _log.exception("group %s: telling failed that %s", self.name, gone)
                if held.tries < self._tries_max:
                    self._back_off(held, held.tries)
                    return
            held.is_told = True
        self._group.skip(held.origin, held.term, Place(held.epoch, held.fell_from or held.rev))
        self._leases.begin_anew(held)

    def _say_gone(self, gone: Gone) -> None:
        _log.error("group %s lost events unread: %s", self.name, gone)
