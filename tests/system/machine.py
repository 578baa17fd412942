"""A machine with `broker up` and `broker serve` on it, as a user starts and kills them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from broker import Broker
from tests.workers.fleet import alive, until

ROOT = Path(__file__).parents[2]


def family(pid):
    """The process, and all that it started, and so on."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def command_of(pid):
    """The command line of a process, empty where it is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


class Machine:
    """A home folder, and what runs in it. Nothing of the tester's own environment is seen there."""

    def __init__(self, folder):
        self.home = folder
        self.data = folder / "fleet-broker"
        self.started = []
        self.pids = set()

    def environment(self, **more):
        mine = {n: v for n, v in os.environ.items() if not n.startswith(("BROKER_", "REDIS_"))}
        paths = {"XDG_DATA_HOME": str(self.home), "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        # Each `serve` and `up` would want the same port: who tests HTTP names one.
        return mine | paths | {"BROKER_LISTEN": "off"} | more

    def start(self, *words, **more):
        log = self.home / f"log-{len(self.started)}"
        with log.open("w") as out:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "broker.cli", *map(str, words)],
                cwd=self.home,
                env=self.environment(**more),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        process.log = log
        self.started.append(process)
        return process

    def run(self, *words, **more):
        """Exit code, and all that was said."""
        process = self.start(*words, **more)
        return process.wait(100), process.log.read_text()

    def up(self, *words, nodes=2):
        """`broker up`, ready: every node has workers, and as good as always all of them."""
        process = self.start("up", "--nodes", nodes, *words)
        until(lambda: self.url() or process.poll() is not None)
        assert process.poll() is None, process.log.read_text()
        ready = process.log.read_text
        until(lambda: process.poll() is not None or "Ctrl-C" in ready())
        with self.broker() as broker:
            until(
                lambda: (
                    process.poll() is not None or len({w.node for w in broker.workers()}) == nodes
                )
            )
        assert process.poll() is None, process.log.read_text()
        self.pids |= set(family(process.pid))
        return process

    def url(self):
        """Where the running `up` says that its Redis is."""
        with suppress(OSError, ValueError):
            return json.loads((self.data / "up.json").read_text())["url"]
        return None

    def broker(self):
        return Broker.from_url(self.url(), node="desk")

    def left(self):
        """What still runs of all that was started and noted."""
        return sorted(pid for pid in self.pids if alive(pid))

    def close(self):
        for process in self.started:
            for pid in {*family(process.pid), *self.pids}:
                with suppress(ProcessLookupError, PermissionError):
                    if alive(pid):
                        os.kill(pid, signal.SIGKILL)
            process.wait()
