"""The stories that made other job lists lie, told to the model, to the script, and through the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker.jobs.reporting import report_many
from broker.rules.ledger import Ledger
from broker.rules.wire import parse_line
from broker.store.scan import scan
from broker.store.view import View

STORIES = Path(__file__).parents[2] / "scripts" / "stories"
NAMES = sorted(path.stem for path in STORIES.glob("*.jsonl") if not path.stem.endswith(".expected"))
NOW = 1_800_000_000_000


def story(name):
    """The events' lines, the answers expected, and the jobs expected in the end."""
    lines = (STORIES / f"{name}.jsonl").read_bytes().splitlines()
    *answers, end = map(json.loads, (STORIES / f"{name}.expected.jsonl").read_text().splitlines())
    assert len(answers) == len(lines)
    assert end["story"]
    return lines, answers, end["jobs"]


def job(key, record):
    return {"key": str(key), "state": record.state, "node": record.node, "seq": record.seq}


def by_key(jobs):
    return sorted(jobs, key=lambda job: job["key"])


def origins(lines):
    events = map(parse_line, lines)
    return sorted({getattr(event, "origin", "") or event.key.origin for event in events})


def test_every_story_of_the_source_documents_is_there():
    assert {
        "remove-first", "remove-overtakes", "failed-send", "left-node", "same-number", "two-removals"
    } <= set(NAMES)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_the_model_tells_it(name):
    lines, answers, jobs = story(name)
    books = {origin: Ledger() for origin in origins(lines)}
    told = []
    for event in map(parse_line, lines):
        origin = getattr(event, "origin", "") or event.key.origin
        answer = books[origin].apply(event, NOW)
        told.append({"outcome": answer.outcome, "rule": answer.rule})
    assert told == answers
    left = [job(*item) for ledger in books.values() for item in ledger.records.items()]
    assert by_key(left) == by_key(jobs)


@pytest.mark.parametrize("batched", [True, False], ids=["batched", "one-by-one"])
@pytest.mark.parametrize("name", NAMES)
def test_the_script_tells_it(name, batched, store):
    lines, answers, jobs = story(name)
    view = View(store)
    events = [parse_line(line) for line in lines]
    outcomes = (
        list(report_many(view, events))
        if batched
        else [outcome for event in events for outcome in report_many(view, [event])]
    )
    assert [{"outcome": each.outcome, "rule": each.rule} for each in outcomes] == answers
    pages = [page for origin in origins(lines) for page in scan(store, origin)]
    left = [job(key, record) for page in pages for key, record in page.items()]
    assert by_key(left) == by_key(jobs)


@pytest.mark.parametrize("name", NAMES)
def test_the_command_line_tells_it(name, command):
    _, answers, jobs = story(name)
    told = command.ok("report", STORIES / f"{name}.jsonl").lines
    assert [{"outcome": line["outcome"], "rule": line["rule"]} for line in told] == answers
    listed = command.ok("jobs", "-o", "json").json
    shown = [{field: line[field] for field in ("key", "state", "node", "seq")} for line in listed]
    assert by_key(shown) == by_key(jobs)
