"""The log of a process of ours: stdlib's, one line for each record, and no terminal obeys it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.workers.fleet import ROOT

CODE = (
    "from broker import set_up_logs; set_up_logs('info', {form!r}); "
    "import logging; log = logging.getLogger('workers'); "
)


def said(form, statement):
    found = subprocess.run(
        [sys.executable, "-c", CODE.format(form=form) + statement],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout == ""
    return found.stderr.splitlines()


def test_json_is_one_object_a_line():
    [line] = said("json", "log.info('job %s: started', 'a/b//1')")
    record = json.loads(line)
    assert record["event"] == "job a/b//1: started"
    assert record["level"] == "info"
    assert record["timestamp"].endswith("Z")


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_comes_from_outside_moves_no_cursor(form):
    [line] = said(form, r"log.info('job %s: started', 'a\x1b[2J\u202eb\nc')")
    assert r"\x1b[2J\u202eb\nc" in line.replace("\\\\", "\\")


CHANGE = (
    "jobs = logging.getLogger('broker.jobs'); jobs.info('job changed', extra={"
    r"'job': 'a/b//1', 'from': 'queued', 'to': 'running', 'seq': 2, 'node': 'n\x1b[2J\u202e x'})"
)


def test_a_jobs_change_is_one_line_of_names_and_values_in_their_order():
    [line] = said("text", CHANGE)
    shown = "job=a/b//1 from=queued to=running seq=2"
    assert "job changed" in line
    assert shown in " ".join(line.split())


def test_in_json_each_of_its_fields_is_one():
    [line] = said("json", CHANGE)
    record = json.loads(line)
    assert (record["event"], record["job"], record["from"], record["to"], record["seq"]) == (
        "job changed", "a/b//1", "queued", "running", 2,
    )  # fmt: skip


@pytest.mark.parametrize("form", ["text", "json"])
def test_nor_does_what_a_field_holds(form):
    [line] = said(form, CHANGE)
    assert r"n\x1b[2J\u202e x" in line.replace("\\\\", "\\")


@pytest.mark.parametrize("level, count", [("info", 0), ("warning", 0), ("debug", 1)])
def test_a_terminal_is_told_of_changes_only_where_it_asks_for_all(level, count):
    """As `broker up` does it."""
    asked = (
        f"from broker.logs import hush_jobs; set_up_logs({level!r}, 'text'); hush_jobs({level!r}); "
    )
    assert len(said("text", asked + CHANGE)) == count


def test_rq_tells_only_what_is_wrong():
    statement = (
        "rq = logging.getLogger('rq.worker'); rq.info('three lines a job'); rq.warning('odd')"
    )
    [line] = said("text", statement)
    assert "odd" in line
