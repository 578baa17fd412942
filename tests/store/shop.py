"""An origin with one job in each state, the hands that damage it, and what an audit finds then."""

from __future__ import annotations

from broker.rules.event import Finish, Guess, Place, Remove, Report, Start, Submit
from broker.rules.key import Key
from broker.rules.liveness import Budgets
from broker.store.audit import Audit
from broker.store.log import Log
from broker.store.view import View
from tests.clock import StillClock
from tests.store.readers import ORIGIN, key

HOUR_MS = 3_600_000
BUDGETS = Budgets()


class Shop:
    """An origin with one job in each state, and the hands that damage it."""

    def __init__(self, store):
        self.store = store
        self.clock = store.clock = StillClock(store.clock)
        self.view = View(store)
        self.keys = store.keys.of(ORIGIN)
        self.client = store.client
        self.begun_at = self.clock.now()

    def open(self):
        self.submit("ready", priority=3)
        self.submit("delayed", due=self.begun_at + HOUR_MS)
        self.place(self.submit("placed"))
        self.start(self.submit("running"))
        self.guess(self.start(self.submit("guess")))
        self.finish(self.start(self.submit("done")))
        self.report("live")
        self.report("ended", "completed", completed_at=self.begun_at - 5)
        self.report("untimed", "failed")
        self.report("gone")
        self.say(Remove(key=key("gone")))
        return self

    def say(self, event):
        [answer] = self.view.apply([event])
        assert answer.outcome == "applied", answer
        return answer

    def report(self, id, state="running", **more):
        told = {"created_at": self.begun_at - 9, "node": "n1"} | more
        self.say(Report(key=key(id), state=state, **told))
        return key(id)

    def submit(self, id, **more):
        self.say(Submit(key=key(id), created_at=self.begun_at, digest="d", **more))
        return key(id)

    def place(self, job):
        self.say(Place(key=job, node="n1", rev=self.view.get(job).rev, term=1))
        return job

    def start(self, job):
        record = self.view.get(self.place(job))
        self.say(Start(**self.held(job), node=record.node, worker="w1"))
        return job

    def held(self, job):
        record = self.view.get(job)
        return {
            "key": job, "created_at": record.created_at, "attempt": record.attempt, "holder": "h",
        }  # fmt: skip

    def finish(self, job):
        self.say(Finish(**self.held(job), state="completed", result="1"))

    def guess(self, job):
        record = self.view.get(job)
        self.say(Guess(key=job, rev=record.rev, last_seen=record.last_seen, term=1))

    def cut(self, count_max=0):
        """Trim the log to so many entries."""
        while Log(self.store, ORIGIN).trim(count_max, 10**9):
            pass

    # --- damage

    def name(self, id):
        """The key of the record of a job."""
        return self.keys.of_job(key(id).job).job

    def audit(self):
        return run(Audit(self.store, ORIGIN, BUDGETS)).findings

    def found(self):
        """Each finding as (job's id, kind, repair, text)."""
        told = []
        for finding in self.audit():
            id = Key.of_job(ORIGIN, finding.job).id
            told.append((id, finding.kind, finding.what, finding.text))
        return told

    def dump(self):
        return {
            name: self.client.dump(name) for name in self.client.scan_iter(f"{self.keys.prefix}:*")
        }


def run(audit):
    for _ in range(1_000):
        if audit.step():
            return audit
    raise AssertionError("it never ends")
