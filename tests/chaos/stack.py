"""A whole fleet of real processes on a Redis of its own, under budgets scaled alike."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import fields
from pathlib import Path

from broker import Broker
from broker.config import settings
from broker.rules.liveness import Budgets
from broker.store.server import PrivateRedis
from broker.store.store import Store
from tests.chaos.awake import Awake
from tests.chaos.effects import Effects
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
COMMANDS, ENGINES = "broker.cli", "tests.chaos.engines"
#: The beat under which chaos runs, in milliseconds; all other budgets are scaled alike.
BEAT_MS = 200


def scaled(beat_ms: int = BEAT_MS) -> Budgets:
    """The default budgets, all by the same factor."""
    usual = Budgets()
    times = {
        field.name: getattr(usual, field.name) * beat_ms // usual.beat_ms
        for field in fields(Budgets)
        if field.name.endswith("_ms")
    }
    return Budgets(**times)


def until(condition, seconds=60.0, every=0.02):
    """Wait for a condition; give what it gave. The deadline catches a hang, and no slow machine."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not so within {seconds} s: {condition}"
        time.sleep(every)
    return found


def children(pid):
    """The processes that this one started and that still run."""
    with suppress(OSError):
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [int(child) for child in found]
    return []


def runs(pid):
    """Whether the process runs (one that nobody has reaped yet does not)."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def kill(pid, number=signal.SIGKILL):
    """Send a signal to a process that may be gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


class Stack:
    """Redis, `broker serve` and `broker worker` as a user starts them. `with Stack(folder) as stack:`"""

    def __init__(self, folder, *, beat_ms=BEAT_MS, **redis_options):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.budgets = scaled(beat_ms)
        self.redis = PrivateRedis(self.folder / "redis", free_port(), redis_options)
        self.effects = Effects(self.folder / "effects")
        self.awake = Awake()
        self.processes = []

    def __enter__(self):
        self.awake.start()
        self.redis.start()
        #: On its port: unlike the socket it stays the same when the server is started again.
        self.url = f"redis://127.0.0.1:{self.redis.port}"
        self.broker = self.client()
        return self

    def __exit__(self, *exc):
        for process in self.processes:
            kill(process.pid, signal.SIGCONT)
            process.terminate()
        for process in self.processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            for pid in family(process.pid):
                kill(pid)
            process.wait()
        self.broker.close()
        self.redis.stop()
        self.awake.close()

    def client(self, node="desk"):
        """A client of its own, with a node's name as its origin."""
        config = settings(redis_url=self.url, node=node, budgets=self.budgets)
        return Broker(Store.from_url(self.url, config.namespace), config)

    def environment(self):
        mine = {n: v for n, v in os.environ.items() if not n.startswith(("BROKER_", "REDIS_"))}
        budgets = {
            f"BROKER_BUDGETS__{field.name.upper()}": str(getattr(self.budgets, field.name))
            for field in fields(Budgets)
            if field.name.endswith("_ms")
        }
        paths = {
            "XDG_DATA_HOME": str(self.folder / "data"),
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "BROKER_LISTEN": "off",
            "CHAOS_EFFECTS": str(self.effects.path),
            "CHAOS_ORDERS": str(self.folder / "orders"),
        }
        return mine | budgets | paths | {"REDIS_URL": self.url}

    def start(self, *words, module=COMMANDS):
        """A command of ours, in the background."""
        log = self.folder / f"log-{len(self.processes)}-{words[0]}"
        with log.open("w") as out:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, *map(str, words)],
                cwd=self.folder,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        process.log = log
        self.processes.append(process)
        return process

    def serve(self, module=COMMANDS):
        """`broker serve`; returns when a dispatcher leads (this one, or another)."""
        process = self.start("serve", module=module)
        key = self.broker.store.keys.leader("dispatcher")
        until(lambda: process.poll() is not None or self.broker.store.client.exists(key))
        assert process.poll() is None, process.log.read_text()
        return process

    def worker(self, *engines, node="node-a", **options):
        """`broker worker`: a node's supervisor; returns when each of its slots beats."""
        [process] = self.workers(engines, [node], **options)
        return process

    def workers(self, engines, nodes, *, slots=1, inline=False, imports=(ENGINES,), wait=True):
        """The same on several nodes, all started at once."""
        named = [word for engine in engines for word in ("--engine", engine)]
        named += [word for module in imports for word in ("--import", module)]
        options = ["--inline"] if inline else []
        started = [
            self.start("worker", "--node", node, *named, "--slots", slots, *options)
            for node in nodes
        ]
        for process in started if wait else []:
            self._await_slots(process, slots * len(engines))
        return started

    def _await_slots(self, supervisor, count):
        until(lambda: supervisor.poll() is not None or len(self.slots(supervisor)) >= count)
        assert supervisor.poll() is None, supervisor.log.read_text()

    def slots(self, supervisor):
        """The workers of this supervisor that beat, as they are seen."""
        mine = children(supervisor.pid)
        return [seen for seen in self.broker.workers() if seen.pid in mine]

    def beating(self):
        """The workers that live: their processes run, and they are not in doubt."""
        parents, suspect_ms = set(self.parents()), self.budgets.suspect_ms
        seen = self.broker.workers()
        return [one for one in seen if one.silent_ms <= suspect_ms and one.pid in parents]

    def parents(self):
        """The pids of all worker parents that run."""
        return [
            pid
            for process in self.processes
            if process.poll() is None and "-worker" in process.log.name
            for pid in children(process.pid)
        ]

    def says(self, text):
        """Whether any of the processes has said this."""
        return any(text in process.log.read_text() for process in self.processes)

    def ended(self, keys, seconds=120.0):
        """Wait until each of these jobs has ended, or is gone; give their records by key."""

        def records():
            found = dict(zip(keys, self.broker.view.get_many(keys), strict=True))
            return all(record is None or record.ended for record in found.values()) and [found]

        return until(records, seconds, every=0.1)[0]


def family(pid):
    """The process, and all that it started, and so on."""
    found = [pid]
    for one in found:
        found += children(one)
    return found
