"""The merge: what an event makes of a record. `store/lua/merge.lua` is its twin.

Total: every pair of record and event has an answer, and a refused event is handled, never an error. The table is
told in docs/merge.md; reports, removals and the machine of submitted jobs have a module each.
"""

from __future__ import annotations

from broker.rules.attempt import merge_attempt
from broker.rules.event import KeyedEvent, Remove, Report
from broker.rules.record import SUBMITTED, Record
from broker.rules.removal import merge_remove
from broker.rules.report import merge_report
from broker.rules.state import REMOVE
from broker.rules.verdict import Scene, Step, Verdict


def merge(record: Record | None, event: KeyedEvent, scene: Scene) -> Verdict:
    """Decide one event. Pure: the same three values give the same verdict.

    A removal that waited for its job's end is carried out by whichever event writes the terminal word.
    """
    verdict = _decide(record, event, scene)
    after = verdict.record
    if verdict.steps and after and after.kind == SUBMITTED and _is_to_go(after):
        steps = (*verdict.named().steps, Step("removed", None))
        return verdict._replace(record=None, steps=steps, generation=after.created_at)
    return verdict.named()


def _is_to_go(record: Record) -> bool:
    return record.ended and record.desired == REMOVE


def _decide(record: Record | None, event: KeyedEvent, scene: Scene) -> Verdict:
    if isinstance(event, Report):
        return merge_report(record, event, scene)
    if isinstance(event, Remove):
        return merge_remove(record, event, scene)
    return merge_attempt(record, event, scene)
