"""Why a job is in its state: the deciding event, the refused ones, the attempts given up, and what would change it."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from broker.errors import NotFound
from broker.jobs.outcome import Listed
from broker.rules.entry import Entry
from broker.rules.explain import Surroundings, what_next
from broker.rules.key import Key
from broker.rules.phrases import when
from broker.rules.record import Record
from broker.store.log import BEGIN, Log
from broker.store.refusal import Refusal
from broker.store.standing import is_braked, standings

if TYPE_CHECKING:
    from broker.jobs.catalog import Catalog


#: Rules that offer a job anew, or end it, without the word of whoever had it.
_GIVE_UP = frozenset({"requeued", "unplaced", "lost"})


@dataclass(frozen=True, slots=True)
class GivenUp:
    """An attempt whose word counts no more: since when (epoch ms), by which event and rule.

    Node and worker are empty where the log no longer tells them, or nothing had started.
    """

    attempt: int
    node: str
    worker: str
    at: int
    event: str
    rule: str
    error: str  #: the holder's own word; empty where it had none

    @classmethod
    def by(cls, entry: Entry, after: Record, before: Record | None) -> Self:
        """By the entry that gave it up, and the job as it was before."""
        return cls(
            attempt=after.attempt - 1,
            node=before.node if before else "",
            worker=before.worker if before else "",
            at=int(entry.rev.partition("-")[0]),
            event=entry.event,
            rule=entry.rule,
            error=(after.error or after.reason) if entry.event == "finish" else "",
        )


@dataclass(frozen=True, slots=True)
class Why:
    """The explanation. `listed` is None where no record stands; `tombstone` is the generation of its removal, or 0."""

    key: Key
    listed: Listed | None
    tombstone: int
    refusals: list[Refusal]
    given_up: list[GivenUp]  #: the newest first
    untold: int  #: of so many of the first attempts the log tells nothing, or not near enough
    next: list[str]

    def to_json(self) -> dict[str, Any]:
        record = self.listed and self.listed.record
        deciding = record and {
            "rev": record.rev,
            "rule": record.rule,
            "by": record.by,
            "at": int(record.rev.split("-")[0]),
            "reason": record.reason,
        }
        return {
            "key": str(self.key),
            "record": self.listed and self.listed.to_json(),
            "deciding": deciding,
            "tombstone": self.tombstone or None,
            "refused": [refusal.to_json() for refusal in self.refusals],
            "given_up": [asdict(attempt) for attempt in self.given_up],
            "untold": self.untold,
            "next": self.next,
        }


def explain(catalog: Catalog, key: Key) -> Why:
    """Gather what is known of a job; raises NotFound where that is nothing at all."""
    record = catalog.view.get(key)
    tombstone = catalog.view.tombstone(key)
    refusals = catalog.view.refusals(key)
    if record is None and not tombstone and not refusals:
        horizon = catalog.view.horizon(key.origin)
        since = f" since {when(horizon)}" if horizon else ""
        raise NotFound(f"no job {key} is known, nor that one was removed{since}")
    listed = None if record is None else catalog.list_records([(key, record)])[0]
    around = _surroundings(catalog, key, listed, tombstone)
    given_up, untold = ([], 0) if record is None else _given_up(catalog, key, record)
    return Why(key, listed, tombstone, refusals, given_up, untold, what_next(key, record, around))


def _given_up(catalog: Catalog, key: Key, record: Record) -> tuple[list[GivenUp], int]:
    """The attempts before this one that were given to a node, and of how many of the first ones nothing is told.

    One call, and none where there was no other: it reads the last 1,000 entries up to the job's own newest one.
    """
    if record.attempt <= 1:
        return [], 0
    entries = Log(catalog.store, key.origin).read_back(record.rev, record.submit_rev or BEGIN)
    found, untold = [], record.attempt - 1
    before: Record | None = None
    for entry in reversed(entries):
        after = entry.record
        if entry.job != key.job or after is None or after.created_at != record.created_at:
            continue
        if before is None:
            untold = after.attempt - 1
        is_known = after.attempt > before.attempt if before else entry.rule in _GIVE_UP
        if is_known and (before is None or before.node):
            found.append(GivenUp.by(entry, after, before))
            untold = min(untold, found[0].attempt - 1)
        before = after
    return found[::-1], untold


def _surroundings(
    catalog: Catalog, key: Key, listed: Listed | None, tombstone: int
) -> Surroundings:
    now = catalog.store.clock.now()
    nodes = catalog.fleet.nodes(now)
    budgets = catalog.config.budgets
    beats = {worker.name: worker.beaten_at for node in nodes for worker in node.workers}
    name = listed.record.worker if listed else ""
    fresh = [
        worker
        for node in nodes
        for worker in node.workers
        if worker.engine == key.engine and worker.silent_ms <= budgets.suspect_ms
    ]
    return Surroundings(
        now=now,
        suspect=listed is not None and listed.suspect,
        offering=frozenset(worker.node for worker in fresh),
        nodes=standings(nodes, budgets),
        free=Counter(worker.node for worker in fresh if not worker.job),
        beating=frozenset(node.name for node in nodes if node.silent_ms <= budgets.suspect_ms),
        heard=beats.get(name, 0),
        models={node.name: node.models for node in nodes},
        tombstone=tombstone,
        horizon=catalog.view.horizon(key.origin),
        braked=is_braked(nodes, budgets),
        stale=catalog.view.promises([key.origin]).get(key.origin),
        budgets=budgets,
    )
