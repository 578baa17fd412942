"""The worker's way from a hand-off to its end, with an attempt that follows a script."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from workers import worker as workers
from workers.worker import Worker


class Script:
    """An attempt: `does` tells what each of its steps raises or gives."""

    key = "k"

    def __init__(self, **does):
        self.does, self.closed = does, []

    def step(self, name):
        answer = self.does.get(name)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def start(self, stopped):
        return self.step("start")

    def close(self, **how):
        self.closed.append(how)
        if len(self.closed) == 1:
            self.step("close")


@pytest.fixture
def execute(monkeypatch):
    """Execute a hand-off with a scripted attempt."""
    made = Worker.__new__(Worker)
    made.name, made._stop_requested, forgotten = "w", False, []
    made.post = SimpleNamespace(namespace="", node="", spec=SimpleNamespace(name=""), broker=None)
    made.pulse = made._attempt = None
    monkeypatch.setattr(made, "forget", lambda job, queue: forgotten.append(job))

    def run(script):
        job = workers.Handoff.__new__(workers.Handoff)
        job.refusal, job.names = "", object()
        monkeypatch.setattr(job, "misplaced", lambda *of: "")
        monkeypatch.setattr(workers, "Attempt", lambda *of: script)
        monkeypatch.setattr(workers.NotingWorker, "execute_job", lambda *of: script.step("run"))
        try:
            made.execute_job(job, None)
        finally:
            assert len(forgotten) == 1
            assert made._attempt is None

    return run


def test_an_attempt_that_did_not_start_is_closed(execute):
    """Its start may have been heard."""
    script = Script(start=False)
    execute(script)
    assert script.closed == [{}]


@pytest.mark.parametrize("when", ["start", "run", "close"])
def test_an_order_to_end_at_once_closes_the_attempt_wherever_it_comes(execute, when):
    script = Script(**{"start": True, when: SystemExit(1)})
    with pytest.raises(SystemExit):
        execute(script)
    assert script.closed[-1] == {"cold": True}


def test_a_failure_of_the_worker_is_told_and_the_worker_goes_on(execute):
    failed = OSError("no process left")
    script = Script(start=True, run=failed)
    execute(script)
    assert script.closed == [{"failed": failed}]
