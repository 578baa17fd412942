"""Why a job is in its state: the deciding event, the refused ones, and what would change it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from broker.errors import NotFound
from broker.outcome import Listed
from broker.rules.explain import Surroundings, what_next, when
from broker.rules.key import Key
from broker.store.refusal import Refusal
from broker.store.standing import is_braked, standings

if TYPE_CHECKING:
    from broker.catalog import Catalog


@dataclass(frozen=True, slots=True)
class Why:
    """The explanation. `listed` is None where no record stands; `tombstone` is the generation of its removal, or 0."""

    key: Key
    listed: Listed | None
    tombstone: int
    refusals: list[Refusal]
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
    around = _surroundings(catalog, key, tombstone, suspect=listed is not None and listed.suspect)
    return Why(key, listed, tombstone, refusals, what_next(key, record, around))


def _surroundings(catalog: Catalog, key: Key, tombstone: int, *, suspect: bool) -> Surroundings:
    now = catalog.store.clock.now()
    nodes = catalog.fleet.nodes(now)
    budgets = catalog.config.budgets
    shut = {node.name for node in nodes if node.flag}
    fresh = [
        worker
        for node in nodes
        for worker in node.workers
        if worker.engine == key.engine and worker.silent_ms <= budgets.suspect_ms
    ]
    return Surroundings(
        now=now,
        suspect=suspect,
        offering=frozenset(worker.node for worker in fresh),
        nodes=standings(nodes, budgets),
        free=sum(not worker.job and worker.node not in shut for worker in fresh),
        models={node.name: node.models for node in nodes},
        tombstone=tombstone,
        horizon=catalog.view.horizon(key.origin),
        braked=is_braked(nodes, budgets),
        stale=catalog.view.promises([key.origin]).get(key.origin),
        budgets=budgets,
    )
