"""Mends one finding of an audit in one step, if it still is as it was found; a job that moved meanwhile is left alone.

Records come from the log and from nowhere else, indexes from the records. What must go, goes through the one merge, so
that whoever watches is told.
"""

from __future__ import annotations

import secrets

from broker.errors import Gone, Refused
from broker.rules import audit
from broker.rules.audit import Finding
from broker.rules.bounds import Bounds
from broker.rules.event import Remove
from broker.rules.key import Key
from broker.rules.verdict import APPLIED, DUPLICATE
from broker.store.connection import redis_errors
from broker.store.groups import Groups
from broker.store.keys import OriginKeys, aside
from broker.store.lease import fence, raise_number
from broker.store.meanwhile import Meanwhile
from broker.store.nodes import Nodes
from broker.store.scan import MENDING
from broker.store.store import Store
from broker.store.typed import ASIDE_MS_MAX, set_aside
from broker.store.view import View

#: Who says so, on what an auditor removes.
BY = "auditor"


class Mender:
    """`mend` repairs whatever the store can repair."""

    def __init__(self, store: Store, bounds: Bounds | None = None) -> None:
        #: Origins of which readers may hold a list that was damaged when they read it: `settle` them at last.
        self.unsettled: set[str] = set()
        #: What the log told since the look whose findings are mended now.
        self._meanwhile: Meanwhile | None = None
        self._store = store
        self._groups = Groups(store)
        self._nodes = Nodes(store)
        self._view = View(store, bounds)

    def mend(self, finding: Finding, term: int) -> bool:
        """Whether it was mended: not where it is otherwise by now, nor where no repair of the store would help.

        `term` is the auditor's. Raises Refused("stale_term"), Unavailable, Damaged: then nothing was changed.
        """
        match finding.what:
            case audit.SET_ASIDE:
                return self._set_aside(finding)
            case audit.ENLIST:
                return self._enlist(finding.origin)
            case audit.FORGET:
                return self._forget(finding)
            case audit.REMOVE if finding.seen:
                return self._remove(finding)
            case audit.UNLIST | audit.RELIST | audit.RESTORE:
                return self._repair(finding, term)
        return False

    def settle(self, origin: str, term: int, mark: str = "") -> None:
        """Have every reader list the origin anew, now that it is mended. No group loses its place.

        `mark` is what `mending` said when the origin was looked through: from now on it may be listed again.

        Raises Refused("stale_term"), Unavailable, Damaged.
        """
        books = self._store.keys.of(origin)
        keys = [books.log, books.meta, *map(books.sub, self._groups.names())]
        args: list[str | int] = [secrets.token_hex(8), term, mark]
        self._check(self._store.scripts.run("renew", keys, args), origin)
        self.unsettled.discard(origin)
        self._meanwhile = None  # it reads on in the log by the epoch that was

    def _set_aside(self, finding: Finding) -> bool:
        """With what else must be said where the key held what nobody can tell anew."""
        books = self._store.keys.of(finding.origin)
        now = self._store.clock.now()
        if finding.key == books.gone:
            # Before there are none: what was removed must not come back, whoever tells of it.
            raise_number(self._store, finding.origin, "horizon", now)
        if finding.key == books.ids:
            raise_number(self._store, finding.origin, MENDING, now)
        is_done = set_aside(self._store, finding.key, anyway=finding.damaged)
        if is_done and finding.key == books.meta:
            # First, for readers see another log now, and list by what there is.
            if not self._is_listed(books):
                raise_number(self._store, finding.origin, MENDING, now)
            raise_number(self._store, finding.origin, "horizon", now)
            fence(self._store, finding.origin)
        return is_done

    def _is_listed(self, books: OriginKeys) -> bool:
        with redis_errors():
            return self._store.client.type(books.ids) == b"zset"

    def _forget(self, finding: Finding) -> bool:
        """Drop both halves of a worker; one that lives says all of it anew with its next beat."""
        worker = self._store.keys.read(finding.key)
        if worker is None:
            return False
        with redis_errors():
            beats = self._store.client.zscore(self._store.keys.workers, worker.rest) is not None
            tells = bool(self._store.client.exists(finding.key))
        if beats != tells:
            self._nodes.leave(worker.rest)
        return beats != tells

    def _enlist(self, origin: str) -> bool:
        """Make the origin known again: whoever lists all of them had passed it over."""
        now = str(self._store.clock.now())
        with redis_errors():
            return bool(self._store.client.hsetnx(self._store.keys.origins, origin, now))

    def _remove(self, finding: Finding) -> bool:
        """Take the record away as it was read, and no other: whatever moves it gives it another rev."""
        event = Remove(
            key=Key.of_job(finding.origin, finding.job),
            rev=finding.seen,
            force=True,
            event_id=secrets.token_hex(8),
            by=BY,
        )
        return self._view.apply([event])[0].outcome in (APPLIED, DUPLICATE)

    def _silent_until(self, finding: Finding) -> str | None:
        """Up to where the log is silent about it since it was found; None where it spoke, or nobody can tell."""
        found = (finding.origin, finding.rev)
        try:
            if self._meanwhile is None or (self._meanwhile.origin, self._meanwhile.begin) != found:
                self._meanwhile = Meanwhile(self._store, *found)
            return self._meanwhile.silent_until(finding.job)
        except Gone:
            self._meanwhile = None
            return None

    def _repair(self, finding: Finding, term: int) -> bool:
        rev = self._silent_until(finding)
        if rev is None:
            return False
        books = self._store.keys.of(finding.origin)
        job = books.of_job(finding.job).job
        word = finding.word if finding.what == audit.RESTORE else None
        keys = [
            books.log, books.meta, books.live, books.done, books.ready, books.delayed, books.ids,
            job, aside(job),
        ]  # fmt: skip
        args: list[str | int] = [
            self._store.clock.now(),
            term,
            finding.job,
            rev,
            finding.seen,
            "1" if finding.damaged else "",
            word.rev if word else "",
            word.record.submit_rev if word and word.record else "",
            ASIDE_MS_MAX,
        ]
        answer = self._store.scripts.run("repair", keys, args)
        self._check(answer, finding.origin)
        if answer == b"told":
            self.unsettled.add(finding.origin)
        return answer in (b"done", b"told")

    def _check(self, answer: bytes, origin: str) -> None:
        if answer == b"stale_term":
            raise Refused("stale_term", f"a later auditor works on {origin}")
