"""Which running jobs are in doubt, `running?`: derived from beats and sightings, for whoever follows the list.

Beats and sightings are no entries of a log, so a list that is followed does not hold them. Beats are few, and read
each time. A reported job's sightings stand in its record alone: that is read anew only where the list's own word is
too old, and not again before the answer can have changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from broker.rules.key import Key
from broker.rules.liveness import suspect
from broker.rules.record import REPORTED, Record
from broker.rules.state import RUNNING
from broker.store.nodes import WorkerSeen
from broker.store.sightings import read_sightings

if TYPE_CHECKING:
    from broker.jobs.catalog import Catalog

#: A reported job that is in doubt is looked at again after so long, in milliseconds.
AGAIN_MS = 5_000


class Doubts:
    """Keep one for a list that is asked about again and again."""

    def __init__(self, broker: Catalog) -> None:
        self._broker = broker
        #: Of reported jobs whose own word in the list is old: when they were seen, and when that was read.
        self._seen: dict[Key, tuple[int, int]] = {}

    def among(
        self,
        records: Mapping[Key, Record],
        now: int | None = None,
        workers: Sequence[WorkerSeen] | None = None,
    ) -> list[Key]:
        """Those of the records that are shown `running?`, by key. Raises Unavailable, Damaged.

        `now` is Redis's time, epoch ms; `workers` those of the fleet, where they are known already.
        """
        now = self._broker.store.clock.now() if now is None else now
        if workers is None:
            workers = self._broker.fleet.workers(now)
        beats = {worker.name: worker.beaten_at for worker in workers}
        budgets = self._broker.config.budgets
        found = [
            (key, record)
            for key, record in records.items()
            if record.state == RUNNING
            and suspect(record, beats.get(record.worker, 0), now, budgets)
        ]
        stale = [key for key, record in found if record.kind == REPORTED]
        seen = self._look(stale, now)
        heard = {key for key in stale if now - seen[key][0] <= budgets.stale_ms}
        return sorted(key for key, _ in found if key not in heard)

    def _look(self, stale: list[Key], now: int) -> dict[Key, tuple[int, int]]:
        stale_ms = self._broker.config.budgets.stale_ms
        before = self._seen
        known = {key: before[key] for key in stale if key in before}
        asked = [
            key
            for key in stale
            if key not in known
            or (now - known[key][0] > stale_ms and now - known[key][1] >= AGAIN_MS)
        ]
        for key, seen in zip(asked, read_sightings(self._broker.store, asked), strict=True):
            known[key] = seen, now
        self._seen = known
        return known
