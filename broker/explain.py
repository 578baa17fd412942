"""Why a job is in its state: the deciding event, the refused ones, and what would change it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from broker.errors import NotFound
from broker.outcome import Listed
from broker.rules.explain import Surroundings, what_next
from broker.rules.key import Key
from broker.store.view import Refusal

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
        raise NotFound(f"no job {key} is known, nor that one was removed")
    if record is None:
        return Why(key, None, tombstone, refusals, [])
    [listed] = catalog.list_records([(key, record)])
    around = _surroundings(catalog, key)
    return Why(key, listed, tombstone, refusals, what_next(record, around, suspect=listed.suspect))


def _surroundings(catalog: Catalog, key: Key) -> Surroundings:
    now = catalog.store.clock.now()
    workers = [seen for seen in catalog.fleet.workers(now) if seen.engine == key.engine]
    fresh = [seen for seen in workers if now - seen.beaten_at <= catalog.config.budgets.suspect_ms]
    return Surroundings(
        now=now,
        offering=tuple(sorted({seen.node for seen in fresh})),
        flags=catalog.fleet.flags(),
        budgets=catalog.config.budgets,
    )
