"""Whether the log of one origin was silent about a job since it was read: read on once for many jobs.

Who acts on what it read looks once more in the step that acts. That look costs Redis a little for each entry since: so
it has to begin where the log was last read, not where it was read when the first of thousands was found.
"""

from __future__ import annotations

from broker.store.log import CHUNK_MAX, Log, Place
from broker.store.store import Store


class Meanwhile:
    """What the log of `origin` told after `rev`."""

    def __init__(self, store: Store, origin: str, rev: str) -> None:
        self.origin, self.begin = origin, rev
        self._log = Log(store, origin)
        self._place = Place(self._log.position().epoch, rev)
        self._spoken: set[str] = set()

    def silent_until(self, job: str) -> str | None:
        """The rev up to which it is silent about the job and its pair; None where it spoke.

        Raises Gone where the log no longer holds what followed `rev`, Unavailable, Damaged.
        """
        while self._read_on():
            pass
        is_spoken = job in self._spoken or job.rpartition("/")[2] in self._spoken
        return None if is_spoken else self._place.rev

    def _read_on(self) -> bool:
        chunk = self._log.read_on(self._place, CHUNK_MAX)
        self._spoken.update(entry.job for entry in chunk.entries)
        self._place = chunk.place
        return chunk.is_full
