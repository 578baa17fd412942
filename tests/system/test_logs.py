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


def test_rq_tells_only_what_is_wrong():
    statement = (
        "rq = logging.getLogger('rq.worker'); rq.info('three lines a job'); rq.warning('odd')"
    )
    [line] = said("text", statement)
    assert "odd" in line
