"""What `why` says would change a job's state: one case for each situation of the machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.rules.explain import Surroundings, what_next, when
from broker.rules.key import Key
from broker.rules.liveness import Budgets
from broker.rules.record import Record
from broker.rules.sweep import Standing

NOW = 1_700_000_000_000
KEY = Key("desk", "ollama", "", "7")
DRAINED, DEAD = Standing(flag="drained"), Standing(flag="dead")
GONE = Standing(silent_since=NOW - 9_000)
FLEET = Surroundings(now=NOW, offering=frozenset({"a", "b"}))

QUEUED = Record(kind="submitted", state="queued", attempts=3, attempt=1)
PLACED = replace(QUEUED, node="a", placed_at=NOW)
RUNNING = replace(
    QUEUED,
    state="running",
    node="a",
    worker="w1",
    tries=1,
    started_at=NOW,
    holder="h",
    last_seen=NOW,
)
SILENT = replace(RUNNING, last_seen=NOW - 4_000)
GUESS = replace(RUNNING, state="failed", guessed_from="running", guessed_at=NOW)
REPORTED = Record(kind="reported", state="running", node="a", last_seen=NOW)
REPORTED_GUESS = replace(REPORTED, state="failed", guessed_from="running")

CASES = {
    "never heard of": (None, FLEET, "Its first event would make it known"),
    "removed": (None, replace(FLEET, tombstone=NOW), "It was removed"),
    "below the horizon": (None, replace(FLEET, horizon=NOW), "Only what was created after"),
    "ready": (QUEUED, FLEET, "places it on a node with a free slot for engine ollama (a, b)"),
    "no node": (QUEUED, Surroundings(now=NOW), "No node offers engine ollama"),
    "all drained": (QUEUED, replace(FLEET, nodes={"a": DRAINED, "b": DEAD}), "is drained or dead (a, b)"),
    "one drained": (QUEUED, replace(FLEET, nodes={"a": DRAINED}), "engine ollama (b)"),
    "no slot": (QUEUED, replace(FLEET, free=0), "Every slot for engine ollama is taken"),
    "no model": (
        replace(QUEUED, model="big"),
        replace(FLEET, models={"a": frozenset({"small"}), "b": frozenset({"tiny"})}),
        "has the model big",
    ),
    "delayed": (replace(QUEUED, due=NOW + 5_000), FLEET, f"It waits until {when(NOW + 5_000)} (5 s)"),
    "placed": (PLACED, FLEET, f"A worker on a starts it; if none did by {when(NOW + 15_000)}"),
    "placed, drained": (PLACED, replace(FLEET, nodes={"a": DRAINED}), "Node a is drained or dead"),
    "running": (RUNNING, FLEET, "The word of its worker (w1)"),
    "running, limited": (replace(RUNNING, timeout=60_000), FLEET, "It may run until"),
    "placed, late": (
        replace(PLACED, placed_at=NOW - 15_000), FLEET,
        f"No worker on a started it by {when(NOW)}: a sweep takes it back",
    ),
    "placed, node silent": (PLACED, replace(FLEET, nodes={"a": GONE}), "Node a went offline: a sweep takes it back"),
    "running, silent": (
        SILENT, replace(FLEET, suspect=True),
        f"silent since {when(NOW - 4_000)}: without a beat by {when(NOW + 1_000)} a sweep guesses",
    ),
    "running, node dead": (
        SILENT, replace(FLEET, suspect=True, nodes={"a": DEAD}), "without a beat in the next seconds a sweep guesses",
    ),
    "running, braked": (
        replace(RUNNING, last_seen=NOW - 9_000), replace(FLEET, suspect=True, braked=True),
        "without a beat once sweeps judge again a sweep guesses",
    ),
    "cancelling": (replace(RUNNING, desired="cancel"), FLEET, "asked to stop it, and kills it within about 6 s."),
    "removing": (replace(RUNNING, desired="remove"), FLEET, "then it is removed"),
    "guess": (GUESS, FLEET, f"Without one by {when(NOW + 10_000)} it is queued again for try 2 of 3"),
    "guess, patient engine": (
        GUESS, replace(FLEET, budgets=Budgets(graces={"ollama": 30_000})), f"one by {when(NOW + 30_000)} it is queued",
    ),
    "guess, over": (
        replace(GUESS, guessed_at=NOW - 10_000, last_seen=NOW - 15_000), FLEET,
        "Without one in the next seconds it is queued again",
    ),
    "guess, node dead": (
        GUESS, replace(FLEET, nodes={"a": DEAD}), "Without one in the next seconds it is queued again",
    ),
    "guess, heard since": (
        replace(GUESS, guessed_at=NOW - 1_000), FLEET,
        f"without a further beat by {when(NOW + 5_000)} a sweep guesses anew",
    ),
    "guess, no tries left": (replace(GUESS, tries=3), FLEET, "failed for good: all 3 tries are used"),
    "guess, once": (replace(GUESS, at_most_once=1), FLEET, "failed for good: it may run at most once"),
    "guess, poison": (replace(GUESS, deaths=2), FLEET, "failed for good: 2 holders died under it already"),
    "guess, unwanted": (replace(GUESS, desired="cancel"), FLEET, "cancelled for good: somebody asked to cancel"),
    "completed": (replace(RUNNING, state="completed"), FLEET, "the first terminal word is final"),
    "failed": (replace(RUNNING, state="failed"), FLEET, "`broker retry desk/ollama//7`"),
    "poison": (replace(RUNNING, state="failed", reason="poison", deaths=3), FLEET, "3 holders died under it"),
    "lost": (replace(RUNNING, state="failed", reason="lost"), FLEET, "its worker was lost"),
    "reported": (REPORTED, FLEET, "The next report of desk"),
    "reported, silent": (REPORTED, replace(FLEET, suspect=True), "Nobody has spoken of it since"),
    "reported, no promise": (REPORTED, FLEET, "desk never promised to go on speaking of it"),
    "reported, promise": (
        REPORTED, replace(FLEET, stale=0), f"Without one by {when(NOW + 300_000)} a sweep guesses that it failed",
    ),
    "reported, own promise": (
        REPORTED, replace(FLEET, stale=20_000), f"Without one by {when(NOW + 20_000)} a sweep guesses that it failed",
    ),
    "reported, node offline": (
        replace(REPORTED, last_seen=NOW - 6_000), replace(FLEET, nodes={"a": GONE}), "Node a counts as offline.",
    ),
    "reported, unwanted": (replace(REPORTED, desired="cancel"), FLEET, "for desk to carry out"),
    "reported, ended": (replace(REPORTED, state="completed"), FLEET, "a newer created_at begins a new generation"),
    "reported, guess": (REPORTED_GUESS, FLEET, "any word of desk that is not older replaces it"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_situation_has_its_sentence(name):
    record, around, sentence = CASES[name]
    assert sentence in " ".join(what_next(KEY, record, around))


@pytest.mark.parametrize("record", [SILENT, PLACED, GUESS, REPORTED])
def test_that_nobody_is_judged_is_said_of_whom_it_saves(record):
    said = "nobody is judged"
    late = replace(FLEET, now=NOW + 300_000, stale=0)
    assert said in what_next(KEY, record, replace(late, braked=True))[-1]
    assert said not in " ".join(what_next(KEY, record, late))
    assert said not in " ".join(what_next(KEY, record, replace(FLEET, braked=True)))


def test_a_guess_is_never_said_to_end_a_job_that_may_run_again():
    assert "for good" not in " ".join(what_next(KEY, GUESS, FLEET))


def test_a_node_that_tells_no_models_may_have_any():
    said = what_next(KEY, replace(QUEUED, model="big"), FLEET)
    assert "(a, b)" in said[0]
