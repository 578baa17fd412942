"""A sweep that is paused between what it read and what it writes, while its jobs move on."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

from broker.roles.sweeper import Sweeper
from broker.rules.event import Intent, Place, Reassert, Unplace
from broker.rules.liveness import Budgets
from broker.store.beat import beat
from broker.store.store import Store
from tests.chaos.checks import all_ended, in_order, lists_agree, no_ghosts
from tests.chaos.held import Held
from tests.chaos.run import row
from tests.roles.fleet import ORIGIN, Fleet, settle

#: So many jobs are judged in one sweep.
BATCH = 25
NODE = "node-a"


@row("sweep-paused", long=500, short=25)
def sweep_paused(run):
    """Each judgement meets each way in which a job may move: what was read no longer counts."""
    with run.stack() as stack, stack.broker.watch() as watcher:
        watcher.snapshot()
        world = World(run, stack.broker.store)
        told = {}
        try:
            for kind, move in MEETINGS:
                rules = Counter()
                for _ in range(0, run.count, BATCH):
                    rules.update(world.meet(kind, move))
                told[f"{kind}, but {move.__name__}"] = dict(rules)
            all_ended(stack, world.keys)
            no_ghosts(stack, world.keys)
            told["entries"] = in_order(stack.broker, ORIGIN)
            lists_agree(stack, watcher)
        finally:
            world.close()
        return told


class World(Fleet):
    """A fleet whose clock is moved by hand, and two sweepers that go by it."""

    def __init__(self, run, store):
        super().__init__(store)
        # The log's own times are Redis's: let none of them be later than what this clock says.
        self.clock.ahead_ms = 3_600_000
        self.chance = run.chance
        self.budgets = Budgets()
        self.keys = []
        self.workers_of(NODE, count=2)
        self.sweeper, self.other = self.new_sweeper(), self.new_sweeper()
        self.held = Held(self.sweeper._store)

    def new_sweeper(self):
        store = Store.from_url(self.store.url, self.store.keys.namespace)
        store.clock = self.clock
        return Sweeper(
            store, budgets=self.budgets, fleet_ms=0, here=lambda: self.clock.ahead_ms / 1000
        )

    def close(self):
        for sweeper in (self.sweeper, self.other):
            sweeper.close()
            sweeper._store.close()
        super().close()

    def lead_with(self, sweeper):
        """It takes office, and has listened for long enough to judge."""
        sweeper._lead.doubt()
        settle(sweeper)
        assert sweeper._lead.term
        self.pass_ms(self.budgets.guess_ms)

    def pass_ms(self, ms):
        """Workers beat on, whatever becomes of their jobs."""
        self.clock.ahead_ms += ms
        self.beat()

    def records(self, keys):
        return self.view.get_many(keys)

    def meet(self, kind, move):
        """A batch of jobs is about to be judged when the sweep is paused, and moves on; the rules it is answered by."""
        jobs = self.reported() if kind == "guess of a reported job" else self.submitted_for(kind)
        self.held.kind, self.held.told = kind.partition(" ")[0], []
        story = move(self, jobs)
        self.held.pause = lambda: next(story)
        self.sweeper.step()
        assert self.held.pause is None, f"there was no {kind}"
        rules = self.held.rules()
        assert len(rules) == BATCH, rules
        with suppress(StopIteration):
            story.send(rules)
        for key, record in zip(jobs, self.records(jobs), strict=True):
            if record.kind == "submitted" and not record.ended:
                self.end(key, record)
        return rules

    def submitted_for(self, kind):
        """Jobs that are due to be unplaced, guessed, requeued or lost."""
        begun = len(self.keys)
        ids = range(begun, begun + BATCH)
        jobs = self.submit_many(ids, attempts=1 if kind == "lost" else 3)
        self.keys += jobs
        self.clock.ahead_ms += self.submitted  # so far in the future they were created
        self.lead_with(self.sweeper)
        for key in jobs:
            self.say(Place(key=key, node=NODE, rev=self.view.get(key).rev, term=1))
            if kind != "unplace":
                self.start(key)
        if kind == "unplace":
            self.pass_ms(self.budgets.start_ms)
            return jobs
        self.pass_ms(self.budgets.guess_ms + self.chance.randrange(1_000))
        if kind != "guess":
            settle(self.sweeper)
            assert all(record.inferred for record in self.records(jobs))
            self.pass_ms(self.budgets.grace_ms + self.chance.randrange(1_000))
        return jobs

    def reported(self):
        """Jobs whose origin promised to speak of them, and does not."""
        begun = len(self.keys)
        jobs = self.report_many(range(begun, begun + BATCH), stale_after=20_000)
        self.keys += jobs
        self.lead_with(self.sweeper)
        self.sweeper._promises_due = 0.0
        self.pass_ms(20_000)
        return jobs

    def end(self, key, record):
        if record.holder:
            self.finish(key)
        else:
            self.say(Intent(key=key))


# --- how jobs move: up to the yield, while the sweep is paused; then how it was answered, and what must hold


def complete(world, jobs):
    for key in jobs:
        world.finish(key)
    before = world.records(jobs)
    rules = yield
    assert set(rules) == {"guess_outdated"}, rules
    assert world.records(jobs) == before
    assert {record.state for record in before} == {"completed"}


def beats(world, jobs):
    """No event at all: only last_seen moved."""
    for record, key in zip(world.records(jobs), jobs, strict=True):
        assert beat(world.store, key, record.attempt, record.holder).valid
    rules = yield
    assert set(rules) == {"guess_outdated"}, rules
    assert {record.rule for record in world.records(jobs)} <= {"started", "guess_applied"}


def reasserts(world, jobs):
    for record, key in zip(world.records(jobs), jobs, strict=True):
        assert beat(world.store, key, record.attempt, record.holder).guessed
        names = {"created_at": record.created_at, "attempt": record.attempt}
        world.say(Reassert(key=key, holder=record.holder, **names))
    rules = yield
    assert set(rules) == {"guess_outdated"}, rules
    for record in world.records(jobs):
        assert (record.state, record.attempt, record.inferred) == ("running", 1, False)


def guessed_anew(world, jobs):
    """By a sweeper of the same term, so that it is not the fence that refuses."""
    world.other._lead._lease._holder = world.sweeper._lead._lease._holder
    yield from _guessed_anew(world, jobs, "guess_outdated")


def guessed_anew_by_a_later_leader(world, jobs):
    world.other._lead._lease._holder = f"other-{len(world.keys)}"
    world.store.client.delete(world.store.keys.leader("sweeper"))
    yield from _guessed_anew(world, jobs, "stale_term")
    assert not world.sweeper._lead.term
    world.other._lead.release()


def _guessed_anew(world, jobs, refused):
    old = world.records(jobs)
    for key, record in zip(jobs, old, strict=True):
        beat(world.store, key, record.attempt, record.holder)
    world.lead_with(world.other)
    world.pass_ms(world.budgets.guess_ms)
    settle(world.other)
    newer = world.records(jobs)
    assert all(
        record.guessed_at > before.guessed_at for record, before in zip(newer, old, strict=True)
    )
    rules = yield
    assert set(rules) == {refused}, rules
    assert world.records(jobs) == newer
    world.pass_ms(world.budgets.grace_ms - 1)
    settle(world.other)
    assert world.records(jobs) == newer, "the grace of the newer guess was cut short"
    world.pass_ms(1)
    settle(world.other)
    assert {record.attempt for record in world.records(jobs)} == {2}


def starts(world, jobs):
    for key in jobs:
        world.start(key)
    rules = yield
    assert set(rules) == {"not_ready"}, rules
    assert {record.state for record in world.records(jobs)} == {"running"}


def placed_anew(world, jobs):
    """Somebody else took them back, and they were placed again: they have their whole deadline to start."""
    for record, key in zip(world.records(jobs), jobs, strict=True):
        world.say(Unplace(key=key, rev=record.rev, term=world.sweeper._lead.term))
        world.say(Place(key=key, node=NODE, rev=world.view.get(key).rev, term=1))
    placed = world.records(jobs)
    rules = yield
    assert set(rules) == {"not_ready"}, rules
    assert world.records(jobs) == placed
    world.pass_ms(world.budgets.start_ms - 1)
    settle(world.sweeper)
    assert world.records(jobs) == placed, "the deadline of the newer place was cut short"
    world.pass_ms(1)
    settle(world.sweeper)
    assert {record.attempt for record in world.records(jobs)} == {3}


def wished(world, jobs):
    """A cancel moves no last_seen, and makes another judgement due."""
    for key in jobs:
        world.say(Intent(key=key))
    rules = yield
    assert set(rules) == {"guess_outdated"}, rules
    world.pass_ms(world.budgets.guess_ms)
    settle(world.sweeper)
    world.pass_ms(world.budgets.grace_ms)
    settle(world.sweeper)
    assert {record.state for record in world.records(jobs)} == {"cancelled"}


def its_origin_speaks(world, jobs):
    for key in jobs:
        world.report(key.id, "completed", created_at=world.view.get(key).created_at)
    rules = yield
    assert set(rules) == {"guess_outdated"}, rules
    assert {record.state for record in world.records(jobs)} == {"completed"}


MEETINGS = [
    ("guess", complete),
    ("guess", beats),
    ("guess of a reported job", its_origin_speaks),
    ("guess", wished),
    ("unplace", starts),
    ("unplace", placed_anew),
    *(
        (kind, move)
        for kind in ("requeue", "lost")
        for move in (
            complete,
            beats,
            wished,
            reasserts,
            guessed_anew,
            guessed_anew_by_a_later_leader,
        )
    ),
]
