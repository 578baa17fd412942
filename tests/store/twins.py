"""The two twins of the merge behind one face: the ledger in memory, and `merge.lua` on a server.

Log ids differ between them by nature: both are told and compared as ordinals, `1-0` for the first entry.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from broker.rules.bounds import Bounds
from broker.rules.entry import Entry, read_entry
from broker.rules.event import Event, RemovePair
from broker.rules.key import Key
from broker.rules.ledger import Ledger
from broker.rules.record import Record, projection
from broker.rules.verdict import Answer
from broker.store.store import Store
from broker.store.view import View

ORIGIN = "desk"
#: An origin's clock in tests: epoch ms, far from zero so that times of ingest stand out.
NOW = 1_700_000_000_000


class SetClock:
    """A clock that stands where the test puts it."""

    def __init__(self, now=NOW):
        self.time = now

    def now(self):
        return self.time


@dataclass(frozen=True)
class Books:
    """Everything an origin remembers, in the same shape from either twin."""

    records: dict
    log: list
    live: dict
    done: dict
    ready: dict
    delayed: dict
    tombstones: dict
    horizon: int
    answers: dict
    answers_old: dict
    turned_at: int
    terms: dict
    stale_after: int | None
    counts: dict


class LedgerTwin:
    def __init__(self, bounds=None):
        self.ledger = Ledger(bounds=bounds or Bounds())
        self.clock = SetClock()

    def apply(self, events: list[Event]) -> list[Answer]:
        return [self.ledger.apply(event, self.clock.now()) for event in events]

    def record(self, key: Key) -> Record | None:
        return self.ledger.records.get(key)

    def overwrite(self, key: Key, **fields) -> None:
        """Make of a record what no event can make of it."""
        self.ledger.records[key] = replace(self.ledger.records[key], **fields)

    def books(self) -> Books:
        books = self.ledger
        return Books(
            records=dict(books.records),
            log=[_entry(entry) for entry in books.log],
            live=dict(books.live),
            done=dict(books.done),
            ready=dict(books.ready),
            delayed=dict(books.delayed),
            tombstones=dict(books.tombstones),
            horizon=books.horizon,
            answers={name: (first.rule, first.rev) for name, first in books.answers.items()},
            answers_old={
                name: (first.rule, first.rev) for name, first in books.answers_old.items()
            },
            turned_at=books.turned_at,
            terms={role: term for role, term in books.terms.items() if term},
            stale_after=books.stale_after,
            counts=dict(books.counts),
        )


class RedisTwin:
    """`merge.lua` through the view, on whatever server the store talks to."""

    def __init__(self, store: Store, bounds=None):
        self.store = store
        self.clock = store.clock = SetClock()
        self.view = View(store, bounds)
        self.keys = store.keys.of(ORIGIN)
        self._ids: list[str] = []

    def apply(self, events: list[Event]) -> list[Answer]:
        return self.in_ordinals(self.tell(events))

    def tell(self, events: list[Event]) -> list[Answer]:
        """As `apply`, in one round trip: the revs of the answers are still the server's own."""
        return self.view.apply([self._with_real_rev(event) for event in events])

    def in_ordinals(self, answers: list[Answer]) -> list[Answer]:
        self._read_ids()
        return [answer._replace(rev=self.ordinal(answer.rev)) for answer in answers]

    def record(self, key: Key) -> Record | None:
        record = self.view.get(key)
        return record and self._with_ordinals(record)

    def overwrite(self, key: Key, **fields) -> None:
        """Make of a record what no event can make of it."""
        self.store.client.hset(self.store.keys.of_job(key).job, mapping=fields)

    def ordinal(self, rev: str) -> str:
        return f"{self._ids.index(rev) + 1}-0" if rev else ""

    def _with_real_rev(self, event):
        rev = getattr(event, "rev", "")
        if not rev:
            return event
        at = int(rev.split("-")[0]) - 1
        if at >= len(self._ids):
            self._read_ids()
        return replace(event, rev=self._ids[at])

    def _with_ordinals(self, record):
        revs = {name: self.ordinal(getattr(record, name)) for name in ("rev", "submit_rev")}
        return replace(record, **revs)

    def _read_ids(self):
        start = f"({self._ids[-1]}" if self._ids else "-"
        self._ids += [id.decode() for id, _ in self.store.client.xrange(self.keys.log, start)]

    def books(self) -> Books:
        keys = self.keys
        with self.store.client.pipeline(transaction=False) as pipe:
            pipe.xrange(keys.log)
            pipe.hgetall(keys.meta)
            for name in (keys.live, keys.done, keys.ready, keys.delayed, keys.ids, keys.gone):
                pipe.zrange(name, 0, -1, withscores=True)
            pipe.hgetall(keys.seen)
            pipe.hgetall(keys.seen_old)
            log, meta, live, done, ready, delayed, ids, gone, seen, seen_old = pipe.execute()
        meta = _text(meta)
        found = [Key.of_member(ORIGIN, member.decode()) for member, _ in ids]
        records = zip(found, self.view.get_many(found), strict=True)
        return Books(
            records={key: self._with_ordinals(record) for key, record in records},
            log=[_entry(read_entry(self.ordinal(id.decode()), _text(told))) for id, told in log],
            live=_jobs(live),
            done=_jobs(done),
            ready=_jobs(ready),
            delayed=_jobs(delayed),
            tombstones={member.decode(): int(score) for member, score in gone},
            horizon=int(meta.get("horizon", 0)),
            answers=self._answers(seen),
            answers_old=self._answers(seen_old),
            turned_at=int(meta.get("turned_at", 0)),
            terms={
                name.removeprefix("term:"): int(term)
                for name, term in meta.items()
                if name.startswith("term:")
            },
            stale_after=int(meta["stale_after"]) if "stale_after" in meta else None,
            counts={
                tuple(name.split(":")[1:]): int(count)
                for name, count in meta.items()
                if name.startswith("n:")
            },
        )

    def _answers(self, found):
        split = {mark: told.split(" ") for mark, told in _text(found).items()}
        return {mark: (rule, self.ordinal(rev)) for mark, (rule, rev) in split.items()}


def _text(found):
    return {name.decode(): value.decode() for name, value in found.items()}


def _jobs(found):
    return {Key.of_job(ORIGIN, member.decode()): int(score) for member, score in found}


def _entry(entry: Entry):
    """An entry as both can tell it: the four fields outside the projection left out."""
    told = entry.record and projection(entry.record)
    return (entry.rev, entry.event, entry.job, entry.rule, entry.by, entry.generation, told)


def key(id="7", *, engine="ollama", run=""):
    return Key(ORIGIN, engine, run, id)


def pair(id="7", **fields):
    return RemovePair(origin=ORIGIN, id=id, **fields)
