"""What would change a job's state: sentences for people, each a reading of the merge table.

Pure like the rest of the rules: what the sentences depend on beside the record is told by `Surroundings`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from broker.rules.attempt import DEATHS_MAX
from broker.rules.key import Key
from broker.rules.liveness import Budgets
from broker.rules.record import REPORTED, Record
from broker.rules.state import CANCELLED, COMPLETED, QUEUED, REMOVE, RUN


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What surrounds a job. `now` is Redis's time, epoch milliseconds."""

    now: int
    suspect: bool = False  #: whether it is shown as `running?`
    offering: frozenset[str] = frozenset()  #: nodes with a living worker for its engine
    shut: frozenset[str] = frozenset()  #: nodes that are drained or declared dead
    free: int | None = None  #: slots of its engine that nothing holds, where that is known
    models: dict[str, frozenset[str]] = field(default_factory=dict)  #: of nodes that tell theirs
    tombstone: int = 0  #: the newest generation that was removed, 0 = none known
    horizon: int = 0  #: of its origin: up to there nothing that is not known is taken, 0 = all is
    budgets: Budgets = field(default_factory=Budgets)


def what_next(key: Key, record: Record | None, around: Surroundings) -> list[str]:
    """What would change the state of this job, the most likely first."""
    if record is None:
        return _absent(around)
    if record.kind == REPORTED:
        return _reported(key, record, around)
    if record.ended:
        return _ended(key, record)
    if record.inferred:
        return _guessed(record, around)
    if record.state == QUEUED:
        return _queued(key, record, around)
    return _running(record, around)


def _absent(around: Surroundings) -> list[str]:
    if around.tombstone:
        said = "It was removed: only a job of this identity created later is taken, as a new one"
        return [f"{said} ({when(around.tombstone)} counts as removed too)."]
    if around.horizon:
        said = f"Only what was created after {when(around.horizon)} is taken as new here"
        return [f"{said}: what was removed or pruned up to then is no longer known by name."]
    return ["Its first event would make it known."]


def _reported(key: Key, record: Record, around: Surroundings) -> list[str]:
    origin = key.origin
    anew = "a report with a newer created_at begins a new generation, `broker remove` takes it away"
    if record.ended:
        return [f"It ended by the word of {origin}, which is final: {anew}."]
    said = []
    if record.inferred:
        said.append(
            f"{_capital(record.state)} is only a guess: any word of {origin} that is not older replaces it."
        )
        said.append("Without one it stays a guess until it is pruned.")
    else:
        said.append(f"The next report of {origin}: a higher seq, or without numbers a higher rank.")
    if around.suspect:
        said.append(f"Nobody has spoken of it since {when(record.last_seen)}, hence the doubt.")
    if record.desired != RUN:
        said.append(f"Somebody asked to {record.desired} it: that is for {origin} to carry out.")
    return said


def _queued(key: Key, record: Record, around: Surroundings) -> list[str]:
    if record.node:
        return _placed(record, around)
    if record.due > around.now:
        return [
            f"It waits until {when(record.due)} ({_seconds(record.due - around.now)}), then for a free slot."
        ]
    return [*_place(key, record, around), "`broker cancel` ends it at once."]


def _place(key: Key, record: Record, around: Surroundings) -> list[str]:
    """Why the dispatcher has not placed it: the narrowest reason."""
    if not around.offering:
        return [
            f"No node offers engine {key.engine}: it runs as soon as a worker for it is started."
        ]
    open_nodes = around.offering - around.shut
    if not open_nodes:
        return [
            f"Every node that offers engine {key.engine} is drained or dead ({_names(around.offering)})."
        ]
    having = {
        name
        for name in open_nodes
        if not around.models.get(name) or record.model in around.models[name]
    }
    if record.model and not having:
        return [f"No open node that offers engine {key.engine} has the model {record.model}."]
    if around.free is not None and around.free <= 0:
        return [
            f"Every slot for engine {key.engine} is taken: it is placed when one is free, by priority, then age."
        ]
    return [
        f"The dispatcher places it on a node with a free slot for engine {key.engine} ({_names(having)})."
    ]


def _placed(record: Record, around: Surroundings) -> list[str]:
    due = record.placed_at + around.budgets.start_ms
    said = [
        f"A worker on {record.node} starts it; if none did by {when(due)}, it is taken back and placed anew."
    ]
    if record.node in around.shut:
        said.append(f"{record.node} is drained or dead: it is taken back from there.")
    return said


def _running(record: Record, around: Surroundings) -> list[str]:
    stop = _seconds(around.budgets.beat_ms + around.budgets.stop_ms)
    said = []
    if record.desired != RUN:
        after = ", then it is removed" if record.desired == REMOVE else ""
        said.append(f"Its worker was asked to stop it, and kills it within about {stop}{after}.")
    else:
        said.append(f"The word of its worker ({record.worker}) on how it ended.")
        if record.timeout:
            said.append(f"It may run until {when(record.started_at + record.timeout)} (timeout).")
        said.append("`broker cancel` asks it to stop.")
    if around.suspect:
        silence = f"Its worker has been silent since {when(record.last_seen)}"
        said.insert(0, f"{silence}: soon a sweep guesses that it failed.")
    return said


def _guessed(record: Record, around: Surroundings) -> list[str]:
    until = record.guessed_at + around.budgets.grace_ms
    said = [f"{_capital(record.state)} is only a guess: its worker's own word replaces it."]
    against = _against_another_try(record)
    ends = CANCELLED if record.desired != RUN else "failed"
    if against:
        said.append(f"Without one, after {when(until)}, it is {ends} for good: {against}.")
    else:
        again = f"queued again for try {record.tries + 1} of {record.attempts}"
        said.append(f"Without one, after {when(until)}, it is {again}.")
    return said


def _against_another_try(record: Record) -> str:
    if record.desired != RUN:
        return f"somebody asked to {record.desired} it"
    if record.at_most_once:
        return "it may run at most once"
    if record.deaths + 1 >= DEATHS_MAX:
        return f"{record.deaths} holders died under it already"
    if record.tries >= record.attempts:
        return f"all {record.attempts} tries are used"
    return ""


def _ended(key: Key, record: Record) -> list[str]:
    if record.state == COMPLETED:
        return ["Nothing: the first terminal word is final. `broker remove` takes it off the list."]
    why = {
        "poison": f"{record.deaths} holders died under it, so it is not tried again",
        "lost": "its worker was lost",
    }.get(record.reason, "the first terminal word is final")
    return [f"Nothing: {why}. `broker retry {key}` hands it in again as a new job."]


def when(ms: int) -> str:
    """An instant for people, UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _seconds(ms: int) -> str:
    return f"{max(ms, 0) / 1000:.0f} s"


def _names(names: frozenset[str] | set[str]) -> str:
    some = sorted(names)
    return ", ".join(some[:5]) + (", ..." if len(some) > 5 else "")


def _capital(word: str) -> str:
    return word[:1].upper() + word[1:]
