"""A whole fleet for the demo, in a private folder: `broker up` as a child that cannot outlive us."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Self

from broker import Broker, BrokerError
from broker.config import running_up
from broker.store.leash import leashed

HERE = Path(__file__).resolve().parent
START_SECONDS_MAX = 180.0
#: How long jobs in hand may go on when it ends early, and how long the end may take.
GRACE_SECONDS = 2.0
STOP_SECONDS_MAX = 20.0


class Failed(Exception):
    """The demo cannot go on; the text says why in one line."""


def isolate(data: Path) -> None:
    """Make this process, and all that it starts, forget the user's own broker: its settings, its data, its Redis."""
    for name in list(os.environ):
        if name.startswith("BROKER_") or name in ("REDIS_URL", "REDIS_URL_FILE"):
            del os.environ[name]
    os.environ["XDG_DATA_HOME"] = str(data)
    os.environ["BROKER_CONFIG"] = str(HERE / "demo.toml")


def command(*words: str) -> list[str]:
    """The command line `broker ...`, run by this very Python."""
    return [sys.executable, "-P", "-m", "broker.cli", *words]


class Fleet:
    """`with Fleet(engines, nodes=2) as fleet`: ready when so many nodes have workers for all the engines."""

    def __init__(self, engines: set[str], nodes: int) -> None:
        self._wanted = engines
        self._nodes_count = nodes
        self.data = Path(tempfile.mkdtemp(prefix="fleet-broker-demo-"))
        self._log = self.data / "up.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._broker: Broker | None = None
        self.nodes: list[str] = []

    @property
    def broker(self) -> Broker:
        """A client of the fleet."""
        assert self._broker
        return self._broker

    def __enter__(self) -> Self:
        try:
            isolate(self.data)
            self._start()
            self._wait_until_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        # Whoever asked once for the end gets all of it: a second Ctrl-C must not leave half a fleet behind.
        for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(name, signal.SIG_IGN)
        if self._broker:
            self._broker.close()
        if self._process:
            self._stop(self._process)
        shutil.rmtree(self.data, ignore_errors=True)

    def check(self) -> None:
        """Raise Failed where the fleet has ended by itself."""
        assert self._process
        if self._process.poll() is not None:
            raise Failed(f"broker up ended by itself: {self._last_words()}")

    # --- inside -----------------------------------------------------------------------------------

    def _start(self) -> None:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                leashed(
                    command("up", "--import", "demo_engines", "--listen", "off"), signal.SIGTERM
                ),
                cwd=HERE,  # where demo_engines is found
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us: we end it, in order
            )

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._is_ready():
            self.check()
            if time.monotonic() > deadline:
                raise Failed(
                    f"the fleet is not up after {START_SECONDS_MAX:.0f} s: {self._last_words()}"
                )
            time.sleep(0.05)

    def _is_ready(self) -> bool:
        if self._broker is None:
            up = running_up()
            if up is None:
                return False
            self._broker = Broker.from_url(up["url"])
        offers: dict[str, set[str]] = {}
        with contextlib.suppress(BrokerError):
            for worker in self._broker.workers():
                offers.setdefault(worker.node, set()).add(worker.engine)
        self.nodes = sorted(node for node, engines in offers.items() if engines >= self._wanted)
        return len(self.nodes) >= self._nodes_count

    def _stop(self, process: subprocess.Popen[bytes]) -> None:
        for seconds in (GRACE_SECONDS, STOP_SECONDS_MAX):  # the second order ends the jobs in hand
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
                return
        print("demo: broker up did not end: killed", file=sys.stderr)
        process.kill()  # all that it started dies with it
        process.wait()

    def _last_words(self) -> str:
        said = self._log.read_text(errors="replace").strip()
        return said.rsplit("\n", 1)[-1] or "it said nothing"
