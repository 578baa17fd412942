"""`broker serve` as a process of its own, at an address that stays the same when it is started again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import httpx

from tests.system.command import ROOT, until


class ServeProcess:
    """Started and killed by a test as often as it likes."""

    def __init__(self, redis_url: str, namespace: str, port: int, folder: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._env = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "REDIS_URL": redis_url,
            "BROKER_NAMESPACE": namespace,
            "BROKER_NODE": "desk",
            "BROKER_LISTEN": f"127.0.0.1:{port}",
            "BROKER_TRUST_DIR": str(folder / "trust"),
        }
        self._log = folder / "serve.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        argv = [sys.executable, "-m", "broker.cli", "serve", "--allow-volatile"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(argv, env=self._env, stdout=log, stderr=log)
        until(self._is_up, 180)

    def kill(self) -> None:
        """As a power cut does: no goodbye."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _is_up(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()
        try:
            return httpx.get(f"{self.url}/livez", trust_env=False).status_code == 200
        except httpx.TransportError:
            return False
