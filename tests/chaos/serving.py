"""`broker serve` that is killed: the leader, the one that stands by, or both, also between a place and its hand-off."""

from __future__ import annotations

import signal
import time
from collections import Counter

from tests.chaos.checks import all_hold
from tests.chaos.dying import FROZEN, Orders
from tests.chaos.dying_serve import POINTS
from tests.chaos.run import row, share
from tests.chaos.stack import kill, until
from tests.chaos.timing import SLACK

DYING = "tests.chaos.dying_serve"
#: Jobs for each kill; how long they work, in seconds.
JOBS, SHORTEST, LONGEST = 10, 0.02, 0.3
#: What the turn of a role, and its taking over, may cost, in milliseconds.
TAKING_MS = 500


@row("kill-serve", long=200, short=5)
def kill_serve(run):
    """kill -9 of serve while another stands by, and of both: nothing lost, and each job runs exactly once."""
    with run.stack() as stack, stack.broker.watch() as watcher:
        pair = Pair(run, stack)
        stack.workers(["work"], ("node-a", "node-b"), slots=2)
        watcher.snapshot()
        keys = []
        for _ in run.turns("kills"):
            works = [run.chance.uniform(SHORTEST, LONGEST) for _ in range(JOBS)]
            keys += [job.key for job in stack.broker.submit_many("work", works)]
            pair.strike()
            run.pause(0, 0.5)
        _run_once(stack, all_hold(stack, keys, watcher))
        return {"jobs": len(keys)} | pair.told()


@row("freeze-serve", long=20, short=2)
def freeze_serve(run):
    """A serve that leads stands still until another leads, also between a place and its hand-off: it writes no more."""
    with run.stack() as stack, stack.broker.watch() as watcher:
        pair = Pair(run, stack)
        stack.workers(["work"], ("node-a", "node-b"), slots=2)
        watcher.snapshot()
        keys = []
        for turn in run.turns("freezes"):
            keys += [job.key for job in stack.broker.submit_many("work", [SHORTEST] * JOBS)]
            leader = pair.freeze(at_point=turn % 2 == 0)
            keys += [job.key for job in stack.broker.submit_many("work", [SHORTEST] * JOBS)]
            stack.ended(keys)  # by the one that leads now
            kill(leader.pid, signal.SIGCONT)
            run.pause(0, 0.5)
            assert leader.poll() is None, leader.log.read_text()
        _run_once(stack, all_hold(stack, keys, watcher))
        return {"jobs": len(keys)} | pair.told()


def _run_once(stack, records):
    again = {str(key): one for key, one in records.items() if one.tries != 1 or one.deaths}
    assert not again, f"{len(again)} ran again, though no worker died: {again}"
    assert len(stack.effects.begun()) == len(records), "a job ran under two attempts"


class Pair:
    """Two serves: one leads, one stands by."""

    def __init__(self, run, stack):
        self.chance, self.stack = run.chance, stack
        self.orders = Orders(stack.folder / "orders")
        self.client, self.keys = stack.broker.store.client, stack.broker.store.keys
        self.running = [stack.serve(DYING), self._another()]
        self.counts, self.takeovers = Counter(), []

    def _another(self):
        """Started, and up: it has said so."""
        process = self.stack.start("serve", module=DYING)
        until(lambda: process.poll() is not None or "the roles run" in process.log.read_text())
        assert process.poll() is None, process.log.read_text()
        return process

    def strike(self):
        hows = ("leader", "other", "both", *POINTS)
        how = self.chance.choices(hows, (3, 1, 1, 3, 2))[0] if self.counts else POINTS[0]
        before = self._term()  # first: whoever leads under a later one has taken over
        leader = self._leader()
        if how in POINTS:
            self.orders.give(how)
            until(lambda: not self.orders.is_open(how))
        others = [process for process in self.running if process is not leader]
        victims = {"leader": [leader], "other": others, "both": self.running}.get(how, [])
        for process in victims:
            kill(process.pid)
        killed_at = time.monotonic()
        for process in victims:
            process.wait(60)
        until(lambda: any(process.poll() is not None for process in self.running))
        if how not in ("other", "both"):
            self._await_takeover(before, killed_at)
        self.running = [one for one in self.running if one.poll() is None]
        while len(self.running) < 2:
            self.running.append(self._another())
        self.counts[how] += 1

    def freeze(self, *, at_point):
        """The one that leads stands still, anywhere or just before a hand-off; gives it when another one leads."""
        before = self._term()
        leader = self._leader()
        if at_point:
            self.orders.give(POINTS[0], FROZEN)
            until(lambda: not self.orders.is_open(POINTS[0]))
        else:
            kill(leader.pid, signal.SIGSTOP)
        self._await_takeover(before, time.monotonic())
        self.counts[POINTS[0] if at_point else "anywhere"] += 1
        return leader

    def _term(self):
        return self.client.get(self.keys.term("dispatcher"))

    def _leader(self):
        """The one that leads now; leases are named by their holder's pid."""

        def led():
            holder = (self.client.get(self.keys.leader("dispatcher")) or b"").decode()
            return [one for one in self.running if holder.split("-")[-2:-1] == [str(one.pid)]]

        return until(led)[0]

    def _await_takeover(self, before, killed_at):
        """The other one leads, under a later term."""
        try:
            until(lambda: self._term() != before, every=0.01)
        except AssertionError:
            said = [
                f"{one.pid} ({one.poll()}): {one.log.read_text()[-2_000:]}" for one in self.running
            ]
            raise AssertionError("\n".join(["nobody took over", *said])) from None
        self.takeovers.append(round(1_000 * self.stack.awake.since(killed_at)))

    def told(self):
        """A lease lasts as long as a guess takes, and whoever stands by asks for it three times in that while."""
        allowed = self.stack.budgets.guess_ms * 4 // 3 + TAKING_MS
        late = share(self.takeovers, 0.99)
        assert late is None or late <= SLACK * allowed, f"{late} ms until another one led"
        return {
            "struck": dict(self.counts.most_common()),
            "takeover_ms": {
                "of": len(self.takeovers),
                "p50": share(self.takeovers, 0.5),
                "p99": late,
                "allowed": allowed,
            },
        } | self.stack.awake.told()
