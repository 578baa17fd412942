"""The page on metrics and logs, held to what is: names, types, labels, and each of its examples."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from broker.rules.event import Finish, Place, Start, Submit
from broker.rules.key import Key
from broker.store.view import View
from broker.web import metrics
from tests.store.members import Owner
from tests.store.readers import ORIGIN, Desk
from tests.web.asking import TOKEN
from tests.web.scraping import listed, scrape, scrape_until

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/metrics.md").read_text()
ROW = re.compile(r"^\| `(broker_\w+)`( \*)? \| (\w+) \|([^|]*)\| (.+) \|$", re.MULTILINE)

#: What the page tells of: name -> (type, labels).
TOLD = {
    name: (kind, frozenset(re.findall(r"`(\w+)`", labels)))
    for name, _, kind, labels, _ in ROW.findall(PAGE)
}


def examples(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def run_a_job(store):
    """One of which everything is told: it waited and ran. Another one waits."""
    key, now = Key(ORIGIN, "thumb", "", "7"), store.clock.now()
    view = View(store)

    def say(event):
        [answer] = view.apply([event])
        assert answer.outcome == "applied"

    say(Submit(key=key, created_at=now, digest="d"))
    say(Place(key=key, node="a", rev=view.get(key).rev, term=1))
    held = {"key": key, "created_at": now, "attempt": 1, "holder": "h"}
    say(Start(**held, node="a", worker="w"))
    say(Finish(**held, state="completed"))
    say(Submit(key=key._replace(id="8"), created_at=now, digest="d"))


def tells_of_it_all(page):
    """Whether all of that is on it: the list and each count of the process come when they come, one by one."""
    return (
        page.all("broker_jobs") == {("completed",): 1, ("queued",): 1}
        and page.all("broker_job_wait_seconds_count")
        and page.all("broker_job_run_seconds_count")
    )


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """A Redis that answers does so in time, however long this machine stands still."""
    monkeypatch.setattr(metrics, "LOOK_SECONDS_MAX", 60.0)


@pytest.fixture
def page(store, serve):
    """Of a server of which everything can be told, with loops."""
    url = serve(turns=lambda: {"sweeper": 0.1})
    listed(url)
    run_a_job(store)
    owner = Owner(store, "a", name="mail")
    owner.group.look([ORIGIN])
    return scrape_until(url, tells_of_it_all)


def exported(page):
    """Name as documented -> (type, labels)."""
    found = {}
    for family in page.families.values():
        if family.name.startswith("process_"):
            continue
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        found[name] = family.type, frozenset(labels)
    return found


def test_the_page_and_the_docs_tell_of_the_same_metrics(page):
    found = exported(page)
    assert found.keys() - TOLD.keys() == set(), "not documented"
    assert TOLD.keys() - found.keys() == set(), "not exported"
    assert {name: told for name, told in TOLD.items() if found[name] != told} == {}


def test_each_has_a_sample_so_that_its_labels_are_those_of_the_docs(page):
    assert [family.name for family in page.families.values() if not family.samples] == []


def test_names_say_their_unit():
    found = ROW.findall(PAGE)
    assert len(found) > 50
    for name, _, kind, _, meaning in found:
        assert (kind == "counter") == name.endswith("_total"), name
        assert not re.search(r"_(ms|millis\w*|kb|mb|minutes|percent)(_|$)", name), name
        if re.search(r"how long|since|age of", meaning):
            assert name.endswith("_seconds"), name
        if "memory" in meaning:
            assert name.endswith("_bytes"), name


def test_what_is_marked_is_what_the_process_alone_knows(store, serve):
    """Another server, later: it tells of none of it, and of all else the same."""
    marked = {name for name, star, *_ in ROW.findall(PAGE) if star}
    url = serve(turns=lambda: {"sweeper": 0.1})
    listed(url)
    run_a_job(store)
    seen = scrape_until(url, tells_of_it_all)
    other = listed(serve())
    for name in ("broker_job_wait_seconds", "broker_job_run_seconds", "broker_loop_age_seconds"):
        assert name in marked
    assert not other.all("broker_job_run_seconds_count")
    for name in ("broker_jobs", "broker_events_total", "broker_log_entries"):
        assert name not in marked
        assert other.all(name) == seen.all(name)


# --- its examples -----------------------------------------------------------------------------------------------------


def rules():
    [text] = [text for text in examples("yaml") if text.startswith("groups:")]
    [group] = yaml.safe_load(text)["groups"]
    return group["rules"]


def queries():
    return [rule["expr"] for rule in rules()] + [
        line for text in examples("promql") for line in text.splitlines()
    ]


@pytest.mark.parametrize("query", queries())
def test_a_query_asks_for_what_there_is(query):
    named = re.findall(r"\b(broker_\w+)(?:\{([^}]*)\})?", query)
    assert named
    for name, matchers in named:
        base = re.sub(r"_(bucket|sum|count)$", "", name)
        kind, labels = TOLD[name if name in TOLD else base]
        assert (kind == "histogram") == (name != base and name not in TOLD), name
        assert set(re.findall(r"(\w+)!?=", matchers)) <= labels, query
    assert query.count("(") == query.count(")")
    for function, name in re.findall(r"(rate|increase)\((broker_\w+)", query):
        assert name.endswith(("_total", "_bucket", "_count", "_sum")), f"{function} of {name}"


def test_each_alert_can_be_sent():
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names)) >= 8
    for rule in rules():
        assert set(rule) <= {"alert", "expr", "for", "annotations"}
        said = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        of = [TOLD[name][1] for name in re.findall(r"broker_\w+", rule["expr"])]
        assert said <= frozenset().union(*of), rule


def test_the_scrape_that_the_page_sets_up_is_answered(serve):
    [text] = [text for text in examples("yaml") if text.startswith("scrape_configs:")]
    [job] = yaml.safe_load(text)["scrape_configs"]
    assert job["authorization"] == {"credentials_file": "/run/secrets/broker_token"}
    assert job["static_configs"] == [{"targets": ["127.0.0.1:7070"]}]
    assert scrape(serve(token=TOKEN), Authorization=f"Bearer {TOKEN}").get("broker_up") == 1


def test_the_line_of_the_log_is_one_as_it_is_told(redis_url, namespace, store):
    [text] = examples("json")
    code = f"""
from broker import set_up_logs
from broker.roles.chronicle import Chronicle
from broker.store.store import Store
set_up_logs("info", "json")
chronicle = Chronicle(Store.from_url({redis_url!r}, {namespace!r}))
chronicle.step()
print(flush=True)
input()
while not chronicle.step(): pass
"""
    Desk(store).report("before")
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdout.readline()
        run_a_job(store)
        _, err = process.communicate("\n", timeout=90)
    lines = [json.loads(line) for line in err.splitlines()]
    found = [line for line in lines if line["event"] == "job changed"]
    assert [(line["from"], line["to"]) for line in found] == [
        ("new", "queued"), ("queued", "queued"), ("queued", "running"), ("running", "completed"),
        ("new", "queued"),
    ]  # fmt: skip
    shown = json.loads(text)
    assert {name: type(value) for name, value in found[2].items()} == {
        name: type(value) for name, value in shown.items()
    }
    named = set(re.findall(r"`(\w+)`", PAGE.split("| field | what |")[1].split("\n\n")[0]))
    assert shown.keys() - {"event", "level", "timestamp"} <= named
