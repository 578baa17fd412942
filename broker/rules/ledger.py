"""An origin's books in memory: the reference model of `merge.lua`, with the same memory and bounds.

Tests hold the script against it, and the explorations of the attempt machine run on it. Its log, folded by
`rules.replay`, gives its records back.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from broker.rules import index
from broker.rules.bounds import Bounds
from broker.rules.entry import Entry
from broker.rules.event import Event, KeyedEvent, RemovePair, Report, mark, shape_mark
from broker.rules.key import Key
from broker.rules.merge import merge
from broker.rules.record import Record
from broker.rules.removal import remove_record, valid_removal
from broker.rules.verdict import APPLIED, DUPLICATE, REFUSED, Answer, Scene, Step, Verdict


@dataclass(slots=True)
class Ledger:
    """The books of one origin; `apply` is `merge.lua` for one event."""

    bounds: Bounds = field(default_factory=Bounds)
    records: dict[Key, Record] = field(default_factory=dict)
    tombstones: dict[str, int] = field(default_factory=dict)
    horizon: int = 0
    answers: dict[str, Answer] = field(default_factory=dict)
    answers_old: dict[str, Answer] = field(default_factory=dict)
    turned_at: int = 0
    terms: dict[str, int] = field(default_factory=dict)
    stale_after: int | None = None  #: None: the origin never promised to speak of its jobs
    log: list[Entry] = field(default_factory=list)
    live: dict[Key, int] = field(default_factory=dict)
    done: dict[Key, int] = field(default_factory=dict)
    ready: dict[Key, int] = field(default_factory=dict)
    delayed: dict[Key, int] = field(default_factory=dict)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)  #: by (outcome, rule)

    def apply(self, event: Event, now: int) -> Answer:
        """Decide one event and book it; `now` is epoch milliseconds."""
        answer = self._apply(event, now)
        if answer.rule != "invalid":
            self.counts[answer.outcome, answer.rule] += 1
        return answer

    def _apply(self, event: Event, now: int) -> Answer:
        name = mark(event)
        if name and (first := self._answer(name)):
            return Answer(DUPLICATE, first.rule, first.rev)
        if isinstance(event, RemovePair):
            answer = self._apply_pair(event, now)
        else:
            verdict = merge(self.records.get(event.key), event, self._scene(event, now))
            answer = self._book(event, verdict, now)
            if isinstance(event, Report) and answer.rule != "invalid":
                self._note_promise(event)
        if answer.outcome == APPLIED:
            self._remember(event, name, answer, now)
        return answer

    def _note_promise(self, report: Report) -> None:
        """Who re-asserts once is expected to go on: from then on its silence about a job means something."""
        if report.stale_after:
            self.stale_after = report.stale_after
        elif report.resync and self.stale_after is None:
            self.stale_after = 0

    def _scene(self, event: KeyedEvent, now: int) -> Scene:
        return Scene(
            now=now,
            exact=self.tombstones.get(event.key.job, 0),
            pair=self.tombstones.get(event.key.pair, 0),
            horizon=self.horizon,
            seen=isinstance(event, Report) and self._answer(shape_mark(event)) is not None,
            term=self.terms.get(getattr(event, "role", ""), 0),
            silence_ms_max=self.bounds.silence_ms_max,
        )

    def _book(self, event: KeyedEvent, verdict: Verdict, now: int) -> Answer:
        if verdict.outcome != APPLIED:
            if verdict.record is not None:
                self.records[event.key] = verdict.record
            rev = (
                verdict.record.submit_rev if verdict.record and verdict.rule == "submitted" else ""
            )
            return Answer(verdict.outcome, verdict.rule, rev)
        if role := getattr(event, "role", ""):
            self.terms[role] = max(self.terms.get(role, 0), getattr(event, "term", 0))
        rev = self._write(event.kind, event.key, verdict, event.by, now)
        if verdict.generation:
            self._bury(event.key.job, verdict.generation)
        return Answer(APPLIED, verdict.rule, rev)

    def _write(self, kind: str, key: Key, verdict: Verdict, by: str, now: int) -> str:
        rev = ""
        for step in verdict.steps:
            rev = self._log(kind, key.job, step, by, verdict.generation)
        if verdict.record is None:
            self.records.pop(key, None)
        else:
            first = rev if verdict.rule == "submitted" else verdict.record.submit_rev
            self.records[key] = replace(verdict.record, rev=rev, submit_rev=first)
        self._list(key, now)
        return rev

    def _log(self, kind: str, job: str, step: Step, by: str, generation: int) -> str:
        rev = f"{len(self.log) + 1}-0"
        self.log.append(
            Entry(
                rev, kind, job, step.rule, by, generation if step.record is None else 0, step.record
            )
        )
        return rev

    def _list(self, key: Key, now: int) -> None:
        record = self.records.get(key)
        for listing in (self.live, self.done, self.ready, self.delayed):
            listing.pop(key, None)
        if record is None:
            return
        for listing, score in (
            (self.live, index.live_score(record)),
            (self.done, index.done_score(record, now)),
            (self.ready, index.ready_score(record, now)),
            (self.delayed, index.delayed_score(record, now)),
        ):
            if score is not None:
                listing[key] = score

    def _apply_pair(self, event: RemovePair, now: int) -> Answer:
        """The broad removal: each record of the pair that is not newer, and the pair itself for those unseen."""
        if not valid_removal(event, now):
            return Answer(REFUSED, "invalid")
        shared = sorted(
            (key for key in self.records if key.pair == event.pair), key=lambda key: key.member
        )
        standing = self.tombstones.get(event.pair, 0)
        rules, rev = set(), ""
        for key in shared:
            record = self.records[key]
            generation = event.removed_at or record.created_at
            if record.created_at > generation:
                continue
            verdict = remove_record(record, event, Scene(now=now), generation)
            rules.add(verdict.rule)
            if verdict.outcome == APPLIED:
                rev = self._write("remove", key, verdict.named(), event.by, now)
            if verdict.generation:
                self._bury(key.job, verdict.generation)
        if not rev and standing and standing >= event.removed_at:
            return Answer(DUPLICATE, "no_change" if rules else "seen")
        generation = event.removed_at or now
        if not rev:
            rev = self._log("remove", event.pair, Step("removed", None), event.by, generation)
        self._bury(event.pair, generation)
        gone = not rules or "removed" in rules
        return Answer(APPLIED, "removed" if gone else "remove_requested", rev)

    def _bury(self, member: str, generation: int) -> None:
        self.tombstones[member] = max(generation, self.tombstones.get(member, 0))
        while len(self.tombstones) > self.bounds.tombstones_max:
            lowest = min(self.tombstones, key=lambda name: (self.tombstones[name], name))
            self.horizon = max(self.horizon, self.tombstones.pop(lowest))

    def _answer(self, name: str) -> Answer | None:
        return self.answers.get(name) or self.answers_old.get(name)

    def _remember(self, event: Event, name: str, answer: Answer, now: int) -> None:
        """Written last: a mark without its write would swallow the retry."""
        if name:
            self.answers[name] = answer
        if isinstance(event, Report) and event.seq == 0:
            self.answers[shape_mark(event)] = answer
        full = len(self.answers) >= self.bounds.answers_max
        if full and now - self.turned_at >= self.bounds.answers_ms_min:
            self.answers_old, self.answers, self.turned_at = self.answers, {}, now
