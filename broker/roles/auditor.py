"""Holds what the broker keeps against itself, mends what does not fit, and says so: a healthy fleet has gauges of 0.

One auditor leads, others stand by. Every few seconds it looks at the keys that everybody stands on, and every minute it
goes round the whole: all keys of the namespace, the books of each origin, what RQ still keeps. A step reads a bounded
piece, or mends a bounded number of findings, each in one step of Redis that does nothing where the job moved meanwhile.

What it finds is somebody's mistake: of a program, of a hand, of a server that lost something. So it is told, in the log
of the process and in `broker:repairs`, and not only mended.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from broker.errors import BrokerError, Damaged, Refused, Unavailable
from broker.roles.complaints import Complaints
from broker.roles.handoff import Handoff
from broker.roles.inspection import Inspection, Pieces
from broker.roles.lead import Deposed, Lead
from broker.roles.leftovers import Leftovers
from broker.rules.audit import DRIFT, GHOST, MISSING, NOTHING, SET_ASIDE, STUCK, Finding
from broker.rules.bounds import Bounds
from broker.rules.liveness import Budgets
from broker.store.audited import REPAIRS_MAX, Audited, AuditSeen, Repair
from broker.store.repair import Mender
from broker.store.store import Store
from broker.store.typed import find_wrong
from broker.store.view import View

ROLE = "auditor"

#: A round begins so many beats of a worker after the last one began, and a look at the keys that everybody stands on
#: after that one ended: 60 s and 5 s, as long as no budget is moved.
ROUND_BEATS = 60
KEYS_BEATS = 5
#: Lists that do not agree have a round begin before its time, but so many such rounds at most in the time of one.
EARLY_ROUNDS = 3
#: How many findings one step mends.
REPAIRS_A_STEP = 100
#: How many findings of one round are told one by one in the program's own log.
TOLD_MAX = 20

_REPAIRED, _UNREAD = "repaired", "unread"

log = logging.getLogger(__name__)


class Auditor:
    """`step()` does one bounded piece. It gives 0, for nothing is urgent, but where findings wait to be mended."""

    def __init__(
        self,
        store: Store,
        *,
        budgets: Budgets | None = None,
        bounds: Bounds | None = None,
        handoff: Handoff | None = None,
        round_seconds: float | None = None,
        keys_seconds: float | None = None,
    ) -> None:
        budgets = budgets or Budgets()
        beat_seconds = budgets.beat_ms / 1000
        self._store = store
        self._view = View(store)
        self._handoff = handoff or Handoff(store.keys.namespace, store.url)
        self._leftovers = Leftovers(store, self._handoff, budgets)
        self._inspection = Inspection(store, budgets, self._leftovers)
        self._audited = Audited(store)
        self._mender = Mender(store, bounds)
        self._lead = Lead(store, ROLE, budgets.guess_ms)
        self._complain = Complaints().tell
        self._round_seconds = ROUND_BEATS * beat_seconds if round_seconds is None else round_seconds
        self._keys_seconds = KEYS_BEATS * beat_seconds if keys_seconds is None else keys_seconds
        #: What was mended, but is not yet told in `broker:repairs`.
        self._untold: deque[Repair] = deque(maxlen=REPAIRS_MAX)
        #: Origins whose readers could not be told to list anew.
        self._later: set[str] = set()
        self._early_due = 0.0
        self._begin_anew()

    def _begin_anew(self) -> None:
        """What was read under another term is worth nothing."""
        self._term = 0
        self._round_due = self._keys_due = self._begun = 0.0
        self._keys: Pieces | None = None
        self._round: Pieces | None = None
        self._is_urgent = False
        self._findings: deque[Finding] = deque()
        self._tally: Counter[str] = Counter()
        self._told = 0  # findings of this round that were told one by one

    # --- the role -------------------------------------------------------------------------------------------------

    def step(self) -> int:
        """One piece: how much was mended, at least 1 where more waits to be; 0 too if another leads."""
        try:
            if not self._hold():
                self._begin_anew()
                return 0
            if self._lead.term != self._term:
                self._begin_term()
            done = self._turn()
            self._tell_repairs()
            return done
        except Deposed:
            self._lead.lose()
            self._begin_anew()
            return 0

    def close(self) -> None:
        """Give the lead to another one at once."""
        try:
            self._lead.release()
        except BrokerError as error:
            log.info("the lease of the %s runs out by itself: %s", ROLE, error)
        self._handoff.close()

    def _hold(self) -> int:
        """Take or renew the lead. Where its own keys are of a wrong type, nobody else would set them aside."""
        try:
            return self._lead.hold()
        except Damaged:
            keys = self._store.keys
            found = find_wrong(self._store, [keys.leader(ROLE), keys.term(ROLE)])
            if not sum(map(self._mend, found)):
                raise
            return self._lead.hold()

    def _begin_term(self) -> None:
        """Fence every origin: one that was frozen as the leader must not mend when it wakes."""
        self._begin_anew()
        with suppress(Damaged):  # each is fenced once more before its books are looked through
            for origin in self._view.origins():
                with suppress(Damaged):
                    self._lead.raise_term(origin)
        self._term = self._lead.term
        log.info("leads as %s, term %d", ROLE, self._term)

    # --- one turn -------------------------------------------------------------------------------------------------

    def _turn(self) -> int:
        here = time.monotonic()
        if self._keys is None and here >= self._keys_due:
            self._keys = self._inspection.of_keys()
        if self._keys and not self._go_on(self._keys):
            self._keys, self._keys_due = None, here + self._keys_seconds
            self._look_at_counts(here)
        if self._findings:
            return self._mend_some()
        if self._mender.unsettled:
            return self._settle()
        if self._round is None and (self._is_urgent or here >= self._round_due):
            self._is_urgent, self._begun = False, here
            self._round = self._inspection.of_everything()
        if self._round and not self._go_on(self._round):
            self._end_round()
        return int(bool(self._findings))

    def _look_at_counts(self, here: float) -> None:
        """Lists that were lost lie silently: they do not wait for the next round."""
        uneven = self._inspection.uneven
        if uneven and self._round is None and here >= self._early_due:
            self._early_due = here + self._round_seconds / EARLY_ROUNDS
            self._is_urgent = True
            log.info("the lists of %s do not agree: a round begins", ", ".join(sorted(uneven)[:3]))

    def _go_on(self, pieces: Pieces) -> bool:
        """Look at the next piece; False where there is none."""
        piece = next(pieces, None)
        if isinstance(piece, BrokerError):
            self._tally[_UNREAD] += 1
            if not isinstance(piece, Damaged):
                raise piece
            self._complain(f"a part of what is kept cannot be looked through: {piece}")
            self._keys_due = 0.0
        aside = []
        for finding in piece if isinstance(piece, list) else ():
            self._tally[finding.kind] += 1
            if finding.what == NOTHING:
                self._tell("found", finding)
            elif finding.what == SET_ASIDE:
                aside.append(finding)
            else:
                self._findings.append(finding)
        # First what others stand on; of an origin's, meta comes before `ids`: it tells readers that this one is gone.
        self._findings.extendleft(reversed(aside))
        return piece is not None

    def _end_round(self) -> None:
        """The gauges of the round; they are told anew where Redis did not take them."""
        tally = self._tally
        seen = AuditSeen(
            at=self._store.clock.now(),
            took_ms=round(1000 * (time.monotonic() - self._begun)),
            origins=self._inspection.origins,
            unread=tally[_UNREAD],
            ghosts=tally[GHOST],
            missing=tally[MISSING],
            stuck=tally[STUCK],
            drift=tally[DRIFT],
            repaired=tally[_REPAIRED],
            term=self._term,
        )
        if not self._is_told(self._audited.tell, seen):
            return
        if sum(tally.values()):
            words = ", ".join(f"{count:,} {kind}" for kind, count in sorted(tally.items()) if count)
            log.warning("a round over %d origins: %s", self._inspection.origins, words)
        self._mender.unsettled |= self._later | self._inspection.mending.keys()
        self._later.clear()
        self._round, self._round_due = None, self._begun + self._round_seconds
        self._tally, self._told = Counter(), 0

    # --- mending --------------------------------------------------------------------------------------------------

    def _mend_some(self) -> int:
        """The next findings. One that Redis does not take now comes again, behind the others."""
        mended = 0
        for _ in range(min(REPAIRS_A_STEP, len(self._findings))):
            finding = self._findings.popleft()
            try:
                mended += self._mend(finding)
            except Unavailable:
                self._findings.append(finding)
                raise
        return max(1, mended)

    def _mend(self, finding: Finding) -> bool:
        try:
            if self._leftovers.is_known(finding):
                is_mended = self._leftovers.discard(finding)
            else:
                is_mended = self._mender.mend(finding, self._lead.term)
        except Refused:
            raise Deposed from None
        except Damaged as error:
            self._complain(f"{finding.origin}/{finding.job} cannot be mended: {error}")
            self._keys_due = 0.0
            return False
        if is_mended:
            self._tally[_REPAIRED] += 1
            self._tell("mended", finding)
            self._untold.append(Repair.of(finding, self._store.clock.now()))
            # What stood on such a key is to be looked through soon.
            self._is_urgent = self._is_urgent or finding.what == SET_ASIDE
        return is_mended

    def _settle(self) -> int:
        """Behind the last repair: have those who listed what was damaged list it anew."""
        for origin in sorted(self._mender.unsettled):
            try:
                mark = self._inspection.mending.get(origin, "")
                self._mender.settle(origin, self._lead.term, mark)
                self._inspection.mending.pop(origin, None)
            except Refused:
                raise Deposed from None
            except Damaged as error:
                self._complain(f"the readers of {origin} cannot be told: {error}")
                self._mender.unsettled.discard(origin)
                self._later.add(origin)  # once the next round has seen it mended
                self._keys_due = 0.0
        return 1

    def _tell(self, done: str, finding: Finding) -> None:
        """In the program's own log: thousands of one cause are no thousands of lines."""
        self._told += 1
        if self._told <= TOLD_MAX:
            about = finding.key or f"{finding.origin}/{finding.job}"
            log.warning("%s: %s of %s: %s", done, finding.kind, about, finding.text)

    def _tell_repairs(self) -> None:
        """In `broker:repairs`. What Redis does not take now stays to be told."""
        if self._untold and self._is_told(self._audited.note, list(self._untold)):
            self._untold.clear()

    def _is_told(self, tell: Callable[[Any], None], what: object) -> bool:
        """Whether it could be written down; where its own key is damaged, that is mended first."""
        try:
            tell(what)
        except Damaged as error:
            self._complain(f"what was found cannot be told: {error}")
            self._keys_due = 0.0
            return False
        return True
