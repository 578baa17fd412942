"""What surrounds a role in its tests: users, workers and their beats, RQ as it stands."""

from __future__ import annotations

from dataclasses import fields

from rq import Queue
from rq.serializers import JSONSerializer

from broker.roles.auditor import Auditor
from broker.roles.dispatcher import Dispatcher
from broker.roles.janitor import Janitor
from broker.roles.sweeper import Sweeper
from broker.rules.bounds import Bounds
from broker.rules.event import Finish, Reassert, Report, Start, Submit
from broker.rules.handoff import queue_name
from broker.rules.key import Key
from broker.rules.liveness import Budgets
from broker.store.beat import beat
from broker.store.nodes import Nodes, WorkerInfo
from broker.store.queue import ready
from broker.store.store import Store
from broker.store.view import View
from tests.clock import StillClock

ORIGIN = "home"

#: All budgets, twelve times as long, so that a beat is 12 s, a guess a minute, its grace two.
PATIENT = Budgets(
    **{
        field.name: getattr(Budgets(), field.name) * 12
        for field in fields(Budgets)
        if field.name.endswith("_ms")
    }
)


class Fleet:
    def __init__(self, store):
        self.store = store
        self.clock = store.clock = StillClock(store.clock)
        self.view = View(store)
        self.nodes = Nodes(store)
        self.dispatchers = []
        self.janitors = []
        self.sweepers = []
        self.auditors = []
        self.submitted = 0
        self.workers = []

    def dispatcher(self, **options):
        store = Store.from_url(self.store.url, self.store.keys.namespace)
        store.clock = self.clock
        options = {"fleet_ms": 0, "budgets": Budgets(guess_ms=60_000)} | options
        self.dispatchers.append(Dispatcher(store, **options))
        return self.dispatchers[-1]

    def janitor(self, round_seconds=0.0, **bounds):
        store = Store.from_url(self.store.url, self.store.keys.namespace)
        store.clock = self.clock
        budgets = Budgets(guess_ms=60_000)
        options = {"budgets": budgets, "round_seconds": round_seconds}
        self.janitors.append(Janitor(store, bounds=Bounds(**bounds), **options))
        return self.janitors[-1]

    def sweeper(self, **options):
        """One whose budgets are so long that no slow machine makes it lose its lease."""
        store = Store.from_url(self.store.url, self.store.keys.namespace)
        store.clock = self.clock
        options = {"fleet_ms": 0, "budgets": PATIENT, "here": self.here} | options
        self.sweepers.append(Sweeper(store, **options))
        return self.sweepers[-1]

    def auditor(self, **options):
        """One that goes round again whenever it came to the end, and takes its time for no lease."""
        store = Store.from_url(self.store.url, self.store.keys.namespace)
        store.clock = self.clock
        options = {"budgets": PATIENT, "round_seconds": 0.0, "keys_seconds": 0.0} | options
        self.auditors.append(Auditor(store, **options))
        return self.auditors[-1]

    def here(self):
        """The sweepers' own clock: it goes with Redis's."""
        return self.clock.ahead_ms / 1000

    def close(self):
        for role in self.dispatchers + self.janitors + self.sweepers + self.auditors:
            role.close()
            role._store.close()

    # --- users

    def submit(self, id, engine="echo", origin=ORIGIN, **more):
        key = Key(origin, engine, "", str(id))
        self.submitted += 1
        created_at = more.pop("created_at", None) or self.clock.now() + self.submitted
        event = Submit(key=key, created_at=created_at, digest="d", by="test", **more)
        assert self.view.apply([event])[0].rule == "submitted"
        return key

    def submit_many(self, ids, **more):
        return [self.submit(id, **more) for id in ids]

    def know_origin(self):
        """Watchers look for new origins once a second: one that is known needs no waiting."""
        self.submit("known", engine="nobody")

    def report(self, id, state="running", origin=ORIGIN, **more):
        key = Key(origin, "ollama", "", str(id))
        created_at = more.pop("created_at", None) or self.clock.now()
        self.view.apply([Report(key=key, created_at=created_at, state=state, **more)])
        return key

    def report_many(self, ids, state="running", **more):
        return [self.report(id, state, **more) for id in ids]

    def say(self, event):
        [answer] = self.view.apply([event])
        assert answer.outcome == "applied", answer
        return answer

    # --- nodes

    def workers_of(self, node, engine="echo", count=1):
        for _ in range(count):
            name = f"{node}-{engine}-{len(self.workers)}"
            self.workers.append(WorkerInfo(name, node, engine, pid=1, started_at=1))
        self.beat()

    def beat(self, *but):
        for worker in self.workers:
            if worker.name not in but:
                self.nodes.beat(worker)

    def start(self, key, worker=None):
        record = self.view.get(key)
        free = [w.name for w in self.workers if (w.node, w.engine) == (record.node, key.engine)]
        self.say(
            Start(
                key=key, created_at=record.created_at, attempt=record.attempt, node=record.node,
                holder=f"h-{key.id}", worker=worker or free[0],
            )
        )  # fmt: skip

    def see(self, *keys):
        """The holders of these jobs beat."""
        for key in keys:
            record = self.view.get(key)
            assert beat(self.store, key, record.attempt, record.holder).valid

    def reassert(self, key):
        record = self.view.get(key)
        self.say(
            Reassert(
                key=key, created_at=record.created_at, attempt=record.attempt, holder=record.holder
            )
        )

    def finish(self, key, state="completed", **more):
        record = self.view.get(key)
        self.say(
            Finish(
                key=key, created_at=record.created_at, attempt=record.attempt,
                holder=record.holder, state=state, **more,
            )
        )  # fmt: skip

    # --- what came of it

    def node_of(self, key):
        return self.view.get(key).node

    def placed(self, keys):
        return [key for key in keys if self.node_of(key)]

    def ready(self):
        return [key.id for key in ready(self.store, ORIGIN, 10_000)]

    def queue(self, node, engine="echo"):
        name = queue_name(self.store.keys.namespace, node, engine)
        return Queue(name, connection=self.store.client, serializer=JSONSerializer)

    def handed_over(self, node, engine="echo"):
        """The keys in the node's RQ queue, in their order."""
        return [job.args[0] for job in self.queue(node, engine).jobs]

    def log(self, origin=ORIGIN):
        entries = self.store.client.xrange(self.store.keys.of(origin).log)
        return [fields[b"rule"].decode() for _, fields in entries]


def settle(role, steps=50):
    """Steps until there is nothing to do; the sum of what was done."""
    done = 0
    for _ in range(steps):
        count = role.step()
        done += count
        if not count:
            return done
    raise AssertionError("it never comes to rest")
