"""Tells the log of the process of each change of a job: one line, once in the whole fleet.

One chronicle leads, others stand by; only where such lines are told at all does it ask for the lead. It begins with
what is so when it takes office, and tells what changes from then on, by the logs: what happened between the last line
of an earlier leader and then is told by nobody. It writes nothing but its lease. Never a payload, a result or an error.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from broker.errors import BrokerError, Damaged
from broker.roles.complaints import Complaints
from broker.roles.lead import Lead
from broker.rules.key import Key
from broker.rules.liveness import Budgets
from broker.rules.record import Record
from broker.rules.replay import Change
from broker.store.store import Store
from broker.store.view import View
from broker.store.watch import Watcher

ROLE = "chronicle"

#: What stands for the state of a job that was not known yet, and of one that is gone.
NEW, GONE = "new", "gone"

log = logging.getLogger(__name__)
jobs = logging.getLogger("broker.jobs")


class _State(NamedTuple):
    """What of a job makes a line when it changes."""

    created_at: int
    state: str  #: a guess ends in `~`
    node: str
    attempt: int
    desired: str

    @classmethod
    def of(cls, record: Record) -> _State:
        state = record.state + ("~" if record.inferred else "")
        return cls(record.created_at, state, record.node, record.attempt, record.desired)


class Chronicle:
    """`step()` tells what the logs told since the last one.

    It has no bell: nobody waits for a line, and a reading at each event would take its time from those who do.
    """

    def __init__(self, store: Store, *, budgets: Budgets | None = None) -> None:
        self._store = store
        self._lead = Lead(store, ROLE, (budgets or Budgets()).guess_ms)
        self._term = 0
        self._complain = Complaints().tell
        self._watcher: Watcher | None = None
        self._known: dict[Key, _State] = {}
        #: The origins that were there before this term and are not listed yet: what a listing finds there is no news.
        self._unlisted: set[str] = set()

    def step(self) -> int:
        """One turn: how many lines were told; 0 too if another leads, or nothing of this is to be told here."""
        if not jobs.isEnabledFor(logging.INFO) or not self._lead.hold():
            self._stand_by()
            return 0
        if self._lead.term != self._term:
            self._begin_term()
        assert self._watcher is not None, "who has a term watches"
        return self._tell(self._watcher, self._read(self._watcher))

    def close(self) -> None:
        """Give the lead to another one at once."""
        self._stand_by()
        try:
            self._lead.release()
        except BrokerError as error:
            log.info("the lease of the %s runs out by itself: %s", ROLE, error)

    def _begin_term(self) -> None:
        self._stand_by()
        self._unlisted = set(View(self._store).origins())
        self._watcher, self._term = Watcher(self._store), self._lead.term
        log.info("leads as %s, term %d", ROLE, self._term)

    def _stand_by(self) -> None:
        """Let go of all: the next term begins anew."""
        if self._watcher is not None:
            self._watcher.close()
        self._watcher, self._term = None, 0
        self._known, self._unlisted = {}, set()

    def _read(self, watcher: Watcher) -> list[Change]:
        try:
            return watcher.changes(0)
        except Damaged as error:
            self._complain(str(error))  # of one origin; the others were told before
            return []

    def _tell(self, watcher: Watcher, changes: list[Change]) -> int:
        told = 0
        for change in changes:
            key, record = change.key, change.record
            before = self._known.pop(key, None)
            after = None if record is None else _State.of(record)
            if after is not None:
                self._known[key] = after
            is_news = not (change.synthesized and key.origin in self._unlisted)
            if is_news and after != before:
                jobs.info("job changed", extra=_line(change, before, after))
                told += 1
        self._unlisted -= watcher.cursor.keys()
        return told


def _line(change: Change, before: _State | None, after: _State | None) -> dict[str, object]:
    record = change.record
    last = after or before
    return {
        "job": str(change.key),
        "attempt": last.attempt if last else 0,
        "from": before.state if before else NEW,
        "to": after.state if after else GONE,
        "seq": record.seq if record else 0,
        "rev": change.rev,
        "by": change.by,
        "rule": change.rule,
        "node": last.node if last else "",
        "engine": change.key.engine,
    }
