"""The merge of reports: the origin's sequence number beats the rank of states."""

from __future__ import annotations

from dataclasses import replace

from broker.rules.event import AHEAD_MS_MAX, NUMBER_MAX, Report
from broker.rules.record import REPORTED, SUBMITTED, Record
from broker.rules.state import RANK, STATES
from broker.rules.verdict import Scene, Verdict, applied, duplicate, refused


def merge_report(record: Record | None, report: Report, scene: Scene) -> Verdict:
    """Decide a report by the first row that fits."""
    if not _valid(report, scene.now):
        return refused("invalid", record)
    if scene.buried(report.created_at) or (record is None and report.created_at <= scene.horizon):
        return refused("tombstoned", record)
    if record is None:
        return applied("first_sighting", _anew(report, scene))
    if record.kind == SUBMITTED:
        return refused("owned_here", record)
    if report.created_at > record.created_at:
        return applied("newer_generation", _anew(report, scene))
    if report.created_at < record.created_at:
        return refused("older_generation", record)
    return _same_generation(replace(record, last_seen=scene.now), report, scene)


def _valid(report: Report, now: int) -> bool:
    numbers = (
        report.created_at,
        report.seq,
        report.started_at,
        report.completed_at,
        report.stale_after,
    )
    return (
        report.state in STATES
        and all(0 <= number <= NUMBER_MAX for number in numbers)
        and 0 < report.created_at <= now + AHEAD_MS_MAX
    )


def _same_generation(record: Record, report: Report, scene: Scene) -> Verdict:
    """Rows 7-13. From here on the event counts as a sighting, whatever the answer."""
    both_numbered = record.seq > 0 and report.seq > 0
    if record.inferred:
        if _older_than_guess(record, report, scene):
            return refused("older_than_guess", record)
        return applied("guess_cleared", _told(record, report))
    if (report.state, report.node) == (record.state, record.node) and (
        report.seq in (0, record.seq) or record.seq == 0
    ):
        return duplicate("no_change", _again(record))
    if report.seq == 0 and scene.seen and not report.resync:
        return duplicate("seen", _again(record))
    if both_numbered:
        if record.ended:
            return refused("terminal", record)
        if report.seq <= record.seq:
            return refused("stale_seq", record)
        return applied("higher_seq", _told(record, report))
    if RANK[report.state] > RANK[record.state]:
        return applied("higher_rank", _told(record, report))
    if RANK[report.state] < RANK[record.state]:
        return refused("lower_rank", record)
    if record.ended:
        return refused("terminal", record)
    return applied("repoint", _told(record, report))


def _again(record: Record) -> Record:
    return replace(record, sightings=record.sightings + 1)


def _older_than_guess(record: Record, report: Report, scene: Scene) -> bool:
    if record.seq > 0 and report.seq > 0:
        return report.seq < record.seq
    if RANK[report.state] < RANK[record.guessed_from]:
        return True
    repeated = report.seq == 0 and scene.seen and not report.resync
    return repeated and (report.state, report.node) != (record.guessed_from, record.node)


def _anew(report: Report, scene: Scene) -> Record:
    """A generation's first record: nothing of an older one survives, the user's wish included."""
    created_at, now = report.created_at, scene.now
    blank = Record(kind=REPORTED, state=report.state, created_at=created_at, last_seen=now)
    return _told(blank, report)


def _told(record: Record, report: Report) -> Record:
    """The record as the report tells it; `seq` stays the generation's high-water mark."""
    return replace(
        record,
        state=report.state,
        node=report.node,
        seq=max(record.seq, report.seq),
        started_at=report.started_at,
        completed_at=report.completed_at,
        error=report.error,
        model=report.model,
        requester=report.requester,
        by=report.by,
        guessed_from="",
        guessed_at=0,
    )
