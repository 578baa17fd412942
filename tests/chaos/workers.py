"""Workers that are killed, in part or whole, at any moment of their jobs."""

from __future__ import annotations

from tests.chaos.checks import all_hold
from tests.chaos.run import row
from tests.chaos.stack import children, kill


@row("kill-workers", long=200, short=12)
def kill_workers(run):
    """kill -9 of worker parent, of horse, of both, at random points: nothing lost, nothing twice."""
    with run.stack() as stack:
        stack.serve()
        for node in ("node-a", "node-b"):
            stack.worker("work", node=node, slots=2)
        watcher = stack.broker.watch()
        watcher.snapshot()
        keys = [
            job.key
            for job in stack.broker.submit_many("work", [0.2] * (run.count * 10), attempts=20)
        ]
        for _ in run.turns("kills"):
            parents = stack.parents()
            if parents:
                parent = run.chance.choice(parents)
                horses = children(parent)
                which = run.chance.choice(("parent", "horse", "both"))
                for pid in [parent] * (which != "horse") + horses * (which != "parent"):
                    kill(pid)
            stack.broker.store.client.ping()
            run.pause(0.05, 0.6)
        all_hold(stack, keys, watcher)
        watcher.close()
        return {"jobs": len(keys)}
