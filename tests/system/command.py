"""How the tests of the command line call it: in this process, or as a user's shell does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from broker import Broker, Holder, Key
from broker.cli import main
from broker.rules.event import Guess, Place

ROOT = Path(__file__).parents[2]


#: The fields of a record's JSON that every face shows, in order; more may follow.
RECORD_FIELDS = [
    "key", "kind", "origin", "engine", "run", "id", "state", "inferred", "desired", "node", "seq",
    "attempt", "tries", "rev", "created_at", "started_at", "completed_at", "last_seen", "error", "model",
]  # fmt: skip


#: Longer than any test takes.
PATIENCE_MS = 600_000


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


class Process(subprocess.Popen[bytes]):
    """One that a failed test ends, and does not wait for."""

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is not None:
            self.kill()
        super().__exit__(kind, *rest)


class Command:
    """`broker ...` on the test's own namespace."""

    def __init__(self, url: str, namespace: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.env = {"REDIS_URL": url, "BROKER_NAMESPACE": namespace, "BROKER_NODE": "desk"}
        self._capsys = capsys

    def __call__(self, *words: object) -> Ran:
        self._capsys.readouterr()
        code = main([str(word) for word in words])
        out, err = self._capsys.readouterr()
        assert "Traceback" not in err
        return Ran(code, out, err)

    def ok(self, *words: object) -> Ran:
        ran = self(*words)
        assert ran.code == 0, ran
        return ran

    def start(
        self, *words: object, program: Sequence[object] = ("-m", "broker.cli"), **options: Any
    ) -> Process:
        """The real entry, in a process of its own; or another program of Python's."""
        env = {**os.environ, "PYTHONPATH": str(ROOT), **self.env, **options.pop("env", {})}
        argv = [sys.executable, *map(str, (*program, *words))]
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE) | options
        return Process(argv, env=env, **pipes)

    def process(self, *words: object, stdin: bytes = b"", **options: Any) -> Ran:
        with self.start(*words, **options) as process:
            out, err = process.communicate(stdin, timeout=100)
        assert b"Traceback" not in (err or b"")
        return Ran(process.returncode, (out or b"").decode(), (err or b"").decode())


def until(condition: Callable[[], object], seconds: float = 60) -> None:
    """Wait for a condition; fail where it does not come. The deadline catches a hang, and no slow machine."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.02)


def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on who beat or looked once counts as alive for as long as a test may take, on whatever machine."""
    for budget in ("SUSPECT", "GUESS"):
        monkeypatch.setenv(f"BROKER_BUDGETS__{budget}_MS", str(PATIENCE_MS))


def waits(broker: Broker) -> bool:
    """Whether some client sleeps at Redis's door: the command has come as far as waiting."""
    return bool(broker.store.client.info("clients")["blocked_clients"])


def submit(command: Command, *words: object) -> str:
    """The key of a job that the command line handed in."""
    return command.ok("submit", "echo", *words).out.strip()


def placed(broker: Broker, key: Key, node: str = "node-a") -> None:
    event = Place(key=key, node=node, rev=broker.get(key).rev, term=1)
    assert broker.view.apply([event])[0].outcome == "applied"


def held(broker: Broker, key: Key, node: str = "node-a") -> Holder:
    """A placed and started attempt."""
    placed(broker, key, node)
    record = broker.get(key)
    made = Holder(
        broker,
        key,
        created_at=record.created_at,
        attempt=record.attempt,
        node=node,
        worker=f"{node}-w",
    )
    assert made.start().rule == "started"
    return made


def guessed(broker: Broker, key: Key) -> None:
    """A sweep's guess against a running job."""
    record = broker.get(key)
    event = Guess(
        key=key, rev=record.rev, last_seen=record.last_seen, term=1, error="node-a went offline"
    )
    assert broker.view.apply([event])[0].rule == "guess_applied"


def reported(id: str = "7", state: str = "running", **fields: object) -> dict[str, object]:
    """A report, as its origin writes it."""
    return {
        "event": "report",
        "origin": "desk",
        "engine": "ollama",
        "id": id,
        "state": state,
        "created_at": 1_700_000_000_000,
        **fields,
    }
