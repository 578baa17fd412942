"""The states of a job and of a wish, and their order. The only place that orders them."""

from __future__ import annotations

QUEUED, RUNNING = "queued", "running"
COMPLETED, FAILED, CANCELLED = "completed", "failed", "cancelled"

#: What a state outranks where an event carries no number.
RANK = {QUEUED: 1, RUNNING: 2, COMPLETED: 3, FAILED: 3, CANCELLED: 3}
STATES = tuple(RANK)
TERMINAL = frozenset({COMPLETED, FAILED, CANCELLED})

RUN, CANCEL, REMOVE = "run", "cancel", "remove"

#: What the user wants only climbs: run < cancel < remove.
CLIMB = {RUN: 0, CANCEL: 1, REMOVE: 2}
