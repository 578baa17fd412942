"""One process for each slot, started anew when it dies, and none left behind."""

from __future__ import annotations

import os
import signal
from collections import Counter

from tests.workers.fleet import ROOT, alive, ask_twice, until
from workers.engine import EngineSpec
from workers.main import _options, arguments
from workers.supervisor import Supervisor


def kinds(fleet, supervisor):
    return Counter(seen.engine for seen in fleet.slots(supervisor))


def test_each_engine_has_as_many_slots_as_it_says(fleet):
    supervisor = fleet.supervisor(("echo", 2), ("nap", 1))
    assert kinds(fleet, supervisor) == {"echo": 2, "nap": 1}
    names = [seen.name for seen in fleet.slots(supervisor)]
    assert len(set(names)) == 3
    assert all(len(name.encode()) <= 64 for name in names)


def test_slots_may_be_said_for_all_engines(fleet):
    supervisor = fleet.supervisor(("echo", 3), ("nap", 1), slots=1)
    assert kinds(fleet, supervisor) == {"echo": 1, "nap": 1}


def test_a_dead_slot_is_started_anew(fleet):
    supervisor = fleet.supervisor(("echo", 1))
    [first] = fleet.slots(supervisor)
    os.kill(first.pid, signal.SIGKILL)
    second = until(lambda: [seen for seen in fleet.slots(supervisor) if seen.pid != first.pid])[0]
    assert second.name != first.name
    assert fleet.run("echo", 1).state == "completed"


def test_asked_to_stop_it_waits_for_the_jobs_in_hand(fleet):
    supervisor = fleet.supervisor(("nap", 2))
    pids = [seen.pid for seen in fleet.slots(supervisor)]
    job = fleet.hand(fleet.submit("nap", 0.8))
    fleet.started(job)
    supervisor.send_signal(signal.SIGINT)
    assert supervisor.wait(180) == 0
    assert job.record().state == "completed"
    assert not any(alive(pid) for pid in pids)
    assert fleet.broker.workers() == []


def test_asked_twice_it_ends_them(fleet, tmp_path):
    heard = tmp_path / "heard"
    supervisor = fleet.supervisor(
        ("nap", 1), imports="tests.workers.telling_stop", STOP_HEARD=str(heard)
    )
    job = fleet.hand(fleet.submit("nap", 600))
    fleet.started(job)
    ask_twice(supervisor, heard)
    assert supervisor.wait(180) == 0
    assert job.record().reason == "shutdown"
    said = supervisor.log.read_text()
    assert said.index("stopping: waiting for the jobs") < said.index("stopping: told again")


def test_it_does_not_spin_while_it_waits_for_the_last_job():
    supervisor = Supervisor("n1", [EngineSpec("nap", None, slots=2)])
    supervisor._slots[0].process = "still at its job"
    supervisor._stops = 1
    assert supervisor._pause() > 1


def test_nothing_outlives_a_killed_supervisor(fleet, tmp_path):
    supervisor = fleet.supervisor(("stubborn", 2))
    pids = [seen.pid for seen in fleet.slots(supervisor)]
    mark = tmp_path / "pid"
    fleet.hand(fleet.submit("stubborn", str(mark)))
    pids.append(int(until(lambda: mark.exists() and mark.read_text())))
    supervisor.kill()
    until(lambda: not any(alive(pid) for pid in pids))


def test_a_slot_that_is_misconfigured_is_given_up(fleet):
    supervisor = fleet.supervise(("nobody", 1))
    assert supervisor.wait(180) == 1
    said = supervisor.log.read_text()
    assert "'nobody' is not known here" in said
    assert "given up" in said


def test_a_slot_has_no_folder_of_ours_and_no_working_directory_first_on_its_path(fleet):
    """There `text` or `line` would stand for somebody else's module, and a user's `workers` for ours."""
    fleet.supervisor(("path", 1))
    job = fleet.submit("path")
    fleet.finish(job)
    path = fleet.broker.result(job.key)
    assert str(ROOT / "workers") not in path
    assert "" not in path


def test_names_that_look_like_options_reach_the_slot():
    told = {"namespace": "-s", "node": "-n", "engine": "-e", "imports": ["-m"]}
    read = _options(arguments(**told, slot=1, inline=True))
    assert {name: getattr(read, name) for name in told} == told
    assert (read.slot, read.inline) == (1, True)
