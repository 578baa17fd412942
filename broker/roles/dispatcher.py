"""Hands ready jobs to nodes: late, one for each free slot, best first.

One dispatcher leads, others stand by. The leader knows the jobs as any watcher does, and its own placements before
they show up in the log. It places a job (the log's word) and hands the attempt to RQ at once; whatever gets lost
between the two is handed over again, which is harmless: an attempt has one RQ id.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from dataclasses import replace

from broker.errors import BrokerError, Damaged
from broker.roles.handoff import Handoff
from broker.roles.lead import Deposed, Lead
from broker.roles.office import Office
from broker.roles.plan import node_loads, plan_places
from broker.roles.reading import read_each
from broker.rules.event import NUMBER_MAX, Place
from broker.rules.key import Key
from broker.rules.liveness import Budgets
from broker.rules.record import SUBMITTED, Record
from broker.rules.state import QUEUED
from broker.rules.verdict import APPLIED, DUPLICATE, Answer
from broker.store.nodes import REPLACED_MS, Nodes, NodeSeen
from broker.store.queue import DUE_MAX, move_due
from broker.store.store import Store
from broker.store.view import View

ROLE = "dispatcher"

#: How much one step does at most: jobs placed, attempts handed over again.
PLACES_MAX = 100
#: A job whose placing was refused, though nothing newer is known of it, is tried again after so many milliseconds.
HOLD_BACK_MS = 1_000
#: The jobs of an origin whose keys are damaged are tried again after so many milliseconds.
DAMAGED_MS = 10_000
#: Nodes and workers that are silent for long are looked for after so many seconds.
FORGET_SECONDS = 60.0

log = logging.getLogger(__name__)


class Dispatcher:
    """`step()` does one bounded turn; `bell(seconds)` waits until something happens to a job."""

    def __init__(
        self,
        store: Store,
        *,
        holder: str = "",
        budgets: Budgets | None = None,
        handoff: Handoff | None = None,
        fleet_ms: int | None = None,
    ) -> None:
        self._store = store
        self._view = View(store)
        self._nodes = Nodes(store)
        self._budgets = budgets or Budgets()
        self._handoff = handoff or Handoff(store.keys.namespace, store.url)
        self._lead = Lead(store, ROLE, self._budgets.guess_ms, holder)
        self._fleet_seconds = (self._budgets.beat_ms // 4 if fleet_ms is None else fleet_ms) / 1000
        self._again_ms = self._budgets.start_ms // 5
        self._office: Office | None = None
        self._fleet: list[NodeSeen] = []
        self._fleet_due = self._again_due = self._forget_due = 0.0
        self._due: set[str] = set()  # origins with delayed jobs to make ready

    # --- the role -----------------------------------------------------------------------------------------------

    def step(self) -> int:
        """One turn: how many jobs were placed or handed over again; 0 where nothing is to be done, or another leads."""
        try:
            # Before the lease: a listing may well take longer than a lease lasts.
            office = self._office or self._open_office()
            if not self._lead.hold():
                office.follow(self._store.clock.now())
                return 0
            if office.term != self._lead.term:
                self._begin_term(office)
            return self._turn(office)
        except Deposed:
            self._lead.lose()
            self._leave_office()
            return 0
        except BaseException:
            # What was written is known to Redis alone now: look anew, hand over anew.
            self._leave_office()
            raise

    def bell(self, seconds: float) -> bool:
        """Wait until something happens to a job, `seconds` at most; False at once where this one does not lead."""
        return self._office is not None and self.leads and self._office.wait(seconds)

    def close(self) -> None:
        """Give the lead to another one at once."""
        self._leave_office()
        try:
            self._lead.release()
        except BrokerError as error:
            log.info("the lease of the %s runs out by itself: %s", ROLE, error)
        self._handoff.close()

    @property
    def leads(self) -> bool:
        """Whether it led in its last step."""
        return self._office is not None and self._lead.term > 0

    def _open_office(self) -> Office:
        office = self._office = Office(self._store)
        _catch_up(office, self._store.clock.now())
        return office

    def _begin_term(self, office: Office) -> None:
        office.term = self._lead.term
        # First the terms, then the logs: what an older leader wrote is in them, and it writes no more.
        origins = self._view.origins()
        for origin in origins:
            with suppress(Damaged):  # told when something is to be placed there
                self._lead.raise_term(origin)
        _catch_up(office, self._store.clock.now())
        office.again.extend(office.load.placed_before(NUMBER_MAX))
        self._due.update(origins)
        log.info("leads as %s, term %d: %d jobs", ROLE, office.term, len(office.load))

    def _leave_office(self) -> None:
        office, self._office = self._office, None
        self._lead.doubt()
        if office is not None:
            office.close()

    # --- one turn -----------------------------------------------------------------------------------------------

    def _turn(self, office: Office) -> int:
        now = self._store.clock.now()
        if not office.follow(now):
            return 1  # and on at once
        done = self._place(office, now) + self._hand_over_again(office, now)
        self._forget_nodes(office, now)
        return done

    def _place(self, office: Office, now: int) -> int:
        """Place what fits, and hand it to RQ at once."""
        done = self._move_due(office, now)
        if not office.load.heads():
            return done
        nodes = node_loads(office.load, self._look_at_fleet(now), self._budgets.suspect_ms)
        of_origin: dict[str, list[Place]] = {}
        for place in plan_places(office.load, nodes, office.term, PLACES_MAX):
            of_origin.setdefault(place.key.origin, []).append(place)
        placed: list[tuple[Key, Record]] = []
        for origin, places in of_origin.items():
            try:
                self._lead.raise_term(origin)
                answers = self._view.apply(places)
            except Damaged as error:
                office.complain(f"no job of {origin} can be placed: {error}")
                for place in places:
                    office.load.hold_back(place.key, now + DAMAGED_MS)
            else:
                placed += self._settle(office, places, answers, now)
        for key, record in placed:
            self._handoff.enqueue(key, record)
        return done + len(placed)

    def _move_due(self, office: Office, now: int) -> int:
        self._due |= office.load.release(now)
        moved = 0
        for origin in sorted(self._due):
            try:
                count = move_due(self._store, origin, now)
            except Damaged as error:
                office.complain(f"the delayed jobs of {origin}: {error}")
                count = 0
            moved += count
            if count < DUE_MAX:
                self._due.discard(origin)
        return moved

    def _settle(
        self, office: Office, places: list[Place], answers: list[Answer], now: int
    ) -> list[tuple[Key, Record]]:
        """Take the answers into the load view, before the log tells; give what was placed."""
        placed, doubtful = [], {}
        for place, answer in zip(places, answers, strict=True):
            known = office.load.get(place.key)
            if answer.rule == "stale_term":
                raise Deposed
            if answer.outcome in (APPLIED, DUPLICATE) and known is not None:
                record = replace(known, node=place.node, placed_at=now, rev=answer.rev)
                office.load.put(place.key, record, now)
                placed.append((place.key, record))
            elif answer.outcome == "error":
                office.complain(f"{place.key} cannot be placed: {answer.rule}")
                office.load.hold_back(place.key, now + DAMAGED_MS)
            else:
                log.info("%s was not placed: %s", place.key, answer.rule)
                doubtful[place.key] = place.rev
        # Most often somebody else was first, and the log will say so; but no job may hang on that.
        for key, current in read_each(self._view, list(doubtful), office.complain):
            if current is not None and current.rev == doubtful[key]:
                office.load.hold_back(key, now + HOLD_BACK_MS)
            else:
                office.load.put(key, current, now)
        return placed

    def _look_at_fleet(self, now: int) -> list[NodeSeen]:
        here = time.monotonic()
        if here >= self._fleet_due:
            self._fleet, self._fleet_due = self._nodes.nodes(now), here + self._fleet_seconds
        return self._fleet

    def _hand_over_again(self, office: Office, now: int) -> int:
        """Placed jobs that have not started: the hand-off may have died with its sender, or with RQ's memory."""
        here = time.monotonic()
        if here >= self._again_due:
            self._again_due = here + self._again_ms / 1000
            office.again.extend(office.load.placed_before(now - self._again_ms))
        keys = [office.again.popleft() for _ in range(min(PLACES_MAX, len(office.again)))]
        count = 0
        for key, record in read_each(self._view, keys, office.complain):
            office.load.put(key, record, now)
            if record and record.kind == SUBMITTED and record.state == QUEUED and record.node:
                count += self._handoff.enqueue(key, record)
        if count:
            log.info("%d placed jobs were handed over again", count)
        return count

    def _forget_nodes(self, office: Office, now: int) -> None:
        here = time.monotonic()
        if here >= self._forget_due:
            self._forget_due = here + FORGET_SECONDS
            for node in self._nodes.forget(now, office.load.busy_nodes):
                log.info("node %s was silent for a day and is forgotten", node)
            # The brake counts those who fell silent for as long as it may last.
            looks_back_ms = self._budgets.brake_ms + self._budgets.guess_ms
            if gone := self._nodes.forget_replaced(max(REPLACED_MS, looks_back_ms)):
                log.info(
                    "%d workers that died, while their nodes beat on, are forgotten", len(gone)
                )


def _catch_up(office: Office, now: int) -> None:
    while not office.follow(now):
        pass
