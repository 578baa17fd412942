"""The machine of submitted jobs: desired, observed, attempt.

Each event is a compare-and-set on the record. A leader acts on what it read before, so it names the rev it saw; a
holder is fenced by its attempt; the user's wish only climbs. Every applied event counts the job's seq up by one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from broker.rules import event as events
from broker.rules.record import REPORTED, SUBMITTED, Record
from broker.rules.state import CANCELLED, CLIMB, COMPLETED, FAILED, QUEUED, RUN, RUNNING
from broker.rules.verdict import Scene, Verdict, applied, buried, duplicate, refused

#: The death of a holder at which a job counts as poison, decided before tries.
DEATHS_MAX = 3

#: Events that also speak of reported jobs; all others are refused `not_ours` there.
_OF_REPORTED = frozenset({"guess", "prune", "intent"})


def merge_attempt(record: Record | None, event: events.Attempted, scene: Scene) -> Verdict:
    """Decide an event of a submitted job by the first refusal that fits."""
    if isinstance(event, events.Submit):
        return _submit(record, event, scene)
    if record is None:
        generation = getattr(event, "created_at", 0)
        known = scene.buried(generation) if generation else scene.tombstone
        return refused("tombstoned" if known else "unknown", None)
    if record.kind == REPORTED and event.kind not in _OF_REPORTED:
        return refused("not_ours", record)
    if getattr(event, "term", scene.term) < scene.term:
        return refused("stale_term", record)
    return _RULES[event.kind](record, event, scene)


def _submit(record: Record | None, event: events.Submit, scene: Scene) -> Verdict:
    if record is not None:
        if record.kind == SUBMITTED and record.digest == event.digest:
            return duplicate("submitted", record)
        return refused("conflict", record)
    if event.created_at <= max(scene.exact, scene.pair, scene.horizon):
        return refused("tombstoned", None)
    return applied(
        "submitted",
        Record(
            kind=SUBMITTED,
            state=QUEUED,
            seq=1,
            created_at=event.created_at,
            model=event.model,
            requester=event.requester,
            by=event.by,
            attempt=1,
            attempts=event.attempts,
            priority=event.priority,
            timeout=event.timeout,
            at_most_once=int(event.at_most_once),
            due=event.due,
            retry_of=event.retry_of,
            digest=event.digest,
            last_seen=scene.now,
        ),
    )


def _place(record: Record, event: events.Place, scene: Scene) -> Verdict:
    if not (record.ready and record.due <= scene.now and record.rev == event.rev):
        return refused("not_ready", record)
    return _change(record, event, "placed", node=event.node, placed_at=scene.now)


def _start(record: Record, event: events.Start, scene: Scene) -> Verdict:
    if record.ended:
        return refused("terminal", record)
    if (record.created_at, record.attempt) != (event.created_at, event.attempt):
        return refused("stale_attempt", record)
    if record.holder:
        return refused("held", record)
    if record.desired != RUN:
        return refused("cancelled", record)
    if record.state != QUEUED or not record.node or record.node != event.node:
        return refused("not_ready", record)
    return _change(
        record,
        event,
        "started",
        state=RUNNING,
        holder=event.holder,
        worker=event.worker,
        tries=record.tries + 1,
        started_at=scene.now,
        last_seen=scene.now,
    )


def _holder_refusal(record: Record, event: events.Reassert | events.Finish) -> str:
    if record.ended:
        return "terminal"
    if (record.created_at, record.attempt) != (event.created_at, event.attempt):
        return "stale_attempt"
    return "held" if record.holder != event.holder or not record.holder else ""


def _reassert(record: Record, event: events.Reassert, scene: Scene) -> Verdict:
    if rule := _holder_refusal(record, event):
        return refused(rule, record)
    if not record.inferred:
        return refused("not_ready", record)
    return _change(
        record,
        event,
        "guess_cleared",
        state=record.guessed_from,
        error="",
        completed_at=0,
        last_seen=scene.now,
        **_NO_GUESS,
    )


def _finish(record: Record, event: events.Finish, scene: Scene) -> Verdict:
    if rule := _holder_refusal(record, event):
        return refused(rule, record)
    seen = replace(record, last_seen=scene.now, deaths=record.deaths + event.died)
    poison = event.died and seen.deaths >= DEATHS_MAX
    retry = event.state == FAILED and event.retryable and not poison
    if retry and seen.desired == RUN and seen.tries < seen.attempts and not seen.at_most_once:
        return _offer(
            seen, event, "requeued", due=event.due, error=event.error, reason=event.reason
        )
    state = CANCELLED if (retry or poison) and seen.desired != RUN else event.state
    return _end(seen, event, scene, "finished", state, "poison" if poison else event.reason)


def _unplace(record: Record, event: events.Unplace, scene: Scene) -> Verdict:
    del scene
    if record.state != QUEUED or not record.node or record.holder or record.rev != event.rev:
        return refused("not_ready", record)
    return _offer(record, event, "unplaced")


def _guess(record: Record, event: events.Guess, scene: Scene) -> Verdict:
    """A guess that a beat outlived may be made again: its holder may die before it reasserts, and the job must end."""
    outlived = record.kind == SUBMITTED and record.last_seen > record.guessed_at
    if (record.rev, record.last_seen) != (event.rev, event.last_seen):
        return refused("guess_outdated", record)
    if record.inferred and not outlived:
        return refused("guess_outdated", record)
    if record.ended:
        return refused("terminal", record)
    if record.kind == SUBMITTED and record.believed != RUNNING:
        return refused("guess_outdated", record)
    return _change(
        record,
        event,
        "guess_applied",
        state=FAILED,
        error=event.error,
        completed_at=scene.now,
        guessed_from=record.believed,
        guessed_at=scene.now,
    )


def _given_up(record: Record, event: events.Requeue | events.Lost) -> bool:
    return record.inferred and record.rev == event.rev and record.last_seen <= record.guessed_at


def may_run_again(record: Record) -> bool:
    """Whether a job whose holder is given up for dead is offered anew; else it is lost."""
    return (
        record.tries < record.attempts
        and record.desired == RUN
        and not record.at_most_once
        and record.deaths < DEATHS_MAX - 1
    )


def _requeue(record: Record, event: events.Requeue, scene: Scene) -> Verdict:
    del scene
    if rule := _sweep_refusal(record, event, again=True):
        return refused(rule, record)
    return _offer(record, event, "requeued", due=event.due, deaths=record.deaths + 1)


def _lost(record: Record, event: events.Lost, scene: Scene) -> Verdict:
    if rule := _sweep_refusal(record, event, again=False):
        return refused(rule, record)
    reason = "poison" if record.deaths + 1 >= DEATHS_MAX else "lost"
    state = FAILED if record.desired == RUN else CANCELLED
    dead = replace(record, attempt=record.attempt + 1, deaths=record.deaths + 1)
    return _end(dead, event, scene, "lost", state, reason)


def _sweep_refusal(record: Record, event: events.Requeue | events.Lost, *, again: bool) -> str:
    """A sweep judged what it read: where anything moved since, or the other judgement is due, it is outdated."""
    if record.ended and record.rev == event.rev:
        return "terminal"
    if not _given_up(record, event) or may_run_again(record) != again:
        return "guess_outdated"
    return ""


def _intent(record: Record, event: events.Intent, scene: Scene) -> Verdict:
    if record.ended:
        return refused("too_late", record)
    if record.kind == REPORTED and event.force:
        return refused("not_ours", record)
    if CLIMB[event.desired] <= CLIMB[record.desired] and not event.force:
        return duplicate("no_change", record)
    desired = max(event.desired, record.desired, key=CLIMB.__getitem__)
    wished = replace(record, desired=desired)
    if record.kind == SUBMITTED and (record.state == QUEUED or event.force):
        fenced = replace(wished, attempt=record.attempt + 1)
        return _end(fenced, event, scene, "desired", CANCELLED, "forced" if event.force else "")
    return _change(wished, event, "desired")


def _prune(record: Record, event: events.Prune, scene: Scene) -> Verdict:
    silent = record.inferred or scene.now - record.last_seen >= scene.silence_ms_max
    old = record.ended or (record.kind == REPORTED and silent)
    if (record.rev, record.last_seen) != (event.rev, event.last_seen) or not old:
        return refused("guess_outdated", record)
    return buried("pruned", record.created_at)


_NO_GUESS: dict[str, Any] = {"guessed_from": "", "guessed_at": 0}
_NO_HOLD: dict[str, Any] = {"node": "", "placed_at": 0, "holder": "", "worker": "", "started_at": 0}


def _change(record: Record, event: events.Attempted, rule: str, **changes: Any) -> Verdict:
    seq = record.seq + (record.kind == SUBMITTED)
    return applied(rule, replace(record, seq=seq, by=event.by, **changes))


def _offer(record: Record, event: events.Attempted, rule: str, **changes: Any) -> Verdict:
    """The attempt is given up and the job waits for a place again, under the next number."""
    anew = {"state": QUEUED, "attempt": record.attempt + 1, "completed_at": 0}
    return _change(record, event, rule, **(anew | _NO_HOLD | _NO_GUESS | changes))


def _end(
    record: Record, event: events.Attempted, scene: Scene, rule: str, state: str, reason: str
) -> Verdict:
    error = getattr(event, "error", record.error)
    return _change(
        record,
        event,
        rule,
        state=state,
        error="" if state == COMPLETED else error,
        reason="" if state == COMPLETED else reason,
        completed_at=scene.now,
        **_NO_GUESS,
    )


_RULES: dict[str, Callable[[Record, Any, Scene], Verdict]] = {
    "place": _place,
    "start": _start,
    "reassert": _reassert,
    "finish": _finish,
    "unplace": _unplace,
    "guess": _guess,
    "requeue": _requeue,
    "lost": _lost,
    "intent": _intent,
    "prune": _prune,
}
