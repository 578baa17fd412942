"""Judges whom nobody hears of any more: guesses, requeues, gives up, takes back; and clears away what is left in RQ.

One sweeper leads, others stand by. What it knows of the jobs tells it only when to look; each is read anew before it
is judged, and each word names what was read. It judges nobody while it may be itself who is deaf: it listens for one
whole budget first, after it took office, after a call that failed or was slow, after the server began anew, and after
its clock was set; nor does it judge while most of a fleet is silent together.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from broker.errors import BrokerError, Damaged
from broker.roles.clearing import Clearing
from broker.roles.complaints import Complaints
from broker.roles.handoff import Handoff
from broker.roles.lead import Deposed, Lead
from broker.roles.reading import read_each
from broker.roles.watchlist import Watchlist
from broker.rules.liveness import Budgets
from broker.rules.sweep import Around, Judgement, judge
from broker.rules.verdict import APPLIED, DUPLICATE
from broker.store.connection import run_id
from broker.store.nodes import Nodes
from broker.store.standing import is_braked, standings, unheard
from broker.store.store import Store
from broker.store.view import View
from broker.store.watch import Watcher

ROLE = "sweeper"

#: How much one step does at most: chunks of changes read, jobs looked at.
CHUNKS_MAX = 20
LOOKS_MAX = 100
#: Which origins promised to speak of their jobs is asked again after so many seconds.
PROMISES_SECONDS = 1.0

log = logging.getLogger(__name__)


class Sweeper:
    """`step()` does one bounded turn. `here` is a monotonic clock, in seconds."""

    def __init__(
        self,
        store: Store,
        *,
        budgets: Budgets | None = None,
        handoff: Handoff | None = None,
        fleet_ms: int | None = None,
        here: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._view = View(store)
        self._nodes = Nodes(store)
        self._budgets = budgets or Budgets()
        self._handoff = handoff or Handoff(store.keys.namespace, store.url)
        self._lead = Lead(store, ROLE, self._budgets.guess_ms)
        self._fleet_seconds = (self._budgets.beat_ms // 4 if fleet_ms is None else fleet_ms) / 1000
        self._here = here
        self._complain = Complaints().tell
        self._jobs = Watchlist()
        self._watcher: Watcher | None = None
        self._around = Around(now=0, term=0, budgets=self._budgets)
        self._server = ""
        self._ahead_ms = 0.0  # Redis's clock before ours
        self._is_braked = False
        self._unheard: set[str] = set()
        self._clearing = Clearing(self._view, self._handoff, self._complain)
        self._quiet_until = self._fleet_due = self._promises_due = 0.0

    # --- the role -----------------------------------------------------------------------------------------------

    def step(self) -> int:
        """One turn: how much was done, at least 1 where the next is to come at once; 0 too if another leads."""
        begun = self._here()
        try:
            if not self._lead.hold():
                return 0
            self._nodes.check_heard()  # else the silence is Redis's: once it is over, it listens first
            if self._lead.term != self._around.term:
                self._begin_term()
            return self._turn(self._watcher or self._open_watcher(), begun)
        except Deposed:
            self._lead.lose()
            self._stand_by()
            return 0
        except BaseException:
            self._stand_by()
            raise

    def close(self) -> None:
        """Give the lead to another one at once."""
        if self._watcher is not None:
            self._watcher.close()
        try:
            self._lead.release()
        except BrokerError as error:
            log.info("the lease of the %s runs out by itself: %s", ROLE, error)
        self._handoff.close()

    def _begin_term(self) -> None:
        """Fence every origin: one that was frozen as the leader must not judge when it wakes."""
        for origin in self._view.origins():
            with suppress(Damaged):  # told when somebody is to be judged there
                self._lead.raise_term(origin)
        self._around = replace(self._around, term=self._lead.term)
        self._listen()
        log.info("leads as %s, term %d", ROLE, self._lead.term)

    def _open_watcher(self) -> Watcher:
        self._watcher = Watcher(self._store)
        return self._watcher

    def _stand_by(self) -> None:
        """The view of the jobs stays, for it loses nothing: the next term begins with what happened meanwhile."""
        self._lead.doubt()
        self._around = replace(self._around, term=0)

    def _listen(self) -> None:
        """Judge nobody until every living worker had a whole budget to be heard."""
        self._quiet_until = self._here() + self._budgets.guess_ms / 1000

    # --- one turn -----------------------------------------------------------------------------------------------

    def _turn(self, watcher: Watcher, begun: float) -> int:
        is_whole = self._follow(watcher)
        self._around = replace(self._around, now=self._store.clock.now())
        self._look_at_clock()
        self._look_at_server()
        self._look_at_fleet()
        self._look_at_promises(watcher)
        looked = done = 0
        if not (self._is_braked or self._here() < self._quiet_until):
            looked, done = self._judge(begun)
        done += self._clearing.step(self._jobs.given_up, self._here())
        return done or int(not is_whole or looked == LOOKS_MAX)

    def _judge(self, begun: float) -> tuple[int, int]:
        """How many jobs were looked at, and how many judged."""
        looked, events = self._look_at_jobs()
        if self._here() - begun > self._budgets.suspect_ms / 1000:
            self._listen()  # whatever kept the answers from us may have kept beats from Redis
            return looked, 0
        return looked, self._say(events)

    def _follow(self, watcher: Watcher) -> bool:
        """Bring the list of jobs up to the logs; False where more is to be read."""
        for _ in range(CHUNKS_MAX):
            try:
                changes = watcher.changes(0)
            except Damaged as error:
                self._complain(str(error))  # of one origin; the others were told before
                return True
            for change in changes:
                self._jobs.follow(change, self._around)
            if not watcher.is_behind:
                return True
        return False

    def _look_at_clock(self) -> None:
        """Redis's clock goes like ours, unless it was set or the machine slept: then no beat tells its age."""
        ahead_ms = self._around.now - self._here() * 1000
        if abs(ahead_ms - self._ahead_ms) > self._budgets.suspect_ms:
            self._listen()
        self._ahead_ms = ahead_ms

    def _look_at_server(self) -> None:
        server = run_id(self._store.client)
        if server != self._server:
            self._server = server
            self._listen()

    def _look_at_fleet(self) -> None:
        here = self._here()
        if here < self._fleet_due:
            return
        self._fleet_due = here + self._fleet_seconds
        fleet = self._nodes.nodes(self._around.now)
        self._clearing.note_silent(
            worker
            for node in fleet
            for worker in node.workers
            if worker.silent_ms >= self._budgets.guess_ms
        )
        silent = unheard(fleet, self._budgets)
        if self._is_braked and self._unheard - silent:
            self._listen()  # a fleet wakes one after another, and each beats for itself before it does for its job
        self._unheard = silent
        braked, nodes = is_braked(fleet, self._budgets), standings(fleet, self._budgets)
        if braked != self._is_braked:
            self._is_braked = braked
            what = "fell silent together: nobody is judged" if braked else "are heard or given up"
            log.warning("most workers %s", what)
        before, self._around = self._around, replace(self._around, nodes=nodes)
        names = before.nodes.keys() | nodes.keys()
        changed = [name for name in names if before.node(name) != self._around.node(name)]
        self._jobs.review(changed, self._around)

    def _look_at_promises(self, watcher: Watcher) -> None:
        here = self._here()
        if here < self._promises_due:
            return
        self._promises_due = here + PROMISES_SECONDS
        spoken_of = [origin for origin in watcher.cursor if origin in self._jobs.names]
        before, stale = self._around.stale, self._view.promises(spoken_of)
        self._around = replace(self._around, stale=stale)
        origins = before.keys() | stale.keys()
        changed = [origin for origin in origins if before.get(origin) != stale.get(origin)]
        self._jobs.review(changed, self._around)

    # --- judging ------------------------------------------------------------------------------------------------

    def _look_at_jobs(self) -> tuple[int, list[Judgement]]:
        """Read the jobs that are due; how many they were, and what is to be said of them."""
        around, again_at = self._around, self._around.now + self._budgets.beat_ms
        events = []
        keys = self._jobs.take_due(around.now, LOOKS_MAX, again_at)
        for key, record in read_each(self._view, keys, self._complain):
            if record is None:
                continue  # the log will tell that it went; if it does not, the record may come back
            event = judge(key, record, around)
            # What is said comes back by the log; where it was refused, the job is looked at again.
            self._jobs.put(key, record, around, not_before=again_at if event else 0)
            if event:
                events.append(event)
        return len(keys), events

    def _say(self, events: list[Judgement]) -> int:
        """Have the merge decide; how many judgements it took."""
        of_origin: dict[str, list[Judgement]] = {}
        for event in events:
            of_origin.setdefault(event.key.origin, []).append(event)
        done = 0
        for origin, said in of_origin.items():
            try:
                self._lead.raise_term(origin)
                answers = self._view.apply(said)
            except Damaged as error:
                self._complain(f"no job of {origin} can be judged: {error}")
                continue
            for event, answer in zip(said, answers, strict=True):
                if answer.rule == "stale_term":
                    raise Deposed
                if answer.outcome == "error":
                    self._complain(f"{event.key} cannot be judged: {answer.rule}")
                elif answer.outcome in (APPLIED, DUPLICATE):
                    done += 1
                    log.info("%s: %s %s", event.key, answer.rule, getattr(event, "error", ""))
                else:
                    log.info("%s: the %s was refused: %s", event.key, event.kind, answer.rule)
        return done
