"""The benchmark runs and names its figures; how fast anything is, is no matter of a test."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.system.scripts import ROOT, SCRIPTS, load

tools = load("_bench", "tools")

NAMES = [
    "record_bytes", "record_bytes_used", "entry_bytes", "entry_bytes_used", "job_bytes_used",
    "merge_to_five", "merge_to_xadd", "merge_to_single",
    "merge_rate", "five_rate", "xadd_rate", "single_rate", "apply_rate", "merge_cpu", "five_cpu",
    "snapshot_to_hgetall", "snapshot_ms", "hgetall_ms",
    "removal_growth", "removal_at_1e3", "removal_at_1e5",
    "help_to_bare", "show_to_bare", "bare_ms", "help_ms", "show_ms",
    "jobs_to_rq", "jobs_rate", "rq_rate", "start_latency_ms",
]  # fmt: skip
#: What `--quick` leaves out.
LARGE = {"removal_growth", "removal_at_1e5"}


@pytest.mark.timeout(300)
def test_quick_json_gives_every_figure_by_name() -> None:
    argv = [sys.executable, str(SCRIPTS / "_bench"), "--quick", "-o", "json"]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    ran = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=280, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    found = json.loads(ran.stdout)
    assert [figure["name"] for figure in found] == NAMES
    for figure in found:
        assert list(figure) == ["name", "value", "q1", "q3", "goal", "unit", "n"]
        if figure["name"] in LARGE:
            assert (figure["value"], figure["n"]) == (None, 0)
        else:
            assert figure["q1"] <= figure["value"] <= figure["q3"]
            assert figure["value"] > 0


def test_a_goal_is_met_by_the_median() -> None:
    values = [1.0, 2.0, 9.0]
    assert tools.Row("a", values, "x", "", ">= 2").met is True
    assert tools.Row("a", values, "x", "", "<= 1.9").met is False
    assert tools.Row("a", values, "x", "").met is None
    assert tools.Row("a", [], "x", "", ">= 2").met is None


def test_slices_of_a_turn_are_shuffled_the_same_way_each_time() -> None:
    def order() -> str:
        called: list[str] = []
        slices = {name: lambda _, name=name: float(called.append(name) or 0) for name in "abcd"}
        tools.in_turns(slices, 2)
        return "".join(called)

    first = order()
    assert sorted(first) == sorted(3 * "abcd")  # one turn to warm up
    assert first == order()
    assert len({first[0:4], first[4:8], first[8:12]}) == 3
