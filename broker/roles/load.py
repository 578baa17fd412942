"""What the dispatcher knows of the jobs: who waits, in which order, and what every node carries.

Fed with one job's newest record at a time, each in O(log n): no step of a dispatcher looks at all jobs. It decides
nothing and talks to nobody. Its order is that of `ready` (the score of `rules.index`), kept for each kind of job
(engine and model), so that a thousand jobs that nobody can take never stand before one that somebody can.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection
from typing import Any

from broker.rules.index import ready_score
from broker.rules.key import Key
from broker.rules.record import REPORTED, SUBMITTED, Record
from broker.rules.replay import Change, rev_order
from broker.rules.state import QUEUED, RUNNING

#: What makes two waiting jobs the same to every node.
Kind = tuple[str, str]  # engine, model
Slot = tuple[str, str]  # node, engine

#: How many delayed jobs become ready at a time.
RELEASE_MAX = 100
#: The entries of jobs that no longer wait are looked through when there are more than so many, and than two a job.
ENTRIES_MIN = 1_000


class Load:
    """The jobs that have not ended, each as it was seen last."""

    def __init__(self) -> None:
        self._records: dict[Key, Record] = {}
        self._waiting: dict[Kind, list[tuple[int, Key, str]]] = {}
        self._delayed: list[tuple[int, Key, str]] = []
        self._placed: set[Key] = set()
        self._slots: Counter[Slot] = Counter()  # placed, not yet started
        self._workers: Counter[tuple[str, str, str]] = Counter()  # node, engine, worker: running
        self._jobs: Counter[str] = Counter()
        self._entries = 0  # put into `_waiting` and `_delayed` since they were last looked through

    def __len__(self) -> int:
        return len(self._records)

    def get(self, key: Key) -> Record | None:
        """The newest that was seen of a job which has not ended."""
        return self._records.get(key)

    def follow(self, change: Change, now: int) -> None:
        """What the log told. It may be older than what this leader wrote itself and therefore knows already."""
        known = self._records.get(change.key)
        is_older = known is not None and rev_order(change.rev) <= rev_order(known.rev)
        # A new listing is the truth also where a log fell back with its Redis.
        if change.synthesized or not is_older:
            self.put(change.key, change.record, now)

    def put(self, key: Key, record: Record | None, now: int) -> None:
        """A job as it is now, None where it is gone."""
        known = self._records.pop(key, None)
        if known is not None:
            self._count(key, known, -1)
        if record is not None and not record.ended:
            self._records[key] = record
            self._count(key, record, 1)
            if record.ready:
                self._wait(key, record, now)
        if self._entries > ENTRIES_MIN + 2 * len(self._records):
            self._tidy()

    def _tidy(self) -> None:
        """Let go of what is kept of jobs that changed while they waited: nobody may ever come to it."""
        for kind, queue in list(self._waiting.items()):
            self._waiting[kind] = sorted({entry for entry in queue if self._offered(*entry[1:])})
            if not self._waiting[kind]:
                del self._waiting[kind]
        self._delayed = sorted({entry for entry in self._delayed if self._offered(*entry[1:])})
        self._entries = len(self._delayed) + sum(map(len, self._waiting.values()))

    def hold_back(self, key: Key, until: int) -> None:
        """Offer a job that was taken out of the waiting ones again, but not before `until`."""
        if record := self._records.get(key):
            self._delay(key, record, until)

    def _wait(self, key: Key, record: Record, now: int) -> None:
        score = ready_score(record, now)
        if score is None:
            self._delay(key, record, record.due)
        else:
            queue = self._waiting.setdefault((key.engine, record.model), [])
            heapq.heappush(queue, (score, key, record.rev))
            self._entries += 1

    def _delay(self, key: Key, record: Record, until: int) -> None:
        heapq.heappush(self._delayed, (until, key, record.rev))
        self._entries += 1

    def _count(self, key: Key, record: Record, by: int) -> None:
        if not record.node or (record.kind == REPORTED and record.inferred):
            return
        if record.believed not in (QUEUED, RUNNING):
            return
        _add(self._jobs, record.node, by)
        if record.kind != SUBMITTED:
            return
        if record.believed == RUNNING:
            _add(self._workers, (record.node, key.engine, record.worker), by)
        else:
            _add(self._slots, (record.node, key.engine), by)
            (self._placed.add if by > 0 else self._placed.discard)(key)

    def placed_before(self, ms: int) -> list[Key]:
        """The jobs that were given to a node until then and have not started, the earliest first."""
        found = [(self._records[key].placed_at, key) for key in self._placed]
        return [key for placed_at, key in sorted(found) if placed_at <= ms]

    @property
    def busy_nodes(self) -> Collection[str]:
        """The nodes that carry a job."""
        return self._jobs.keys()

    def carried(self, node: str) -> int:
        """How many jobs a node carries, of all engines, ours and reported ones."""
        return self._jobs[node]

    def taken(self, alive: Collection[str]) -> Counter[Slot]:
        """The slots that jobs hold. A worker that is not among the `alive` ones offers none, so its job holds none."""
        taken = Counter(self._slots)
        for (node, engine, worker), count in self._workers.items():
            if worker in alive:
                taken[node, engine] += count
        return taken

    def release(self, now: int) -> set[str]:
        """Let those wait that have become due, `RELEASE_MAX` at most; the origins of which there were any."""
        origins = set()
        for _ in range(RELEASE_MAX):
            if not self._delayed or self._delayed[0][0] > now:
                break
            _, key, rev = heapq.heappop(self._delayed)
            if record := self._offered(key, rev):
                self._wait(key, record, now)
                origins.add(key.origin)
        return origins

    def heads(self) -> dict[Kind, tuple[int, Key]]:
        """The first of each kind that waits, with its score: the lowest is next."""
        found = {kind: self.head(kind) for kind in list(self._waiting)}
        return {kind: head for kind, head in found.items() if head}

    def head(self, kind: Kind) -> tuple[int, Key] | None:
        """The first of a kind, with its score."""
        queue = self._waiting.get(kind, [])
        while queue:
            score, key, rev = queue[0]
            if self._offered(key, rev):
                return score, key
            heapq.heappop(queue)  # it was cancelled, placed or changed since
        self._waiting.pop(kind, None)
        return None

    def take(self, kind: Kind, key: Key) -> Record:
        """Take the head of its kind out of the waiting ones."""
        _, first, _ = heapq.heappop(self._waiting[kind])
        assert first == key, "only a head is taken"
        return self._records[key]

    def _offered(self, key: Key, rev: str) -> Record | None:
        record = self._records.get(key)
        return record if record is not None and record.rev == rev and record.ready else None


def _add(counter: Counter[Any], what: object, by: int) -> None:
    counter[what] += by
    if not counter[what]:
        del counter[what]
