"""What log entries make of the records that a reader holds: the arithmetic of every watcher, relist and replay.

A reader's records are a plain dict. One rule keeps them true whatever is read twice or late: an entry whose rev is
not above that of the record held changes nothing. Revs are compared as numbers: as text `9-0` would follow `10-0`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from broker.rules.entry import Entry
from broker.rules.key import Key
from broker.rules.record import PROJECTION, SUBMITTED, Record

#: The event of a change that no entry tells, but a new listing.
LISTED = "listed"


class Change(NamedTuple):
    """What a reader is told: one job's state after an entry.

    `record` is None where the job is gone. `synthesized`: found by listing the origin anew, not read from the log;
    whatever happened in between is not told, and of a removal neither who did it nor the last state.
    """

    key: Key
    record: Record | None
    rev: str
    event: str
    rule: str
    by: str
    synthesized: bool = False


def rev_order(rev: str) -> tuple[int, int]:
    """A log id as numbers, to compare; the empty one is below all."""
    ms, _, seq = rev.partition("-")
    return int(ms or 0), int(seq or 0)


def absorb(records: dict[Key, Record], origin: str, entry: Entry) -> list[Change]:
    """Bring `records` of one origin up to an entry of its log, and tell what that changed.

    A removal is told also where the job is not held, for somebody else may hold it; for a pair of which nothing is
    held, engine and run of the key are empty.
    """
    if entry.record is None:
        return _take_away(records, entry, entry.key(origin))
    key = entry.key(origin)
    held = records.get(key)
    if held is not None and rev_order(entry.rev) <= rev_order(held.rev):
        return []
    records[key] = record = carry(held, entry.record, entry.rev)
    return [Change(key, record, entry.rev, entry.event, entry.rule, entry.by)]


def _take_away(records: dict[Key, Record], entry: Entry, named: Key) -> list[Change]:
    if entry.names_pair:
        held = [key for key in records if key.id == named.id and key.origin == named.origin]
    else:
        held = [named] if named in records else []
    taken = [key for key in held if _is_taken(records[key], key, entry)]
    for key in taken:
        del records[key]
    # What is held and newer than the removal stays, and nobody is told to drop it.
    told = taken if held else [named]
    return [Change(key, None, entry.rev, entry.event, entry.rule, entry.by) for key in told]


def _is_taken(record: Record, key: Key, entry: Entry) -> bool:
    waits = entry.names_pair and outlives_pair(record)
    return not waits and entry.takes(key, record) and rev_order(entry.rev) > rev_order(record.rev)


def outlives_pair(record: Record) -> bool:
    """Whether it outlives the removal of its pair until an entry of its own says that it went."""
    return record.kind == SUBMITTED and not record.ended


def carry(held: Record | None, told: Record, rev: str) -> Record:
    """The record as the entry tells it, with what entries do not tell taken over within one generation."""
    if held is None or held.created_at != told.created_at:
        return told if told.rev == rev else replace(told, rev=rev)
    last_seen = max(told.last_seen, held.last_seen)
    kept = (rev, told.submit_rev or held.submit_rev, last_seen, told.sightings or held.sightings)
    if kept == (told.rev, told.submit_rev, told.last_seen, told.sightings):
        return told
    return replace(told, rev=kept[0], submit_rev=kept[1], last_seen=kept[2], sightings=kept[3])


def fold(origin: str, entries: Iterable[Entry], until: str | None = None) -> dict[Key, Record]:
    """The records that a log adds up to, up to and including the rev `until` (None: to its end).

    Equal to the origin's records in all that is logged (not last_seen, sightings) if the log is whole; of a trimmed
    log only the jobs that it still speaks of.
    """
    records: dict[Key, Record] = {}
    for entry in entries:
        if until is not None and rev_order(entry.rev) > rev_order(until):
            break
        absorb(records, origin, entry)
    return records


def differences(held: Mapping[Key, Record], found: Mapping[Key, Record], rev: str) -> list[Change]:
    """What must be told so that a reader of `held` comes to `found`, in the order of the log.

    `rev` is where `found` was read: jobs that vanished come last, at it. What moves without an entry is no difference.
    """
    changed = [
        Change(key, record, record.rev, LISTED, record.rule, record.by, synthesized=True)
        for key, record in found.items()
        if key not in held or not _is_same(held[key], record)
    ]
    changed.sort(key=lambda change: rev_order(change.rev))
    vanished = [
        Change(key, None, rev, LISTED, "removed", "", synthesized=True)
        for key in held
        if key not in found
    ]
    return changed + vanished


def _is_same(held: Record, found: Record) -> bool:
    if held.rev != found.rev:
        return False
    return held == found or all(getattr(held, name) == getattr(found, name) for name in PROJECTION)
