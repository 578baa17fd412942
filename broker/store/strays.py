"""What no list leads to: walks through all keys of the namespace, once a round, a bounded piece at a time.

All other reading goes by names that are listed. Where a listing was lost, only the keys themselves still tell what it
held: the origins that have books, the records that no index lists, the keys of a wrong type wherever they are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import cast

from broker.rules.audit import ENLIST, MISSING, Finding
from broker.rules.key import NAME
from broker.store.audit import member_of
from broker.store.connection import redis_errors
from broker.store.decode import read_text
from broker.store.keys import Named
from broker.store.store import Store
from broker.store.typed import find_wrong

#: About how many keys of the whole Redis one piece passes over: some milliseconds.
PAGE = 1_000
#: Keys that only an origin has which once had a job.
_BOOKS = ("log", "meta", "ids", "live", "done", "job")


class Strays:
    """One walk. Every key that is there from its beginning to its end is met."""

    def __init__(self, store: Store) -> None:
        #: Origin -> jobs that have a record, but are not among its `ids`: to be looked at.
        self.unlisted: dict[str, list[str]] = defaultdict(list)
        #: Workers that something is kept of.
        self.telling: list[str] = []
        self._store = store

    def walk(self) -> Iterator[list[Finding]]:
        """Piece by piece, what is wrong. Raises Unavailable, Damaged where `broker:origins` cannot be read."""
        # Of the special characters of a pattern, a namespace may hold these.
        space = "".join(
            f"\\{sign}" if sign in "*?[]^\\-" else sign for sign in self._store.keys.namespace
        )
        cursor, origins = 0, set()
        while True:
            with redis_errors():
                cursor, found = self._store.client.scan(cursor, f"{space}:*", PAGE)
            names = list(map(read_text, cast("list[bytes]", found)))
            named = [known for known in map(self._store.keys.read, names) if known]
            self._note_unlisted([known for known in named if known.what == "job"])
            self.telling += [known.rest for known in named if known.what == "worker"]
            origins |= {known.origin for known in named if known.what in _BOOKS}
            yield find_wrong(self._store, names)
            if cursor == 0:
                break
        yield self._lost(sorted(origins))

    def _lost(self, origins: Sequence[str]) -> list[Finding]:
        """Those that have books, though the fleet does not know of them."""
        if not origins:
            return []
        keys = self._store.keys
        with redis_errors():
            known = self._store.client.hmget(keys.origins, list(origins))
        return [
            Finding(
                kind=MISSING,
                origin=origin,
                job="",
                text=f"{keys.origins} does not list {origin}, though it has books",
                what=ENLIST,
                key=keys.origins,
            )
            for origin, listed in zip(origins, cast("list[bytes | None]", known), strict=True)
            if listed is None and NAME.match(origin)
        ]

    def _note_unlisted(self, records: Sequence[Named]) -> None:
        with redis_errors(), self._store.client.pipeline(transaction=False) as pipe:
            jobs = [(found.origin, found.rest) for found in records if found.rest.count("/") == 2]
            for origin, job in jobs:
                pipe.zscore(self._store.keys.of(origin).ids, member_of(job))
            scores = pipe.execute(raise_on_error=False)  # one that is none must not hide the others
        for (origin, job), score in zip(jobs, scores, strict=True):
            if score is None:
                self.unlisted[origin].append(job)
