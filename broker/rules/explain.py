"""What would change a job's state: sentences for people, each a reading of the merge table.

Pure like the rest of the rules: what the sentences depend on beside the record is told by `Surroundings`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from broker.rules.attempt import DEATHS_MAX
from broker.rules.key import Key
from broker.rules.liveness import Budgets
from broker.rules.phrases import NAMES_MAX, capital, holders_lost, names, seconds, when
from broker.rules.record import REPORTED, Record
from broker.rules.state import CANCELLED, COMPLETED, QUEUED, REMOVE, RUN
from broker.rules.sweep import NEVER, Around, Standing, due_at, is_watched

#: What every shell takes for one word as it stands.
_PLAIN = re.compile(r"[A-Za-z0-9%+,./:=@_-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What surrounds a job. `now` is Redis's time, epoch milliseconds."""

    now: int
    suspect: bool = False  #: whether it is shown as `running?`
    offering: frozenset[str] = frozenset()  #: nodes with a living worker for its engine
    nodes: Mapping[str, Standing] = field(default_factory=dict)  #: how each stands
    free: Mapping[str, int] | None = None  #: slots of its engine that nothing holds, by node
    beating: frozenset[str] = frozenset()  #: nodes that beat just now
    heard: int = 0  #: the last beat of its worker, whatever that beat spoke of; 0 = none is known
    models: dict[str, frozenset[str]] = field(default_factory=dict)  #: of nodes that tell theirs
    tombstone: int = 0  #: the newest generation that was removed, 0 = none known
    horizon: int = 0  #: of its origin: up to there nothing that is not known is taken, 0 = all is
    braked: bool = False  #: whether most workers fell silent together, so that nobody is judged
    stale: int | None = None  #: how long its origin promised to be silent at most; None: it did not
    budgets: Budgets = field(default_factory=Budgets)

    @property
    def shut(self) -> frozenset[str]:
        """The nodes that are drained or declared dead."""
        return frozenset(name for name, node in self.nodes.items() if node.flag)

    def judged_at(self, key: Key, record: Record) -> int:
        """From when on a sweep judges the job, unless something moves before."""
        stale = {} if self.stale is None else {key.origin: self.stale}
        around = Around(now=self.now, term=0, budgets=self.budgets, nodes=self.nodes, stale=stale)
        return due_at(key, record, around)


def what_next(key: Key, record: Record | None, around: Surroundings) -> list[str]:
    """What would change the state of this job, the most likely first."""
    if record is None:
        return _absent(around)
    said = _of_record(key, record, around)
    if around.braked and is_watched(record) and around.judged_at(key, record) <= around.now:
        brake = seconds(around.budgets.brake_ms)
        said.append(
            f"Most workers fell silent together: until they are heard, or for {brake}, nobody is judged."
        )
    return said


def _of_record(key: Key, record: Record, around: Surroundings) -> list[str]:
    if record.kind == REPORTED:
        return _reported(key, record, around)
    if record.ended:
        return _ended(key, record)
    if record.inferred:
        return _guessed(key, record, around)
    if record.state == QUEUED:
        return _queued(key, record, around)
    return _running(key, record, around)


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
    remove = _command("remove", key)
    anew = f"a report with a newer created_at begins a new generation, {remove} takes it away"
    if record.ended:
        return [f"It ended by the word of {origin}, which is final: {anew}."]
    said = []
    if record.inferred:
        said.append(
            f"{capital(record.state)} is only a guess: any word of {origin} that is not older replaces it."
        )
        said.append("Without one it stays a guess until it is pruned.")
        said.append(f"Nobody has spoken of it since {when(record.last_seen)}.")
        said += _offline(key, record, around)
    else:
        said.append(f"The next report of {origin}: a higher seq, or without numbers a higher rank.")
        said += _silence(key, record, around)
    if record.desired != RUN:
        said.append(f"Somebody asked to {record.desired} it: that is for {origin} to carry out.")
    return said


def _silence(key: Key, record: Record, around: Surroundings) -> list[str]:
    """What the silence about a reported job leads to."""
    at = around.judged_at(key, record)
    if at < NEVER:
        until = _until(at, around)
        said = [f"Unless {key.origin} speaks of it {until}, a sweep guesses that it failed."]
    else:
        said = [
            f"{key.origin} never promised to go on speaking of it: its silence alone leads to no guess."
        ]
    if around.suspect:
        said.insert(0, f"Nobody has spoken of it since {when(record.last_seen)}, hence the doubt.")
    return said + _offline(key, record, around)


def _offline(key: Key, record: Record, around: Surroundings) -> list[str]:
    """Which of the nodes that a reported job depends on count as gone, and by what."""
    said = []
    for name in sorted({record.node, key.origin} & around.nodes.keys()):
        node = around.nodes[name]
        if node.is_offline:
            why = f"silent since {when(node.silent_since)}" if node.silent_since else "called dead"
            though = ", though it beats" if name in around.beating else ""
            said.append(f"Node {name} counts as offline: {why}{though}.")
    return said


def _until(at: int, around: Surroundings) -> str:
    """Up to when a word or beat keeps a sweep from judging: for sentences that begin with `unless`."""
    if at > around.now:
        return f"by {when(at)}"
    if around.braked:
        return "before sweeps judge again"
    return "in the next seconds"


def _queued(key: Key, record: Record, around: Surroundings) -> list[str]:
    if record.node:
        return _placed(key, record, around)
    if record.due > around.now:
        return [
            f"It waits until {when(record.due)} ({seconds(record.due - around.now)}), then for a free slot."
        ]
    return [*_place(key, record, around), f"{_command('cancel', key)} ends it at once."]


def _place(key: Key, record: Record, around: Surroundings) -> list[str]:
    """Why the dispatcher has not placed it: the narrowest reason."""
    if not around.offering:
        return [
            f"No node offers engine {key.engine}: it runs as soon as a worker for it is started."
        ]
    open_nodes = around.offering - around.shut
    if not open_nodes:
        return [
            f"Every node that offers engine {key.engine} is drained or dead ({names(around.offering)}).",
            *_closed(record, around),
        ]
    having = {name for name in open_nodes if _has_model(name, record, around)}
    if record.model and not having:
        return [f"No open node that offers engine {key.engine} has the model {record.model}."]
    if around.free is not None and not any(around.free.get(name) for name in having):
        taken = f"Every slot for engine {key.engine} on open nodes ({names(having)}) is taken"
        said = f"{taken}: it is placed when one is free, by priority, then age."
        return [said, *_closed(record, around)]
    return [
        f"The dispatcher places it on a node with a free slot for engine {key.engine} ({names(having)})."
    ]


def _closed(record: Record, around: Surroundings) -> list[str]:
    """Where slots are free that nobody may take."""
    free = around.free or {}
    closed = sorted(
        name for name in around.shut if free.get(name) and _has_model(name, record, around)
    )
    return [
        f"{name} has a free slot, but is {around.nodes[name].flag}: `broker node resume {name}`."
        for name in closed[:NAMES_MAX]
    ]


def _has_model(name: str, record: Record, around: Surroundings) -> bool:
    """Whether a node may have the job's model: one that tells none may have any."""
    return not around.models.get(name) or record.model in around.models[name]


def _placed(key: Key, record: Record, around: Surroundings) -> list[str]:
    node, due = record.node, around.judged_at(key, record)
    if due > around.now:
        return [
            f"A worker on {node} starts it; if none did by {when(due)}, it is taken back and placed anew."
        ]
    if node in around.shut:
        why = f"Node {node} is drained or dead"
    elif node in around.nodes and (since := around.nodes[node].silent_since):
        why = f"Node {node} has been silent since {when(since)}"
    else:
        why = f"No worker on {node} started it by {when(due)}"
    return [f"{why}: a sweep takes it back, and it is placed anew."]


def _running(key: Key, record: Record, around: Surroundings) -> list[str]:
    stop = seconds(around.budgets.beat_ms + around.budgets.stop_ms)
    said = []
    if record.desired != RUN:
        after = ", then it is removed" if record.desired == REMOVE else ""
        said.append(f"Its worker was asked to stop it, and kills it within about {stop}{after}.")
    else:
        said.append(f"The word of its worker ({record.worker}) on how it ended.")
        if record.timeout:
            said.append(f"It may run until {when(record.started_at + record.timeout)} (timeout).")
        said.append(f"{_command('cancel', key)} asks it to stop.")
    if around.suspect:
        until = _until(around.judged_at(key, record), around)
        then = f"Unless it beats {until}, a sweep guesses that the job failed."
        said[:0] = [_silent(record, around), then]
    return said


def _silent(record: Record, around: Surroundings) -> str:
    """What fell silent. A guess says only `node X went offline`, also where the node itself goes on."""
    who = f"Its worker {record.worker} on {record.node}"
    if around.now - around.heard <= around.budgets.suspect_ms:
        return f"{who} beats, but has not spoken of this job since {when(record.last_seen)}."
    said = f"{who} has been silent since {when(max(record.last_seen, around.heard))}"
    if record.node in around.beating:
        return f"{said}; the node itself beats."
    if record.node in around.nodes and (since := around.nodes[record.node].silent_since):
        return f"{said}; the whole node since {when(since)}."
    return f"{said}."


def _guessed(key: Key, record: Record, around: Surroundings) -> list[str]:
    said = [f"{capital(record.state)} is only a guess: its worker's own word replaces it."]
    until = _until(around.judged_at(key, record), around)
    if record.last_seen > record.guessed_at:
        heard = f"It was heard of at {when(record.last_seen)}, after the guess"
        return [*said, f"{heard}: unless it is again {until}, a sweep guesses anew."]
    said.insert(0, _silent(record, around))
    against = _against_another_try(record)
    ends = CANCELLED if record.desired != RUN else "failed"
    if against:
        said.append(f"Unless it comes {until}, the job is {ends} for good: {against}.")
    else:
        again = f"queued again for try {record.tries + 1} of {record.attempts}"
        said.append(f"Unless it comes {until}, the job is {again}.")
    return said


def _against_another_try(record: Record) -> str:
    if record.desired != RUN:
        return f"somebody asked to {record.desired} it"
    if record.at_most_once:
        return "it may run at most once"
    if record.deaths + 1 >= DEATHS_MAX:
        return f"{holders_lost(record.deaths)} already"
    if record.tries >= record.attempts:
        return f"all {record.attempts} tries are used"
    return ""


def _ended(key: Key, record: Record) -> list[str]:
    if record.state == COMPLETED:
        remove = _command("remove", key)
        return [f"Nothing: the first terminal word is final. {remove} takes it off the list."]
    why = {
        "poison": f"{holders_lost(record.deaths)}, so it is not tried again",
        "lost": f"its worker {record.worker} on {record.node} was lost, last heard of at {when(record.last_seen)}",
    }.get(record.reason, "the first terminal word is final")
    return [f"Nothing: {why}. {_command('retry', key)} hands it in again as a new job."]


def _command(verb: str, key: Key) -> str:
    """The command between backticks, as it is to be pasted into a shell: no quote of either kind is left in the key."""
    said = str(key).replace("`", "%60").replace("'", "%27")
    return f"`broker {verb} {said}`" if _PLAIN.fullmatch(said) else f"`broker {verb} '{said}'`"
