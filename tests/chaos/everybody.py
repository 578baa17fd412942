"""Everybody who uses a broker, all at once, each remembering what it was told: what no failure may take back.

Whoever is not answered says the same again, as a caller should: so in the end everything was acknowledged, and what
was answered twice must have happened once. An error that is none of ours ends its thread, and the run.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections import Counter, defaultdict
from contextlib import contextmanager, suppress
from typing import NamedTuple

from broker import Gone, JobEvents
from broker.errors import BrokerError, Invalid, Refused
from broker.rules.key import Key
from broker.rules.replay import rev_order
from tests.chaos.stack import until

GROUP = "crowd"
#: What is told of each reported job, in turn: its state, and where.
STORY = (
    ("queued", ""), ("running", "node-a"), ("queued", "node-b"), ("running", "node-b"), ("completed", "node-b"),
)  # fmt: skip
#: What our modules say in this process, in the stack's folder.
LOG = "log-here"
#: The pause after a call that was not taken, in seconds.
PAUSE_SECONDS = 0.2
#: How long whoever was not answered goes on after the crowd was asked to end.
END_SECONDS_MAX = 60.0


_logger = logging.getLogger("broker")


class Word(NamedTuple):
    """An acknowledged word on a job: where the answer said that its log has it (empty: the answer named no entry)."""

    key: Key
    rev: str
    at: float  #: when the call that was acknowledged began, by the monotonic clock


class Everybody:
    """Submitters, a reporter, a JobEvents, two members of a group, and two watchers."""

    def __init__(self, stack, chance, *, work_seconds=0.2, pace_seconds=0.25):
        self._stack = stack
        self._work_seconds, self._pace_seconds = work_seconds, pace_seconds
        self._chances = chance
        self._stop = threading.Event()
        self._stopped_at = float("inf")
        self._threads = []
        self._brokers = []
        #: What was acknowledged: submitted jobs, words of reported jobs, reported jobs whose last word was taken.
        self.submitted: list[Word] = []
        self.reported: list[Word] = []
        self.produced: list[Word] = []
        #: What the group's members were told, in their order: origin and rev; and of which losses.
        self.delivered: list[tuple[str, str]] = []
        self.gaps: list[Gone] = []
        #: How often the watcher of a cursor alone was told that its place is gone; which logs the other one relisted.
        self.gone: list[Gone] = []
        self.relisted = 0
        #: Where the watcher of a cursor stands.
        self.cursor = {}
        #: Calls that were not taken, by error; the rules of answers that were neither applied nor a duplicate.
        self.errors = Counter()
        self.refused: list[str] = []
        #: What nobody may ever see.
        self.wrong: list[str] = []

    # --- life ------------------------------------------------------------------------------------

    def __enter__(self):
        self._log = logging.FileHandler(self._stack.folder / LOG)
        self._log.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
        _logger.addHandler(self._log)
        _logger.propagate = False
        self.watcher = self._broker("lookout").watch()
        members = [self._broker(f"member-{n}") for n in range(2)]
        self._subscriptions = [
            member.subscribe(GROUP, self._deliver, on_gone=self.gaps.append) for member in members
        ]
        self._begin(self._submit, "desk")
        self._begin(self._submit, "shop")
        self._begin(self._report, "press")
        self._begin(self._produce, "studio")
        self._begin(self._watch)
        self._begin(self._follow)
        return self

    def __exit__(self, kind, wrong, trace):
        try:
            self.end()
        except AssertionError:
            if wrong is None:
                raise
        finally:
            for subscription in self._subscriptions:
                subscription.close()
                subscription.join(10)
            for broker in self._brokers:
                broker.close()
            _logger.removeHandler(self._log)
            _logger.propagate = True
            self._log.close()

    def end(self):
        """Say no more. What was not acknowledged yet is said again until it is."""
        if not self._stop.is_set():
            self._stopped_at = time.monotonic()
            self._stop.set()
        for thread in self._threads:
            thread.join(END_SECONDS_MAX + 5)
            assert not thread.is_alive(), f"{thread.name} does not end"
        assert not self.wrong, "\n".join(self.wrong)

    def leave(self):
        """Close the group's members."""
        for subscription in self._subscriptions:
            subscription.close()
        for subscription in self._subscriptions:
            assert subscription.join(30), "a subscription does not end"

    def _broker(self, node):
        made = self._stack.client(node)
        self._brokers.append(made)
        return made

    def _begin(self, act, *args):
        def run():
            try:
                act(*args)
            except Exception:  # noqa: BLE001 - told when the crowd ends
                self.wrong.append(f"{act.__name__}{args}: {traceback.format_exc()}")

        thread = threading.Thread(
            target=run, name=f"crowd{act.__name__}-{'-'.join(args)}", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def _insist(self, call):
        """Call until it is taken."""
        while True:
            try:
                return call()
            except (Invalid, Refused, Gone):
                raise
            except BrokerError as error:
                self.errors[type(error).__name__] += 1
                if time.monotonic() - self._stopped_at > END_SECONDS_MAX:
                    raise
            time.sleep(PAUSE_SECONDS)

    # --- those who speak -------------------------------------------------------------------------

    def _submit(self, origin):
        broker, number = self._broker(origin), 0
        while not self._stop.wait(self._pace_seconds):
            number += 1
            seconds = round(self._chances.uniform(0, self._work_seconds), 3)
            options = {"id": str(number), "attempts": 20}
            try:
                at, job = self._insist(
                    lambda: (time.monotonic(), broker.submit("work", seconds, **options))  # noqa: B023
                )
            except Refused as refused:
                self.refused.append(refused.rule)
            else:
                self.submitted.append(Word(job.key, "", at))

    def _report(self, origin):
        broker, number = self._broker(origin), 0
        while not self._stop.wait(self._pace_seconds):
            number += 1
            story = {"event": "report", "origin": origin, "engine": "press", "id": str(number)}
            story["created_at"] = self._insist(broker.store.clock.now)
            for seq, (state, node) in enumerate(STORY, 1):
                event = story | {"state": state, "node": node, "seq": seq}
                at, outcome = self._insist(lambda: (time.monotonic(), broker.report(event)))  # noqa: B023
                if outcome.ok:
                    self.reported.append(Word(Key.parse(outcome.key), outcome.rev, at))
                else:
                    self.refused.append(outcome.rule)

    def _produce(self, origin):
        scale = self._stack.budgets.beat_ms / 1000
        broker = self._broker(origin)
        events = JobEvents(broker, "studio", resync_seconds=30 * scale, retry_seconds=scale)
        said = []
        while not self._stop.wait(self._pace_seconds):
            at, job = self._insist(lambda: (time.monotonic(), events.create()))
            for say in (
                lambda: events.dispatch(job, "node-a"),  # noqa: B023
                lambda: events.start(job),  # noqa: B023
                lambda: events.finish(job),  # noqa: B023
            ):
                with self._counted():
                    say()
            said.append(Word(job.key, "", at))
        left = events.close(END_SECONDS_MAX)
        assert not left, f"{left} words of reported jobs were never taken"
        self.produced.extend(said)

    @contextmanager
    def _counted(self):
        """What JobEvents raises is no loss of the word: its keeper says it again."""
        try:
            yield
        except BrokerError as error:
            self.errors[type(error).__name__] += 1

    # --- those who listen ------------------------------------------------------------------------

    def _deliver(self, delivery):
        self.delivered.append((delivery.origin, delivery.rev))

    def _watch(self):
        self._insist(self.watcher.snapshot)
        while not self._stop.is_set():
            changes = self._insist(lambda: self.watcher.changes(200))
            self.relisted += sum(change.synthesized for change in changes)

    def _follow(self):
        """Keeps nothing but a cursor: only such a watcher hears of a loss."""
        broker = self._broker("cursor")
        with broker.watch() as watcher:
            while not self._stop.is_set():
                try:
                    self._insist(lambda: watcher.resume(self.cursor))
                    self._insist(lambda: watcher.changes(200))
                    self.cursor = watcher.cursor
                except Gone as gone:
                    self.gone.append(gone)
                    self.cursor = {o: place for o, place in self.cursor.items() if o != gone.origin}

    # --- what it may ask for ---------------------------------------------------------------------

    @property
    def keys(self):
        """All jobs that were accepted."""
        return list({word.key: None for word in (*self.submitted, *self.reported, *self.produced)})

    def kept(self):
        """Nothing that was acknowledged is gone: every job has its record, every entry that an answer named its place.

        For logs that were never cut.
        """
        missing = self.missing()
        assert not any(missing.values()), {
            what: words[:3] for what, words in missing.items() if words
        }

    def missing(self):
        """The acknowledged words whose effect is nowhere: jobs without a record, revs that no log holds."""
        broker = self._stack.broker
        revs = {
            (origin, entry.rev)
            for origin in broker.origins()
            for entry in broker.log(origin).entries()
        }
        jobs = {*self.submitted, *self.produced}
        records = dict(zip(jobs, broker.view.get_many([word.key for word in jobs]), strict=True))
        return {
            "submitted": [word for word in self.submitted if records[word] is None],
            "reported": [
                word
                for word in self.reported
                if word.rev and (word.key.origin, word.rev) not in revs
            ],
            "produced": [
                word for word in self.produced if not (records[word] and records[word].ended)
            ],
        }

    def heard(self, seconds=30.0):
        """The group was told every entry that the logs hold, each first in its order; how many that are."""
        broker = self._stack.broker
        logs = {
            origin: [entry.rev for entry in broker.log(origin).entries()]
            for origin in broker.origins()
        }

        def unheard():
            told = set(self.delivered)
            return [
                (origin, rev)
                for origin, revs in logs.items()
                for rev in revs
                if (origin, rev) not in told
            ]

        with suppress(AssertionError):
            until(lambda: not unheard(), seconds)
        assert not unheard(), (
            f"{len(unheard())} entries were told to nobody, such as {unheard()[0]}"
        )
        firsts = defaultdict(dict)
        for origin, rev in list(self.delivered):
            firsts[origin].setdefault(rev)
        for origin, revs in firsts.items():
            assert list(revs) == sorted(revs, key=rev_order), f"{origin} was told out of order"
        return sum(map(len, logs.values()))
