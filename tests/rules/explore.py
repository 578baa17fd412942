"""The world around one submitted job, as small as it can be and still go wrong: for exhaustive exploration.

A dispatcher places, and its hand-off may be delivered twice, late, or never. An execution is a holder that acts on
the attempt it was handed, whatever has become of the job meanwhile; it may die or freeze (that is: not act) anywhere.
Beats lapse at any time: the sweeper may guess whenever the rules let it. Leaders act on what they read just now, or on
something older. The user may wish anything at any time.

States are kept finite by naming only what the rules can tell apart: attempts by their order, revs by `the newest` or
`an older one`, time by `before` and `after the guess`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from broker.rules import event as events
from broker.rules.key import Key
from broker.rules.merge import merge
from broker.rules.record import Record
from broker.rules.state import CLIMB
from broker.rules.verdict import APPLIED, Scene, Verdict

KEY = Key("desk", "ollama", "", "7")
CREATED, NOW, LATER = 1, 2, 3
NEWEST, OLDER = "2-0", "1-0"
ENDS = (("completed", False), ("failed", True), ("failed", False), ("cancelled", False))

Decide = Callable[[Record | None, events.KeyedEvent, Scene], Verdict]


class Violated(AssertionError):
    """An invariant does not hold; the message tells the story that leads there."""


class Handoff(NamedTuple):
    attempt: int
    node: str
    deliveries: int


class Execution(NamedTuple):
    holder: str
    attempt: int
    node: str
    phase: str  # new: about to start; runs; dead: its parent may still tell


@dataclass(frozen=True, eq=False, slots=True)
class Known:
    """A record that stands for all equal ones, so that worlds compare and hash by identity."""

    record: Record


class World(NamedTuple):
    known: Known | None
    handoffs: tuple[Handoff, ...] = ()
    executions: tuple[Execution, ...] = ()
    started: bool = False  #: whether the record's attempt was ever started

    @property
    def record(self) -> Record | None:
        return self.known and self.known.record


@dataclass(frozen=True)
class Size:
    """How much there is to explore."""

    attempts: int = 2
    executions: int = 2
    handoffs: int = 2
    nodes: tuple[str, ...] = ("node-a",)
    at_most_once: bool = False


class Edge(NamedTuple):
    what: str
    by_user: bool
    after: World


class Explorer:
    """Breadth first, so that the story of a violation is a shortest one."""

    def __init__(self, size: Size, decide: Decide = merge):
        self.size = size
        self.decide = decide
        self.edges_count = 0
        self.parents: dict[World, tuple[World, str] | None] = {}
        self._known: dict[Record, Known] = {}
        self._verdicts: dict[tuple, Verdict] = {}

    def explore(self) -> int:
        """Visit every state; gives how many there are. Raises Violated."""
        submit = events.Submit(
            key=KEY, created_at=CREATED, digest="d", attempts=self.size.attempts,
            at_most_once=self.size.at_most_once,
        )  # fmt: skip
        first = World(self._know(_tidy(self.decide(None, submit, Scene(now=NOW)).record)))
        self.parents[first] = None
        leads_to: dict[World, list[World]] = {}
        ends = []
        waiting = deque([first])
        while waiting:
            world = waiting.popleft()
            if world.record is None or world.record.ended:
                ends.append(world)
            for what, by_user, after in self.edges(world):
                self.edges_count += 1
                if after == world:
                    continue
                if not by_user:
                    leads_to.setdefault(after, []).append(world)
                if after not in self.parents:
                    self.parents[after] = (world, what)
                    waiting.append(after)
        self._check_that_an_end_is_near(leads_to, ends)
        return len(self.parents)

    def _know(self, record: Record | None) -> Known | None:
        return record and self._known.setdefault(record, Known(record))

    def _check_that_an_end_is_near(self, leads_to, ends):
        reach, waiting = set(ends), deque(ends)
        while waiting:
            for before in leads_to.get(waiting.popleft(), ()):
                if before not in reach:
                    reach.add(before)
                    waiting.append(before)
        for world in self.parents:
            if world not in reach:
                raise self.violated("no end without a further word of the user", world)

    def violated(self, what: str, world: World, last: str = "") -> Violated:
        story, at = [last] if last else [], world
        while step := self.parents[at]:
            at, did = step
            story.append(did)
        return Violated(f"{what}: {', '.join(reversed(story))}; {world.record}")

    # --- what may happen -----------------------------------------------------------------------

    def edges(self, world: World) -> Iterator[Edge]:
        yield from self._leaders(world)
        yield from self._deliveries(world)
        for execution in world.executions:
            yield from self._executions(world, execution)
        yield from self._user(world)

    def _leaders(self, world):
        seen = world.record.last_seen if world.record else NOW
        for rev in (NEWEST, OLDER):
            told = {"rev": rev, "term": 1}
            for node in self.size.nodes:
                yield self._tell(world, f"place {rev} {node}", events.Place, **told, node=node)
            yield self._tell(world, f"unplace {rev}", events.Unplace, **told)
            yield self._tell(world, f"guess {rev}", events.Guess, **told, last_seen=seen)
            yield self._tell(world, f"requeue {rev}", events.Requeue, **told)
            yield self._tell(world, f"lost {rev}", events.Lost, **told)
        if world.record and world.record.ended:
            yield self._tell(world, "prune", events.Prune, rev=NEWEST, last_seen=seen, term=1)

    def _deliveries(self, world):
        if len(world.executions) >= self.size.executions:
            return
        taken = {one.holder for one in world.executions} | {world.record and world.record.holder}
        holder = next(name for name in ("h1", "h2", "h3", "h4", "h5") if name not in taken)
        for handoff in world.handoffs:
            left = handoff._replace(deliveries=handoff.deliveries - 1)
            rest = tuple(one for one in world.handoffs if one != handoff)
            execution = Execution(holder, handoff.attempt, handoff.node, "new")
            after = world._replace(
                handoffs=(*rest, left) if left.deliveries else rest,
                executions=(*world.executions, execution),
            )
            yield Edge(f"deliver {handoff.attempt}", False, self._canonical(after))

    def _executions(self, world, execution):
        holder, attempt, node, phase = execution
        told = {"created_at": CREATED, "attempt": attempt, "holder": holder}
        yield Edge(f"{holder} vanishes", False, self._canonical(_turned(world, execution)))
        if phase == "new":
            start = told | {"node": node, "worker": "w"}
            yield self._tell(world, f"{holder} starts {attempt}", events.Start, execution, **start)
            return
        if phase == "runs":
            dead = _turned(world, execution, "dead")
            yield Edge(f"{holder} dies", False, self._canonical(dead))
            yield self._tell(world, f"{holder} reasserts", events.Reassert, **told)
            yield Edge(f"{holder} beats", False, self._beat(world, execution))
            for state, retryable in ENDS:
                end = told | {"state": state, "retryable": retryable}
                what = f"{holder} finishes {state}"
                yield self._tell(world, what, events.Finish, execution, **end)
        death = told | {"state": "failed", "retryable": True, "died": True}
        what = f"{holder}'s parent tells its death"
        yield self._tell(world, what, events.Finish, execution, **death)

    def _user(self, world):
        for force in (False, True):
            for event in (events.Intent, events.Remove):
                what = f"user says {event.kind}{' by force' * force}"
                yield self._tell(world, what, event, force=force)._replace(by_user=True)

    def _beat(self, world, execution):
        record = world.record
        holds = record and not record.ended and record.holder == execution.holder
        if not holds or record.attempt != execution.attempt:
            return world
        seen = replace(record, last_seen=LATER if record.inferred else NOW)
        return world._replace(known=self._know(seen))

    # --- what the rules make of it --------------------------------------------------------------

    def _tell(self, world, what, kind, execution=None, **told) -> Edge:
        """One event, and what becomes of the execution that says it: it runs on if it was started, else it leaves."""
        verdict = self._verdict(world.known, kind, told)
        is_applied = verdict.outcome == APPLIED
        after = world
        if execution:
            phase = "runs" if kind is events.Start and is_applied else ""
            after = _turned(world, execution, phase)
        if is_applied:
            self._check(world, kind(key=KEY, **told), verdict, what)
            record = verdict.record
            is_new_attempt = record and record.attempt != world.record.attempt
            started = kind is events.Start or (world.started and not is_new_attempt)
            after = after._replace(known=self._know(record), started=started)
        if kind is events.Place and is_applied:
            handoff = Handoff(verdict.record.attempt, told["node"], 2)
            after = after._replace(handoffs=(*world.handoffs, handoff)[-self.size.handoffs :])
        return Edge(what, False, world if after is world else self._canonical(after))

    def _verdict(self, known, kind, told) -> Verdict:
        """The rules are pure: what was asked before is not asked again."""
        asked = (known, kind, *told.values())
        if asked not in self._verdicts:
            event = kind(key=KEY, **told)
            scene = Scene(now=NOW, exact=0 if known else CREATED)
            verdict = self.decide(known and known.record, event, scene)
            record = _tidy(verdict.record)
            if record and kind is events.Guess and verdict.outcome == APPLIED:
                record = replace(record, last_seen=NOW)  # whatever was seen was before this guess
            self._verdicts[asked] = verdict._replace(record=record)
        return self._verdicts[asked]

    def _check(self, world, event, verdict, what):
        before, steps = world.record, [step.record for step in verdict.steps]
        if before is None:
            raise self.violated("a job that is gone came back", world, what)
        if before.ended and steps != [None]:
            raise self.violated("a terminal state is not absorbing", world, what)
        for record in steps:
            if record and CLIMB[record.desired] < CLIMB[before.desired]:
                raise self.violated("what the user wants fell", world, what)
            if record and record.tries > record.attempts:
                raise self.violated("more tries than allowed", world, what)
        if event.kind in {"start", "finish", "reassert"} and event.attempt != before.attempt:
            raise self.violated("a word of an attempt given up counted", world, what)
        if event.kind != "start":
            return
        if world.started:
            raise self.violated("an attempt was started twice", world, what)
        if before.holder:
            raise self.violated("a start beside a holder", world, what)
        if before.at_most_once and before.tries:
            raise self.violated("at most once was twice", world, what)

    def _canonical(self, world: World) -> World:
        """Attempts by their order, sets in order: so that what is the same is equal."""
        record = world.record
        attempts = {one.attempt for one in (*world.handoffs, *world.executions)}
        if record:
            attempts.add(record.attempt)
        rank = {attempt: place for place, attempt in enumerate(sorted(attempts), 1)}
        if all(attempt == place for attempt, place in rank.items()):
            handoffs, executions = world.handoffs, world.executions
        else:
            handoffs = tuple(one._replace(attempt=rank[one.attempt]) for one in world.handoffs)
            executions = tuple(one._replace(attempt=rank[one.attempt]) for one in world.executions)
        known = world.known
        if record and rank[record.attempt] != record.attempt:
            known = self._know(replace(record, attempt=rank[record.attempt]))
        ordered = tuple(sorted(handoffs)), tuple(sorted(executions))
        return World(known, *ordered, world.started)


def _turned(world: World, execution: Execution, phase: str = "") -> World:
    """The world with an execution in another phase; without one, it is no more."""
    rest = tuple(one for one in world.executions if one != execution)
    return world._replace(executions=(*rest, execution._replace(phase=phase)) if phase else rest)


def _tidy(record: Record | None) -> Record | None:
    """Without what the rules of submitted jobs never read."""
    return record and replace(
        record, rev=NEWEST, seq=1, rule="", by="", error="", reason="", worker="", started_at=0,
        placed_at=0, completed_at=0, digest="", submit_rev="",
    )  # fmt: skip
