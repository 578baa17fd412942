"""Sees to it that nothing grows without bound: cuts the logs, prunes old records, forgets dead groups.

One janitor leads, others stand by. It goes round the origins, a bounded step at a time. Logs come first, then what
origins keep that fell silent: where Redis is full, these make room. What it prunes leaves a tombstone and an entry
`pruned`, so that every cache shrinks with the list and nothing old comes back. A guess of a reported job is given as
long as the job's own word: it goes when nobody has spoken of the job for the whole time, never earlier.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from contextlib import suppress

from broker.errors import BrokerError, Damaged, Refused
from broker.roles.complaints import Complaints
from broker.roles.lead import Deposed, Lead
from broker.rules.bounds import Bounds
from broker.rules.event import NUMBER_MAX, Prune
from broker.rules.liveness import Budgets
from broker.rules.verdict import APPLIED
from broker.store.aged import PAGE, AgedRecords
from broker.store.groups import Groups
from broker.store.log import TRIM_MAX, Log
from broker.store.rest import rest, silent
from broker.store.store import Store
from broker.store.view import View

ROLE = "janitor"

#: How many origins one step looks at, and how much it cuts off the log of one.
ORIGINS_MAX = 20
CUT_MAX = 5 * TRIM_MAX
#: A round of all origins begins so many seconds after the last one; in between only those are looked at again where
#: much is left to be done. Where something comes in all the time, there is always a little to go.
ROUND_SECONDS = 1.0

log = logging.getLogger(__name__)


class Janitor:
    """`step()` does one bounded turn."""

    def __init__(
        self,
        store: Store,
        *,
        bounds: Bounds | None = None,
        budgets: Budgets | None = None,
        round_seconds: float = ROUND_SECONDS,
    ) -> None:
        self._store = store
        self._bounds = bounds or Bounds()
        self._view = View(store, self._bounds)
        self._groups = Groups(store)
        self._lead = Lead(store, ROLE, (budgets or Budgets()).guess_ms)
        self._term = 0
        self._round_seconds = round_seconds
        self._round_due = 0.0
        self._round: deque[str] = deque()  # the origins that are still to be looked at
        self._again: list[str] = []  # those where much was left
        self._books: dict[str, _Books] = {}
        self._complain = Complaints().tell

    def step(self) -> int:
        """One turn: how much went, at least 1 where the next is to come at once; 0 until then, or if another leads."""
        try:
            if not self._lead.hold():
                return 0
            if self._lead.term != self._term:
                self._begin_term()
            return self._turn()
        except Deposed:
            self._lead.lose()
            return 0

    def close(self) -> None:
        """Give the lead to another one at once."""
        try:
            self._lead.release()
        except BrokerError as error:
            log.info("the lease of the %s runs out by itself: %s", ROLE, error)

    def _begin_term(self) -> None:
        """Fence every origin: one that was frozen as the leader must not cut or prune when it wakes."""
        for origin in self._view.origins():
            with suppress(Damaged):  # told when something is to go there
                self._lead.raise_term(origin)
        self._term = self._lead.term
        log.info("leads as %s, term %d", ROLE, self._term)

    def _turn(self) -> int:
        if not self._round and not self._begin_round():
            return 0
        now = self._store.clock.now()
        origins = [self._round.popleft() for _ in range(min(ORIGINS_MAX, len(self._round)))]
        dead, live = self._look_at_groups(now)
        cut = {origin: self._cut(origin, live) for origin in origins}
        done = sum(cut.values()) + self._let_rest(origins, now) + self._reap(dead, now)
        for origin, count in cut.items():
            # Where much is left to be cut, room is made first: in a full Redis, nothing can be pruned before.
            pruned = self._prune(origin, now) if count < CUT_MAX else 0
            done += pruned
            if count >= CUT_MAX or pruned >= PAGE:
                self._again.append(origin)
        return done or int(bool(self._round or self._again))

    def _begin_round(self) -> bool:
        """Whether there is anything to look at: groups may die where no origin is (any more)."""
        here = time.monotonic()
        if is_due := here >= self._round_due:
            self._round.extend(self._view.origins())
            self._round_due = here + self._round_seconds
        else:
            self._round.extend(self._again)
        self._again.clear()
        return is_due or bool(self._round)

    def _look_at_groups(self, now: int) -> tuple[list[str], list[str] | None]:
        """The dead and the live ones; None where nobody can tell which live."""
        try:
            dead = self._groups.dead(now, self._bounds.group_ms_max)
            return dead, sorted(set(self._groups.names()) - set(dead))
        except Damaged as error:
            self._complain(f"every log is kept up to the hard cap, the groups are unknown: {error}")
            return [], None

    def _cut(self, origin: str, groups: list[str] | None) -> int:
        """Trim its log by count and age, a few bounded calls; by the hard cap alone where the groups are unknown."""
        bounds, gone = self._bounds, 0
        hard_max = bounds.log_hard_max
        kept = (bounds.log_max, bounds.log_ms_max) if groups is not None else (hard_max, NUMBER_MAX)
        try:
            self._lead.raise_term(origin)
            while gone < CUT_MAX:
                count = self._of(origin).log.trim(
                    *kept, groups=groups or (), hard_max=hard_max, term=self._term
                )
                gone += count
                if count < TRIM_MAX:
                    break
        except Refused:
            raise Deposed from None
        except Damaged as error:
            self._complain(f"the log of {origin} cannot be cut: {error}")
        return gone

    def _let_rest(self, origins: list[str], now: int) -> int:
        """Fold what those that fell silent still keep; how many they were. No answer goes before its time."""
        rested = 0
        for origin in silent(self._store, origins):
            try:
                rested += rest(self._store, origin, self._term, now - self._bounds.answers_ms_min)
            except Refused:
                raise Deposed from None
            except Damaged as error:
                self._complain(f"the origin {origin} cannot be let rest: {error}")
        return rested

    def _prune(self, origin: str, now: int) -> int:
        """Let go of a page of its old records. A job that was heard of since it was read stays."""
        aged_records = self._of(origin).aged
        try:
            self._lead.raise_term(origin)
            found = aged_records.look(now)
            # Without an event_id: a repeat finds no record and prunes nothing, and a mark would outlive what went.
            answers = self._view.apply(
                [
                    Prune(key=aged.key, rev=aged.rev, last_seen=aged.last_seen, term=self._term)
                    for aged in found.aged
                ]
            )
        except Damaged as error:
            self._complain(f"the records of {origin} cannot be pruned: {error}")
            return 0
        # One stands for all: a thousand damaged ones are no thousand lines.
        for job in found.broken[:1]:
            self._complain(f"the record of {origin}/{job} cannot be pruned: it cannot be read")
        pruned, errors = 0, []
        for aged, answer in zip(found.aged, answers, strict=True):
            if answer.rule == "stale_term":
                raise Deposed
            if answer.outcome == APPLIED:
                pruned += 1
            elif aged.ended:
                aged_records.pass_over(1)
            if answer.outcome == "error":
                errors.append(f"the record of {aged.key} cannot be pruned: {answer.rule}")
        for reason in errors[:1]:
            self._complain(reason)
        return pruned

    def _reap(self, dead: list[str], now: int) -> int:
        """Forget one group that nobody reads as any more: with its places, and what it has parked."""
        for group in dead:
            try:
                # Once more: somebody may read again since it was looked at.
                if not self._groups.is_live(group, now, self._bounds.group_ms_max):
                    self._groups.remove(group)
                    log.info("nobody reads as %s any more: the group is forgotten", group)
                    return 1
            except Damaged as error:
                self._complain(f"the group {group} cannot be forgotten: {error}")
        return 0

    def _of(self, origin: str) -> _Books:
        if origin not in self._books:
            self._books[origin] = _Books(self._store, origin, self._bounds)
        return self._books[origin]


class _Books:
    """What the janitor reads of one origin."""

    def __init__(self, store: Store, origin: str, bounds: Bounds) -> None:
        self.log = Log(store, origin)
        self.aged = AgedRecords(store, origin, bounds)
