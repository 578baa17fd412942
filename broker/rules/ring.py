"""What a reader has not taken yet: the newest change of each job, in order, and never more than so many.

Readers follow state, so of two changes of one job only the newer one counts. Where even that is too much, nothing is
kept: a reader that holds a part cannot know what it lacks, so it is told once that it must list again.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.rules.key import Key
from broker.rules.replay import Change

#: How many jobs may have changed before their reader must list again.
SIZE = 1_024


class Ring:
    """One reader's changes. It begins lost: whoever has not listed yet cannot follow."""

    def __init__(self, size: int = SIZE) -> None:
        self._size = size
        self._changes: dict[Key, Change] = {}
        #: Whether something was dropped since `begin`; then nothing is kept.
        self.is_lost = True

    def __len__(self) -> int:
        return len(self._changes)

    @property
    def is_filling(self) -> bool:
        """Whether the reader falls behind: half of the room is used up."""
        return 2 * len(self._changes) >= self._size

    def begin(self) -> None:
        """The reader knows all that there is now: keep what changes from here on."""
        self._changes.clear()
        self.is_lost = False

    def missed(
        self, asked: Mapping[Key, Change], newest: Mapping[Key, Change]
    ) -> Mapping[Key, Change]:
        """What its reader must be told of these: what it asked for, and what replaces what it has not taken yet.

        `newest` is the last change of every job. Nobody is told an outdated state because the newer one, by itself,
        is none of his business.
        """
        if asked is newest or not (self._changes.keys() & newest.keys()) - asked.keys():
            return asked
        return {
            key: change for key, change in newest.items() if key in asked or key in self._changes
        }

    def put(self, changes: Mapping[Key, Change]) -> bool:
        """Keep each in place of an older one of the same job; False where that had to be dropped, with all the rest."""
        if not self.is_lost:
            for key in self._changes.keys() & changes.keys():
                del self._changes[key]  # what happened last stands last
            self._changes.update(changes)
            if len(self._changes) > self._size:
                self._changes = {}
                self.is_lost = True
        return not self.is_lost

    def take(self) -> list[Change]:
        """All that is kept, in the order in which it happened; the reader has it from now on."""
        taken = list(self._changes.values())
        self._changes.clear()
        return taken
