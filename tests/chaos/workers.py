"""Workers that are killed, in part or whole, at any moment of their jobs, and their supervisors with them."""

from __future__ import annotations

import time
from collections import Counter

from tests.chaos.checks import all_hold, all_registered_live, every_slot_serves
from tests.chaos.dying import BOTH, OF_HORSE, OF_WORKER, PARENT, SELF, Orders
from tests.chaos.run import row
from tests.chaos.stack import ENGINES, children, family, kill, runs, until
from tests.chaos.timing import LOOKS_MIN, Delays, Eyes, Fair, Kill, Tale, now_ms

NODES = ("node-a", "node-b", "node-c")
#: Jobs for each kill, and how long they work, in seconds.
JOBS, SHORTEST, LONGEST = 10, 0.1, 1.2


@row("kill-workers", long=200, short=6)
def kill_workers(run):
    """kill -9 of worker parent, horse, both, or a whole supervisor: nothing lost, nothing twice, and all in time."""
    is_long = run.count > 50
    with run.stack() as stack, Eyes(stack) as eyes, stack.broker.watch() as watcher:
        stack.serve()
        hunt = Hunt(run, stack, eyes, slots=3 if is_long else 2)
        watcher.snapshot()
        for _ in run.turns("kills"):
            hunt.total += JOBS
            hunt.work(run.chance.uniform(0, 0.8))
            hunt.rally(missing=hunt.slots - 1)  # those of a node, and one more, are never most
            hunt.strike()
        until(lambda: hunt.feed() >= hunt.total, 900)
        records = all_hold(stack, hunt.keys, watcher)
        if is_long:
            every_slot_serves(stack, "work", hunt.slots * len(NODES))
            all_registered_live(stack)
        return hunt.told(records, part=0.99 if is_long else 0.5)


@row("kill-workers-real", long=10, short=1)
def kill_workers_at_real_budgets(run):
    """The same at the budgets of everybody: doubt in 3 s, running elsewhere in about 16 s."""
    run.beat_ms = 1_000
    with run.stack() as stack, Eyes(stack) as eyes, stack.broker.watch() as watcher:
        stack.serve()
        hunt = Hunt(run, stack, eyes, slots=1)
        watcher.snapshot()
        for _ in run.turns("kills"):
            keys = [job.key for job in stack.broker.submit_many("work", [2.0] * 2, attempts=20)]
            hunt.keys += keys
            until(lambda keys=keys: all(one.holder for one in stack.broker.view.get_many(keys)))
            hunt.kill_one(run.chance.choice(("parent", "both")))
            stack.ended(keys, 60)
        records = all_hold(stack, hunt.keys, watcher)
        return hunt.told(records, part=1)


class Hunt:
    """A fleet under work, and what was killed of it."""

    def __init__(self, run, stack, eyes, *, slots):
        self.chance, self.stack, self.eyes, self.slots = run.chance, stack, eyes, slots
        self.orders = Orders(stack.folder / "orders")
        self.imports = (ENGINES, "tests.chaos.dying_worker")
        started = stack.workers(["work"], NODES, slots=slots, imports=self.imports)
        self.supervisors = dict(zip(NODES, started, strict=True))
        self.total = 0  #: of jobs to submit so far
        self.keys, self.kills, self.counts = [], [], Counter()

    # --- work -----------------------------------------------------------------------------------

    def feed(self):
        """A job for each worker but one, so that a job given up finds a free slot; gives how many there were."""
        free = len(self.stack.beating()) - 1 - self.eyes.busy()
        count = min(free, self.total - len(self.keys))
        if count > 0:
            works = [self.chance.uniform(SHORTEST, LONGEST) for _ in range(count)]
            made = self.stack.broker.submit_many("work", works, attempts=20)
            self.keys += [job.key for job in made]
        return len(self.keys)

    def work(self, seconds):
        """Let the fleet work."""
        end_at = time.monotonic() + seconds
        while time.monotonic() < end_at:
            self.feed()
            time.sleep(0.02)

    def rally(self, missing):
        """Wait until all but so many workers beat: were most of them silent together, nobody would be judged."""
        fleet = self.slots * len(NODES)
        until(lambda: self.feed() and len(self.stack.beating()) >= fleet - missing, 90)

    # --- damage ---------------------------------------------------------------------------------

    def strike(self):
        how = self.chance.choices(("moment", "point", "supervisor"), (5, 5, 1))[0]
        if how == "supervisor":
            self.kill_supervisor()
        elif how == "point":
            self.kill_at_point()
        else:
            self.kill_one(self.chance.choice(("parent", "horse", "both")))

    def kill_one(self, which):
        """At whatever it does now; a worker that has no horse is only a parent."""
        names = {seen.pid: seen.name for seen in until(self.stack.beating)}
        parent = self.chance.choice([pid for pid in names if children(pid)] or list(names))
        horses = children(parent)
        which = which if horses else "parent"
        if which != "horse":
            self.kills.append(Kill(now_ms(), worker=names[parent]))
        for pid in [parent] * (which != "horse") + horses * (which != "parent"):
            kill(pid)
        self.counts[which] += 1

    def kill_at_point(self):
        """At a point of a job's life that is too short to be hit from outside."""
        point = self.chance.choice(OF_WORKER + OF_HORSE)
        who = self.chance.choice((SELF, PARENT, BOTH)) if point in OF_HORSE else SELF
        self.orders.give(point, who)
        self.total += JOBS  # somebody has to come by
        until(lambda: self.feed() and not self.orders.is_open(point))
        self.total -= JOBS
        self.counts[f"{point}: {who}" if point in OF_HORSE else point] += 1

    def kill_supervisor(self):
        """Its workers die with it (by the kernel's hand), and their horses with them: none is left behind."""
        self.rally(missing=1)
        node = self.chance.choice(NODES)
        supervisor = self.supervisors[node]
        pids, workers = family(supervisor.pid), self.stack.slots(supervisor)
        self.kills += [Kill(now_ms(), worker=worker.name) for worker in workers]
        kill(supervisor.pid)
        supervisor.wait()
        until(lambda: not any(map(runs, pids)))
        [self.supervisors[node]] = self.stack.workers(
            ["work"], [node], slots=self.slots, imports=self.imports, wait=False
        )
        self.counts["supervisor"] += 1

    # --- what came of it ------------------------------------------------------------------------

    def told(self, records, part):
        """Counts and delays; each job was completed, or was poison by three deaths."""
        poison = [record for record in records.values() if record.reason == "poison"]
        assert all(record.deaths >= 3 for record in poison), poison
        others = [one for one in records.values() if one.reason != "poison"]
        assert all(record.state == "completed" for record in others), "some failed"
        since = time.time() - time.monotonic()
        deaths = {
            Kill(round(1_000 * (since + effect.at)), "", effect.key, effect.attempt): effect.what
            for effect in self.stack.effects.read()
            if effect.what.startswith("died-")
        }
        fair = Fair(self.stack)
        tale, delays = Tale(self.stack.broker, "desk", fair), Delays(self.stack.budgets)
        found = tale.fates([*self.kills, *deaths], self.eyes.doubted)
        unseen = [fate for fate in found if fate.guessed is None]
        assert not unseen, f"killed at work, and nobody judged: {unseen}"
        delays.add_fates(found)
        seen = [fate for fate in found if fate.doubted is not None]
        # Nobody could look between the two where the machine stood still: set aside, but never most of them.
        aside = [fate for fate in found if fate.doubted is None and fate.looks < LOOKS_MIN]
        assert len(aside) <= max(1, len(found) / 2), f"the machine stood still too often: {found}"
        # Of a handful one may be missed: whoever looks may be late by the little time between the two.
        least = part * (len(found) - len(aside)) - (part < 1)
        assert len(seen) >= least, f"guessed before a list showed doubt: {found}"
        taken = [death for death, what in deaths.items() if what == "died-taken"]
        for late in tale.handed(taken, self.eyes.came, self.stack.budgets):
            delays.add("handed", late)
        told = {
            "jobs": len(records),
            "killed": dict(self.counts.most_common()),
            "poison": len(poison),
            "at work": len(found),
            "doubt set aside, for the machine stood still then": len(aside),
            "braked": sum(
                process.log.read_text().count("fell silent together")
                for process in self.stack.processes
            ),
        } | delays.told()
        told |= self.stack.awake.told()
        try:
            delays.hold(part)
        except AssertionError as late:
            raise AssertionError(f"{late}; {told}") from None
        return told
