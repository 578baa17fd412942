"""Removals: a tombstone is left also where no record is, so that a late event makes no ghost."""

from __future__ import annotations

from dataclasses import replace

from broker.rules.event import AHEAD_MS_MAX, NUMBER_MAX, Remove, RemovePair
from broker.rules.record import SUBMITTED, Record
from broker.rules.state import CANCELLED, QUEUED, REMOVE
from broker.rules.verdict import Scene, Step, Verdict, applied, buried, duplicate, refused


def valid_removal(event: Remove | RemovePair, now: int) -> bool:
    """Row 1 for removals: removed_at is checked like created_at, but may be left out."""
    return 0 <= event.removed_at <= min(NUMBER_MAX, now + AHEAD_MS_MAX)


def merge_remove(record: Record | None, event: Remove, scene: Scene) -> Verdict:
    """Decide the removal of one identity."""
    if not valid_removal(event, scene.now):
        return refused("invalid", record)
    if event.rev and (record is None or record.rev != event.rev):
        return refused("guess_outdated", record)
    if record is None:
        if scene.exact and scene.exact >= event.removed_at:
            return duplicate("seen", None)
        return buried("removed", event.removed_at or scene.now)
    if event.removed_at and record.created_at > event.removed_at:
        return refused("older_generation", record)
    return remove_record(record, event, scene, event.removed_at or record.created_at)


def remove_record(
    record: Record, event: Remove | RemovePair, scene: Scene, generation: int
) -> Verdict:
    """Take away a record of this or an older generation, or ask its holder to end it first."""
    if record.kind != SUBMITTED or record.ended or event.force:
        return buried("removed", generation)
    if record.desired == REMOVE:
        return duplicate("no_change", record)
    wished = replace(record, desired=REMOVE, seq=record.seq + 1, by=event.by)
    if record.state == QUEUED:
        ended = replace(
            wished,
            rule="desired",
            state=CANCELLED,
            attempt=record.attempt + 1,
            completed_at=scene.now,
        )
        return buried("removed", generation, (Step("desired", ended),))
    return applied("remove_requested", wished)
