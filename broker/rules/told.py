"""What a log says last of each job: its entries folded, so that the list can be held against them.

Unlike the fold of `rules.replay` it also keeps what is gone: a job that the log took away is told apart from one that
it never spoke of, or that it speaks of no more.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.rules.entry import Entry
from broker.rules.record import Record
from broker.rules.replay import carry, outlives_pair, rev_order


@dataclass(frozen=True, slots=True)
class Word:
    """The log's newest word on a job: the entry's rev, and the record that it bears; None where it says gone."""

    rev: str
    record: Record | None


class Told:
    """The newest word on each job, fed entry by entry in the log's order. Jobs are named by text: `engine/run/id`."""

    def __init__(self) -> None:
        #: The rev of the oldest entry that was fed, empty before.
        self.begin = ""
        self._words: dict[str, Word] = {}
        #: Pair -> its removals as (rev, generation), without those that a later one takes in.
        self._pairs: dict[str, list[tuple[str, int]]] = {}

    def take(self, entry: Entry) -> None:
        """The next entry of the log."""
        self.begin = self.begin or entry.rev
        if entry.names_pair:
            removals = self._pairs.setdefault(entry.job, [])
            while removals and removals[-1][1] <= entry.generation:
                removals.pop()
            removals.append((entry.rev, entry.generation))
        else:
            self._words[entry.job] = self._word(entry)

    def _word(self, entry: Entry) -> Word:
        if entry.record is None:
            return Word(entry.rev, None)
        before = self._words.get(entry.job)
        held = before.record if before else None
        return Word(entry.rev, carry(held, entry.record, entry.rev))

    def of(self, job: str, held: Record | None) -> Word | None:
        """The newest word on a job; None where there is none.

        `held` is its record, which a removal of its pair is read against where the log has no own word on the job.
        """
        own = self._words.get(job)
        record = own.record if own else held
        for rev, generation in self._pairs.get(_pair(job), ()):
            is_later = own is None or rev_order(rev) > rev_order(own.rev)
            is_taken = record and record.created_at <= generation and not outlives_pair(record)
            if is_later and is_taken:
                return Word(rev, None)
        return own

    def last(self, job: str) -> str:
        """The rev of the newest entry that speaks of the job or of its pair; empty where none does."""
        own, removals = self._words.get(job), self._pairs.get(_pair(job))
        revs = [own.rev if own else "", removals[-1][0] if removals else ""]
        return max(revs, key=rev_order)

    def bearing(self) -> list[str]:
        """The jobs whose own newest word bears a record."""
        return [job for job, word in self._words.items() if word.record is not None]


def _pair(job: str) -> str:
    return job.rpartition("/")[2]
