"""The benchmark runs and names its figures; how fast anything is, is no matter of a test."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

from broker.store.store import Store
from tests.store.readers import Desk
from tests.system.scripts import ROOT, SCRIPTS, load

tools = load("_bench", "tools")
listener = load("_bench", "listener")

#: What is done while the longest call of Redis is looked for.
LONGEST = (
    "snapshot", "list", "find", "overview", "audit", "sweeper", "dispatcher", "report", "cancel", "due",
    "remove_pair", "janitor",
)  # fmt: skip
NAMES = [
    "record_bytes", "record_bytes_used", "entry_bytes", "entry_bytes_used", "job_bytes_used",
    "merge_to_five", "merge_to_xadd", "merge_to_single",
    "merge_rate", "five_rate", "xadd_rate", "single_rate", "apply_rate", "merge_cpu", "five_cpu",
    "snapshot_to_hgetall", "snapshot_ms", "hgetall_ms",
    "removal_growth", "removal_at_1e3", "removal_at_1e5",
    "help_to_bare", "show_to_bare", "bare_ms", "help_ms", "show_ms",
    "jobs_to_rq", "jobs_rate", "rq_rate", "start_latency_ms",
    *(f"{who}{what}" for who in ("watch", "readers", "sse", "row")
      for what in ("_to_xread", "_ms", "_to_xread_p99", "_p99_ms", "_after_ms")),
    "xread_ms", "xread_p99_ms",
    "http_list_to_python_1e3", "http_list_to_python_1e4", "http_list_1e3_ms", "http_list_1e4_ms",
    "python_list_1e4_ms", "metrics_ms",
    *(f"longest_{what}_ms" for what in LONGEST),
]  # fmt: skip
#: What `--quick` leaves out.
LARGE = {"removal_growth", "removal_at_1e5", *(f"longest_{what}_ms" for what in LONGEST)}
#: What needs a browser, which not every machine has.
PAINTED = {name for name in NAMES if name.startswith("row_")}


@pytest.mark.timeout(1000)
def test_quick_json_gives_every_figure_by_name() -> None:
    argv = [sys.executable, str(SCRIPTS / "_bench"), "--quick", "-o", "json"]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    ran = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=900, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    found = json.loads(ran.stdout)
    assert [figure["name"] for figure in found] == NAMES
    for figure in found:
        assert list(figure) == ["name", "value", "q1", "q3", "goal", "unit", "n"]
        if figure["name"] in LARGE or (figure["name"] in PAINTED and not shutil.which("chromium")):
            assert (figure["value"], figure["n"]) == (None, 0)
        else:
            assert figure["q1"] <= figure["value"] <= figure["q3"]
            # One may hear of it before its sender has read the answer, and two processes read Redis's clock apart.
            between_two = (
                figure["name"].endswith("_after_ms") or figure["name"] == "start_latency_ms"
            )
            assert figure["value"] > 0 or between_two


def test_a_bare_listener_outlives_a_sender_that_stands_still(
    store: Store, redis_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "WAIT_MS", 1)
    desk = Desk(store, listener.ORIGIN)
    desk.report("first")
    with listener.bare(redis_url, namespace, "") as wait:
        assert wait() == 0
        desk.report("second")
        assert wait() == 1


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
