"""All roles of a broker process: listed here, and nowhere else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from broker.roles.announcer import Announcer
from broker.roles.auditor import Auditor
from broker.roles.chronicle import Chronicle
from broker.roles.dispatcher import Dispatcher
from broker.roles.janitor import Janitor
from broker.roles.loop import Loop, Turns
from broker.roles.sweeper import Sweeper
from broker.rules.bounds import Bounds
from broker.rules.liveness import Budgets
from broker.store.connection import check_version
from broker.store.store import Store

#: How often the announcer looks for what waits: it is told by whoever changed it, unless Redis was away.
ANNOUNCER_SECONDS = 1.0
#: How often the sweeper looks who fell silent.
SWEEPER_SECONDS = 0.25
#: How long the auditor rests between two pieces: nothing is urgent, and the others share its process.
AUDITOR_SECONDS = 0.05
#: How long the roles may take to end their last steps and to give up their leads, in seconds: a call that Redis does
#: not answer takes nine. What it still owes them then is given up.
END_SECONDS_MAX = 20.0


@dataclass(frozen=True, slots=True)
class Role:
    """A role as the loop runs it."""

    name: str
    step: Callable[[], int]
    close: Callable[[], None] = lambda: None
    bell: Callable[[float], bool] | None = None
    pace_seconds: float = 0.2


def roles(store: Store, budgets: Budgets, bounds: Bounds, trust_dir: Path | None) -> list[Role]:
    """Every role that there is. Any number of processes may run them: each role has one leader.

    But for the announcer, which is each node's own; there is none without a `trust_dir`.
    """
    dispatcher = Dispatcher(store, budgets=budgets)
    janitor = Janitor(store, bounds=bounds, budgets=budgets)
    sweeper = Sweeper(store, budgets=budgets)
    auditor = Auditor(store, bounds=bounds, budgets=budgets)
    chronicle = Chronicle(store, budgets=budgets)
    led = [
        Role("dispatcher", dispatcher.step, dispatcher.close, dispatcher.bell),
        Role("janitor", janitor.step, janitor.close),
        Role("sweeper", sweeper.step, sweeper.close, pace_seconds=SWEEPER_SECONDS),
        Role("auditor", auditor.step, auditor.close, pace_seconds=AUDITOR_SECONDS),
        Role("chronicle", chronicle.step, chronicle.close),
    ]
    if trust_dir is None:
        return led
    announcer = Announcer(store, trust_dir, announcements_max=bounds.announcements_max)
    return [*led, Role("announcer", announcer.step, pace_seconds=ANNOUNCER_SECONDS)]


@contextmanager
def open_store(url: str, namespace: str = "broker") -> Iterator[Store]:
    """A store on a server that is new enough. Raises Unavailable; Misconfigured, naming what is too old."""
    with closing(Store.from_url(url, namespace)) as store:
        check_version(store.client)
        yield store


def run_roles(
    store: Store,
    stop: threading.Event,
    budgets: Budgets | None = None,
    bounds: Bounds | None = None,
    trust_dir: Path | None = None,
    turns: Turns | None = None,
) -> None:
    """Run every role, each on a thread of its own, until `stop` is set; then give up their leads.

    `turns` is told of each turn of theirs. Sets `stop` itself where a role ended for good, and raises: a broker that
    lost one must not look alive.
    """
    ended: list[str] = []

    def run(role: Role) -> None:
        try:
            Loop(
                role.name,
                role.step,
                stop,
                pace_seconds=role.pace_seconds,
                bell=role.bell,
                turns=turns,
            ).run()
        finally:
            if not stop.is_set():
                ended.append(role.name)
                stop.set()
            role.close()  # here: of a Redis that hangs, all wait together, and not one after the other

    running = roles(store, budgets or Budgets(), bounds or Bounds(), trust_dir)
    threads = [
        threading.Thread(target=run, args=(role,), name=role.name, daemon=True) for role in running
    ]
    for thread in threads:
        thread.start()
    stop.wait()
    until = time.monotonic() + END_SECONDS_MAX
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    if ended:
        raise RuntimeError(f"the {ended[0]} ended by itself")
