"""Death within a step: a process that comes to a point at which somebody is to die kills itself there; or it freezes.

Whoever is killed from outside dies at random moments, and hardly ever in a gap of a millisecond between two writes.
So the row gives an order, which names a point and what is to happen; the first process that comes there takes the
order and obeys it, by SIGKILL or SIGSTOP. `dying_worker.py` and `dying_serve.py` say where the points are.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from tests.chaos.effects import note

#: Who dies at a point: the process that came there, its parent, or both; or it stands still there.
SELF, PARENT, BOTH, FROZEN = "self", "parent", "both", "frozen"

#: The points in a worker, in the order in which a job comes by. The horse is there between `forked` and `closing`.
OF_WORKER = ("taken", "started", "forked", "closing", "forgetting")
#: Those in the horse.
OF_HORSE = ("ridden", "finishing", "finished")


class Orders:
    """The orders to die, one file each: taken by a rename, so that one process alone obeys it."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.folder.mkdir(exist_ok=True)

    def give(self, point, who=SELF):
        """Have this happen to the first who comes by the point."""
        draft = self.folder / f".{point}"
        draft.write_text(who)
        draft.rename(self.folder / point)

    def is_open(self, point):
        """Whether nobody has come by yet."""
        return (self.folder / point).exists()


def pass_by(point, key="", attempt=0):
    """Called by a process that is at this point of its work on an attempt: mostly nothing happens."""
    order = Path(os.environ["CHAOS_ORDERS"]) / point
    taken = order.with_name(f".{point}-{os.getpid()}")
    try:
        order.rename(taken)
    except FileNotFoundError:
        return
    who = taken.read_text()
    if who == FROZEN:
        note(f"froze-{point}", key or "-", attempt)
        os.kill(os.getpid(), signal.SIGSTOP)
        return
    note(f"died-{point}", key or "-", attempt)
    if who != SELF:
        os.kill(os.getppid(), signal.SIGKILL)
    if who != PARENT:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.05)  # whoever is to outlive its parent, if the kernel lets it
