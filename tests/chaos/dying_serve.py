"""`broker serve` that can be told to die beside a hand-off: `python -m tests.chaos.dying_serve` stands for `broker`."""

from __future__ import annotations

import sys

from broker.cli import main
from broker.roles.handoff import Handoff
from tests.chaos.dying import pass_by

#: Between the place and the hand-off; and after the hand-off, before anything else.
POINTS = ("placed", "handed")


def _enqueue(self, key, record, done=Handoff.enqueue):
    pass_by("placed", str(key), record.attempt)
    found = done(self, key, record)
    pass_by("handed", str(key), record.attempt)
    return found


if __name__ == "__main__":
    Handoff.enqueue = _enqueue
    sys.exit(main())
