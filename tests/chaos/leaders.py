"""Leaders frozen past their lease, or killed: a former one's word is refused, and the next one is there in time."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from broker.roles.lead import Deposed
from broker.rules.event import Intent, Place, Report, Start, Submit
from broker.rules.key import Key
from broker.store.lease import LED_ROLES
from broker.store.nodes import Nodes, WorkerInfo
from broker.store.store import Store
from broker.store.view import View
from tests.chaos import frozen_leader
from tests.chaos.run import row, share
from tests.chaos.stack import ROOT, kill, until

#: In every so many rounds the heir has done the work itself when the frozen one goes on; else it has only taken office.
ACTS_EACH = 5


@row("leaders", long=50, short=2)
def leaders(run):
    """Each write of a leader, frozen before it and past its lease while another one takes over: refused everywhere."""
    with run.stack() as stack, ThreadPoolExecutor(len(frozen_leader.WRITES)) as pool:
        duels = {name: pool.submit(duel, run, stack, name) for name in frozen_leader.WRITES}
        return {name: duel.result() for name, duel in duels.items()}


def duel(run, stack, name):
    store = Store.from_url(stack.url, f"duel-{name}")
    with (stack.folder / f"log-{name}").open("w+") as log:
        argv = [sys.executable, "-m", "tests.chaos.frozen_leader", stack.url, f"duel-{name}", name]
        env = os.environ | {"PYTHONPATH": str(ROOT)}
        # Unbuffered: a line that waits in a buffer of ours would not wake anybody.
        process = subprocess.Popen(
            argv, env=env, stdout=subprocess.PIPE, stderr=log, cwd=ROOT, bufsize=0
        )
        try:
            fight = Duel(store, process, name)
            refused = [fight.round(number) for number in range(run.count)]
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
            store.close()
        log.seek(0)
        told = log.read()
    assert "Traceback" not in told, told
    return f"{len(refused)} rounds, {sum(refused)} writes refused"


class Duel:
    """One write, again and again: a process that freezes before it, and an heir in this one."""

    def __init__(self, store, process, name):
        self.store, self.process, self.name = store, process, name
        self.write = frozen_leader.WRITES[name]
        self.view, self.nodes = View(store), Nodes(store)
        self.heir = frozen_leader.make(self.write.role, store)
        self.beat()
        assert self.hear() == "up"

    def round(self, number):
        """How many words the frozen one had to say, all of them refused."""
        # An origin that nobody has touched, in turn with one that both have.
        origin = f"o{number}" if number % 2 else "old"
        self.wait(lambda: self.leader().startswith(f"{os.uname().nodename}-{self.process.pid}-"))
        jobs = self.make_due(origin)
        self.wait(self.is_frozen)
        self.wait(lambda: not self.leader())  # its lease ran out
        self.take_office()
        fenced = {
            self.store.client.hget(self.store.keys.of(o).meta, f"term:{self.write.role}")
            for o in self.view.origins()
        }
        assert fenced == {str(self.heir._lead.term).encode()}, fenced
        if self.name == "trim":
            for o in self.view.origins():
                self.report(o, 5)
        before = self.state()
        acts = number % ACTS_EACH == ACTS_EACH - 1
        if acts:
            self.wait(lambda: self.heir.step() and self.state() != before)
            before = self.state()
        # Whatever the frozen one does next it must not do as a leader anew: the heir's lease lasts.
        lease, holder = self.store.keys.leader(self.write.role), self.heir._lead._lease._holder
        self.store.client.set(lease, holder, px=60_000)
        os.kill(self.process.pid, signal.SIGCONT)
        answer, after = self.hear(), self.state()
        changed = {
            name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
        }
        assert not changed, f"round {number}: the frozen one changed {changed}: {answer}"
        words = answer[1:-1:3] if isinstance(answer, list) else [answer]
        # What the heir has pruned meanwhile is told first.
        assert set(words) <= {"stale_term", -1} | ({"tombstoned"} if acts else set()), answer
        self.end(jobs)
        return len(words)

    # --- the frozen one

    def is_frozen(self):
        assert self.process.poll() is None, "it ended"
        stat = Path(f"/proc/{self.process.pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] == "T"

    def leader(self):
        return (self.store.client.get(self.store.keys.leader(self.write.role)) or b"").decode()

    def hear(self):
        """Its next line."""
        ready, _, _ = select.select([self.process.stdout], [], [], 120)
        line = self.process.stdout.readline().decode() if ready else ""
        assert line, "it says nothing"
        return line.strip() if line == "up\n" else json.loads(line)

    def arm(self):
        os.kill(self.process.pid, signal.SIGUSR1)

    # --- the heir

    def take_office(self):
        """As its next step begins, and no further; again where its lease ran out over that."""

        def taken():
            self.wait(self.heir._lead.hold)
            try:
                if self.write.role == "dispatcher":
                    self.heir._begin_term(self.heir._office or self.heir._open_office())
                else:
                    self.heir._begin_term()
            except Deposed:
                self.heir._lead.lose()
                return False
            return True

        self.wait(taken)

    def end(self, jobs):
        """Leave nothing to do, and give the lead back."""
        for key in jobs:
            self.view.apply([Intent(key=key, force=True)])
        self.heir._lead.release()

    # --- the world

    def beat(self):
        if self.write.role == "dispatcher":
            for number in range(4):
                self.nodes.beat(WorkerInfo(f"w{number}", "a", "e", pid=1, started_at=1))

    def wait(self, condition):
        """Workers beat meanwhile."""

        def met():
            self.beat()
            return condition()

        return until(met, 60)

    def state(self):
        """All that is kept of all origins, but for what was refused."""
        client = self.store.client
        names = client.scan_iter(f"{self.store.keys.namespace}:{{*}}:*", count=1_000)
        read = {
            # That it was refused is counted.
            b"hash": lambda name: {
                field: said
                for field, said in client.hgetall(name).items()
                if not field.startswith(b"n:refused:")
            },
            b"zset": lambda name: client.zrange(name, 0, -1, withscores=True),
            b"stream": client.xrange,
            b"string": client.get,
        }
        return {name: read[client.type(name)](name) for name in names if b":refused:" not in name}

    def make_due(self, origin):
        """Something to write about at the origin, over which the process freezes; its jobs that have not ended."""
        if self.write.role == "janitor":
            self.report(origin, 1)
            self.arm()
            if self.name == "prune":
                self.report(origin, 3)
            return []
        self.arm()
        if self.write.role == "auditor":
            self.report(origin, 1)
            books = self.store.keys.of(origin)
            self.store.client.zremrangebyrank(books.done, 0, 0)
            return []
        key = Key(origin, "e", "", f"{time.monotonic_ns()}")
        created_at = self.store.clock.now()
        attempts = 1 if self.name == "lost" else 3
        self.say(Submit(key=key, created_at=created_at, digest="d", attempts=attempts))
        if self.name != "place":
            self.nodes.set_flag("flagged", "drained")
            node = "flagged" if self.name == "unplace" else "b"
            self.say(Place(key=key, node=node, rev=self.view.get(key).rev, term=1))
            if self.name != "unplace":
                names = {"created_at": created_at, "attempt": 1}
                self.say(Start(key=key, node=node, holder="h", worker="w", **names))
        return [key]

    def report(self, origin, count):
        now = self.store.clock.now()
        self.view.apply(
            [
                Report(
                    key=Key(origin, "r", "", f"{time.monotonic_ns()}"),
                    created_at=now,
                    state="completed",
                )
                for _ in range(count)
            ]
        )

    def say(self, event):
        [answer] = self.view.apply([event])
        assert answer.outcome == "applied", answer


# --- killed


@row("leadership", long=50, short=2)
def leadership(run):
    """kill -9 of a serve that leads: another one leads each of its roles within a lease, and what it takes to ask."""
    with run.stack() as stack:
        for _ in range(3):
            stack.serve()
        stack.worker("work", slots=2)
        seconds, placed = {}, []
        for _ in run.turns("kills"):
            until(lambda: settled(stack))
            run.pause(0, stack.budgets.guess_ms / 1000)  # at any moment of a lease
            roles = until(lambda: settled(stack))
            victim = run.chance.choice([pid for pid, _ in roles.values()])
            lost = {role: term for role, (pid, term) in roles.items() if pid == victim}
            kill(victim)
            begun = time.monotonic()
            job = stack.broker.submit("work", 0)
            while lost:
                assert time.monotonic() - begun < 60, f"nobody leads {lost}"
                for role, (pid, term) in leads(stack).items():
                    if role in lost and pid != victim and term > lost[role]:
                        seconds.setdefault(role, []).append(stack.awake.since(begun))
                        del lost[role]
                time.sleep(0.002)
            until(lambda job=job: job.record().placed_at or job.record().ended)
            placed.append(time.monotonic() - begun)
            job.wait(60)
            stack.serve()
        lease = stack.budgets.guess_ms / 1000
        every = [one for found in seconds.values() for one in found]
        # A standby asks each third of a lease, in the step that is due then.
        bound = lease * 4 / 3 + ASK_SECONDS
        assert share(every, 0.5) <= bound, every
        assert max(every) <= bound + SLACK_SECONDS, every
        told = {
            f"{role}, p50/p99 s": f"{share(found, 0.5):.2f}/{share(found, 0.99):.2f} of {len(found)}"
            for role, found in sorted(seconds.items())
        }
        told["a job of that moment is placed, p50/p99 s"] = (
            f"{share(placed, 0.5):.2f}/{share(placed, 0.99):.2f}"
        )
        return {"lease s": lease, "bound s": round(bound, 2)} | told | stack.awake.told()


#: The longest pause between two steps of a role that has nothing to do; and what a busy machine may add.
ASK_SECONDS, SLACK_SECONDS = 0.25, 1.5


def leads(stack):
    """Role -> (pid of the process that leads it, its term)."""
    client, keys = stack.broker.store.client, stack.broker.store.keys
    found = {}
    for role in LED_ROLES:
        holder, term = client.mget(keys.leader(role), keys.term(role))
        if holder:
            found[role] = (int(holder.decode().rsplit("-", 2)[1]), int(term))
    return found


def settled(stack):
    """The leads, where each role of this broker has one, and every leader lives."""
    found = leads(stack)
    alive = {process.pid for process in stack.processes if process.poll() is None}
    return len(found) == len(LED_ROLES) and all(pid in alive for pid, _ in found.values()) and found
