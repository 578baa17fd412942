"""What an operator says of a node that works, with real roles and a real worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker import Broker
from tests.system.command import PATIENCE_MS
from tests.system.machine import Machine
from tests.workers.fleet import until

HOLDING = """
import time
from pathlib import Path
from workers import engine

@engine("hold")
def hold(ctx, payload):
    while not Path(payload).exists():
        time.sleep(0.05)
"""


@pytest.fixture
def url(redis_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of all that is run here: a worker that stands still for a moment is no silent one."""
    monkeypatch.setenv("BROKER_NAMESPACE", namespace)
    here = {"REDIS_URL": redis_url, "BROKER_NAMESPACE": namespace, "BROKER_NODE": "desk"}
    return here | {"BROKER_BUDGETS__SUSPECT_MS": str(PATIENCE_MS)}


@pytest.fixture
def machine(tmp_path: Path, url: dict[str, str], broker: Broker) -> Iterator[Machine]:
    """A fleet of one node with one slot, whose jobs run until the test lets them go."""
    made = Machine(tmp_path)
    (tmp_path / "holding.py").write_text(HOLDING)
    made.start("serve", "--allow-volatile", **url)
    words = ("--node", "gpu-1", "--import", "holding")
    made.start("worker", *words, **url)
    until(broker.workers)
    yield made
    made.close()


def test_a_drained_node_ends_what_it_has_and_gets_nothing_until_it_is_resumed(
    machine: Machine, url: dict[str, str], broker: Broker, tmp_path: Path
) -> None:
    letting = tmp_path / "go"
    first = broker.submit("hold", str(letting))
    until(lambda: first.record().state == "running")
    code, said = machine.run("node", "drain", "gpu-1", **url)
    assert code == 0
    assert "running there: 1, left to end" in said
    second = broker.submit("hold", str(letting))
    letting.touch()
    assert first.wait(60).state == "completed"
    until(lambda: not any(worker.job for worker in broker.workers()))
    assert (second.record().state, second.record().node) == ("queued", "")
    assert "drained or dead (gpu-1)" in machine.run("why", second.key, **url)[1]
    assert machine.run("node", "resume", "gpu-1", **url) == (
        0,
        "gpu-1 is like any other again\n",
    )
    assert second.wait(60).state == "completed"


def test_a_node_called_dead_that_lives_is_told_and_ends_what_it_runs(
    machine: Machine, url: dict[str, str], broker: Broker, tmp_path: Path
) -> None:
    """For longer than a silent node would be waited for."""
    job = broker.submit("hold", str(tmp_path / "go"))
    until(lambda: job.record().state == "running")
    code, said = machine.run("node", "dead", "gpu-1", **url)
    assert code == 0
    assert "still beats" in said
    begun, patience = broker.store.clock.now(), 2 * broker.config.budgets.guess_ms
    until(lambda: broker.store.clock.now() > begun + patience)
    (tmp_path / "go").touch()
    record = job.wait(60)
    assert (record.state, record.tries, record.attempt) == ("completed", 1, 1)
    rules = [entry.rule for entry in broker.log("desk").read()]
    assert rules == ["submitted", "placed", "started", "finished"]
