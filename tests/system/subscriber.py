"""Subscribers for tests: a ledger of what a handler was told, and one in a process of its own, to be killed.

Run as a program it subscribes, appends a line to a file for each event before its handler returns, and dies in the
middle of the events that it is told to die of.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

from broker import Broker, settings
from broker.rules.liveness import Budgets
from broker.subscriptions.member import Member
from broker.subscriptions.subscription import Subscription
from tests.store.readers import Desk, until

ROOT = Path(__file__).parents[2]


def desk_of(broker, origin="desk"):
    return Desk(broker.store, origin)


def broker_with(store, namespace, lease_ms):
    """A client whose leases are short."""
    budgets = Budgets(guess_ms=lease_ms)
    return Broker(store, settings(namespace=namespace, node="desk", budgets=budgets))


def subscribed(broker, name, handler, **more):
    """A subscription that retries at once."""
    member = Member(broker.store, broker.config, name, handler, **{"chance": lambda: 0.0} | more)
    return Subscription(member)


class Ledger:
    """A handler that keeps what it was told; it fails, or waits, where it is told to."""

    def __init__(self, fails=(), blocks=()):
        self.told = []
        self.fails = set(fails)
        self.blocks = set(blocks)
        self.go = threading.Event()

    def __call__(self, delivery):
        self.told.append(delivery)
        if delivery.id in self.blocks:
            assert self.go.wait(600)
        if delivery.id in self.fails:
            raise ValueError(f"not {delivery.id}")

    @property
    def ids(self):
        return [one.id for one in self.told]

    def revs(self, origin="desk"):
        return [one.rev for one in self.told if one.origin == origin]

    def has(self, count):
        """Wait until it was told so much; what it was told."""
        until(lambda: len(self.told) >= count)
        return self.told

    def reaches(self, id):
        """Wait until it was told of this one: however long that takes, as long as it is told of others."""
        count = 1
        while self.has(count)[count - 1].id != id:
            count += 1


def log_revs(broker, origin="desk"):
    return [rev.decode() for rev, _ in broker.store.client.xrange(broker.store.keys.of(origin).log)]


def sub(broker, group, origin="desk"):
    """The subscription's hash, as text."""
    found = broker.store.client.hgetall(broker.store.keys.of(origin).sub(group))
    return {name.decode(): value.decode() for name, value in found.items()}


def hold_on(broker, group, *others, origin="desk"):
    """Time passes, for ten leases and more, but never so much at once that a lease could lapse that is renewed.

    However long this machine stands still. The group's others look at each moment whether there is something to take.
    """
    clock, lease_ms = broker.store.clock, broker.config.budgets.guess_ms
    for _ in range(20):
        clock.ahead_ms += lease_ms * 2 // 3
        until(lambda: int(sub(broker, group, origin)["until"]) == clock.now() + lease_ms)
        for other in others:
            until(lambda other=other: other._member._leases.look_at > clock.now())


class Line(NamedTuple):
    origin: str
    rev: str
    id: str
    term: int
    tries: int
    pid: int


class Process:
    """A subscriber in a process of its own."""

    def __init__(self, broker, url, group, file, *deadly):
        self.file = file
        environment = os.environ | {
            "PYTHONPATH": str(ROOT),
            "BROKER_BUDGETS__GUESS_MS": str(broker.config.budgets.guess_ms),
        }
        words = [url, broker.config.namespace, group, str(file), *deadly]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.system.subscriber", *words], cwd=ROOT, env=environment
        )
        self.pid = self.process.pid

    @property
    def lines(self):
        return lines(self.file)

    @property
    def mine(self):
        return [line for line in self.lines if line.pid == self.pid]

    def kill(self):
        self.process.kill()
        self.process.wait()


def lines(file):
    """What was written whole."""
    text = file.read_text() if file.exists() else ""
    whole = [line.split() for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return [Line(*words[:3], *map(int, words[3:])) for words in whole]


def main(url, namespace, group, file, *deadly):
    out = os.open(file, os.O_APPEND | os.O_CREAT | os.O_WRONLY)

    def handler(told):
        time.sleep(0.003)  # whoever kills it in the middle may be late
        line = f"{told.origin} {told.rev} {told.id} {told.term} {told.tries} {os.getpid()}\n"
        os.write(out, line.encode())
        if told.id in deadly:
            os._exit(7)
        time.sleep(0.003)

    with (
        Broker.from_url(url, namespace=namespace, node="desk") as broker,
        broker.subscribe(group, handler) as subscription,
    ):
        subscription.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
