"""Where a record is listed: the sorted sets of an origin, as a function of the record alone."""

from __future__ import annotations

from broker.rules.record import Record

#: One step of priority outweighs every difference in time; exact in a double for -100..100.
PRIORITY_STEP = 2**42
PRIORITY_MAX = 100


def live_score(record: Record) -> int | None:
    """Its score in `live`: created ms, while it has not ended."""
    return None if record.ended else record.created_at


def done_score(record: Record, now: int) -> int | None:
    """Its score in `done`: completed ms once it has ended, the time of ingest where it did not tell."""
    return (record.completed_at or now) if record.ended else None


def ready_score(record: Record, now: int) -> int | None:
    """Its score in `ready`: oldest first within a priority, a higher priority before all lower ones."""
    if not record.ready or record.due > now:
        return None
    return max(record.created_at, record.due) - record.priority * PRIORITY_STEP


def delayed_score(record: Record, now: int) -> int | None:
    """Its score in `delayed`: due ms, while that lies ahead."""
    return record.due if record.ready and record.due > now else None
