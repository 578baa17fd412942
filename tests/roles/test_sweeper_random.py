"""A fleet under a sweeper, at random: workers die, freeze and come back, users cancel; and every job must end."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from rq.executions import Execution
from rq.job import Job
from rq.serializers import JSONSerializer

from broker.roles.handoff import Handoff
from broker.rules.event import Finish, Guess, Intent, Reassert, Requeue, Start
from broker.rules.key import Key
from broker.store.beat import beat
from tests.roles.fleet import ORIGIN, settle
from tests.roles.sweeping import BEAT, GRACE, GUESS, attentive, place, wait
from tests.roles.test_sweeper import rq_is_empty, rq_keys

__all__ = ["rq_is_empty"]

TURNS = 200
JOBS_MAX = 25


class Worker:
    """One slot: it takes hand-offs as ours do, and may die or freeze at any moment."""

    def __init__(self, world, info):
        self.world, self.info = world, info
        self.fleet = world.fleet
        self.hand = None  # key, created_at, attempt, holder
        self.frozen = False

    def take(self):
        client, queue = self.fleet.store.client, self.fleet.queue(self.info.node)
        id = client.lmove(queue.key, queue.intermediate_queue_key)
        if id is None:
            return
        job = Job.fetch(id.decode(), connection=client, serializer=JSONSerializer)
        with client.pipeline() as pipe:
            Execution.create(job, 60, pipe, worker_name=self.info.name)
            pipe.execute()
        text, created_at, attempt = job.args
        self.hand = (Key.parse(text), created_at, attempt, f"{self.info.name}-{id.decode()[-9:]}")
        key, created_at, attempt, holder = self.hand
        said = Start(
            key=key, created_at=created_at, attempt=attempt, node=self.info.node,
            holder=holder, worker=self.info.name,
        )  # fmt: skip
        if self.say(said) != "started":
            self.forget()

    def say(self, event):
        return self.fleet.view.apply([event])[0].rule

    def forget(self):
        key, created_at, attempt, _ = self.hand
        record = replace(
            self.world.any, node=self.info.node, created_at=created_at, attempt=attempt
        )
        self.world.handoff.discard(key, record)
        self.hand = None

    def beat(self):
        self.fleet.nodes.beat(self.info)
        if not self.hand:
            return
        key, created_at, attempt, holder = self.hand
        heard = beat(self.fleet.store, key, attempt, holder)
        if not heard.valid:
            self.forget()
        elif heard.guessed:
            told = {"created_at": created_at, "attempt": attempt, "holder": holder}
            assert self.say(Reassert(key=key, **told)) == "guess_cleared"
        elif heard.desired != "run":
            self.finish("cancelled")

    def finish(self, state="completed"):
        key, created_at, attempt, holder = self.hand
        word = Finish(key=key, created_at=created_at, attempt=attempt, holder=holder, state=state)
        self.world.words.append((key, attempt, self.say(word)))
        self.forget()


class World:
    def __init__(self, fleet, sweeper, chance):
        self.fleet, self.sweeper, self.chance = fleet, sweeper, chance
        self.handoff = Handoff(fleet.store.keys.namespace, fleet.store.url)
        self.workers, self.keys, self.words = [], [], []
        self.born = 0
        for info in fleet.workers:
            self.workers.append(Worker(self, info))
        self.any = fleet.view.get(Key(ORIGIN, "nobody", "", "known"))
        say = sweeper._say

        def checked(events):
            for event in events:
                self.check(event)
            return say(events)

        sweeper._say = checked

    def check(self, event):
        """Time alone is enough for nothing: it takes a whole silence, and a whole grace."""
        now, record = self.fleet.clock.now(), self.fleet.view.get(event.key)
        if isinstance(event, Guess):
            assert now - record.last_seen >= GUESS
        if isinstance(event, Requeue):
            assert now - record.guessed_at >= GRACE
            assert record.last_seen <= record.guessed_at

    def turn(self):
        self.chance.choice(
            [
                self.submit,
                self.work,
                self.work,
                self.work,
                self.die,
                self.freeze,
                self.thaw,
                self.cancel,
            ]
        )()
        if self.chance.random() < 0.7:
            wait(self.fleet, self.chance.randrange(BEAT))
        if self.chance.random() < 0.02:
            wait(self.fleet, GUESS)
        for worker in self.workers:
            if not worker.frozen:
                worker.beat()
        self.settle()

    def settle(self):
        settle(self.fleet.dispatchers[0])
        self.sweeper.step()

    def submit(self):
        if len(self.keys) < JOBS_MAX:
            self.keys.append(
                self.fleet.submit(len(self.keys), attempts=self.chance.choice([1, 3, 9]))
            )

    def work(self):
        worker = self.chance.choice(self.workers)
        if worker.frozen:
            return
        if worker.hand is None:
            worker.take()
        elif self.chance.random() < 0.5:
            worker.finish()

    def die(self):
        """And its supervisor starts another one."""
        at = self.chance.randrange(len(self.workers))
        self.born += 1
        info = replace(self.workers[at].info, name=f"born-{self.born}")
        self.workers[at] = Worker(self, info)
        self.fleet.workers = [worker.info for worker in self.workers]

    def freeze(self):
        if sum(worker.frozen for worker in self.workers) < 2:
            self.chance.choice(self.workers).frozen = True

    def thaw(self):
        for worker in self.workers:
            worker.frozen = False

    def cancel(self):
        if self.keys and self.chance.random() < 0.3:
            self.fleet.view.apply([Intent(key=self.chance.choice(self.keys))])

    def end(self):
        """Nobody dies any more, and whoever has something in hand ends it."""
        self.thaw()
        for _ in range(400):
            if all(self.fleet.view.get(key).ended for key in self.keys):
                return
            wait(self.fleet, BEAT)
            for worker in self.workers:
                worker.beat()
                worker.finish() if worker.hand else worker.take()
            self.settle()
        raise AssertionError([self.fleet.view.get(key) for key in self.keys])


@pytest.mark.usefixtures("rq_is_empty")
@pytest.mark.parametrize("again", range(2))
def test_whatever_dies_every_job_ends_and_no_attempt_is_begun_twice(fleet, again):
    seed = random.randrange(10**6)
    print(f"seed {seed}, run {again}")
    fleet.workers_of("node-a", count=3)
    fleet.workers_of("node-b", count=3)
    sweeper = attentive(fleet)
    place(fleet)
    world = World(fleet, sweeper, random.Random(seed))
    for _ in range(TURNS):
        world.turn()
    world.end()

    log = fleet.store.client.xrange(fleet.store.keys.of(ORIGIN).log)
    begun = [
        (fields[b"job"], fields[b"attempt"]) for _, fields in log if fields[b"rule"] == b"started"
    ]
    assert len(begun) == len(set(begun))
    ends = [(key, attempt) for key, attempt, rule in world.words if rule == "finished"]
    assert len(ends) == len({key for key, _ in ends})

    wait(fleet, GUESS)
    fleet.beat()
    for _ in range(5):
        settle(sweeper)
    assert rq_keys(fleet) == []
    world.handoff.close()
