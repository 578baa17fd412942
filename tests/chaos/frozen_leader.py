"""A leader that freezes itself just before a write, when SIGUSR1 says so: `python -m` this, URL NAMESPACE WRITE.

Once it goes on, it prints how the write was answered.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from dataclasses import replace
from typing import NamedTuple

from broker.roles.auditor import Auditor
from broker.roles.dispatcher import Dispatcher
from broker.roles.janitor import Janitor
from broker.roles.loop import Loop
from broker.roles.sweeper import Sweeper
from broker.rules.bounds import Bounds
from broker.store.store import Store
from tests.chaos.held import Held
from tests.chaos.stack import scaled

BUDGETS = scaled(60)
BOUNDS = Bounds(log_max=2, done_max=1)


class Write(NamedTuple):
    """Who writes it, by which script; of which event, where that is the merge."""

    role: str
    script: str = "merge"
    event: str | None = None


WRITES = {
    "place": Write("dispatcher", event="place"),
    "unplace": Write("sweeper", event="unplace"),
    "guess": Write("sweeper", event="guess"),
    "requeue": Write("sweeper", event="requeue"),
    "lost": Write("sweeper", event="lost"),
    "prune": Write("janitor", event="prune"),
    "trim": Write("janitor", script="trim"),
    "repair": Write("auditor", script="repair"),
}


def make(role, store):
    """One of those who may lead it."""
    if role == "dispatcher":
        # Whoever beats for its workers does much beside, in a process of many threads.
        return Dispatcher(store, budgets=replace(BUDGETS, suspect_ms=60_000))
    if role == "sweeper":
        return Sweeper(store, budgets=BUDGETS)
    if role == "auditor":
        return Auditor(store, budgets=BUDGETS, round_seconds=0.1)
    return Janitor(store, budgets=BUDGETS, bounds=BOUNDS, round_seconds=0.0)


def main():
    url, namespace, name = sys.argv[1:]
    write = WRITES[name]
    store = Store.from_url(url, namespace)
    held = Held(store, write.script, write.event)

    def freeze():
        os.kill(os.getpid(), signal.SIGSTOP)

    def arm(*_):
        held.pause = freeze

    signal.signal(signal.SIGUSR1, arm)
    leader = make(write.role, store)
    print("up", flush=True)

    def step():
        try:
            return leader.step()
        finally:
            while held.told:
                print(json.dumps(held.told.pop(), default=bytes.decode), flush=True)

    Loop(write.role, step, threading.Event(), pace_seconds=0.01).run()


if __name__ == "__main__":
    main()
