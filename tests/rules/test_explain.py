"""What `why` says would change a job's state: one case for each situation of the machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.rules.explain import Surroundings, what_next, when
from broker.rules.key import Key
from broker.rules.record import Record

NOW = 1_700_000_000_000
KEY = Key("desk", "ollama", "", "7")
FLEET = Surroundings(now=NOW, offering=frozenset({"a", "b"}))

QUEUED = Record(kind="submitted", state="queued", attempts=3, attempt=1)
PLACED = replace(QUEUED, node="a", placed_at=NOW)
RUNNING = replace(
    QUEUED, state="running", node="a", worker="w1", tries=1, started_at=NOW, holder="h"
)
GUESS = replace(RUNNING, state="failed", guessed_from="running", guessed_at=NOW)
REPORTED = Record(kind="reported", state="running", node="a", last_seen=NOW)
REPORTED_GUESS = replace(REPORTED, state="failed", guessed_from="running")

CASES = {
    "never heard of": (None, FLEET, "Its first event would make it known"),
    "removed": (None, replace(FLEET, tombstone=NOW), "It was removed"),
    "below the horizon": (None, replace(FLEET, horizon=NOW), "Only what was created after"),
    "ready": (QUEUED, FLEET, "places it on a node with a free slot for engine ollama (a, b)"),
    "no node": (QUEUED, Surroundings(now=NOW), "No node offers engine ollama"),
    "all drained": (QUEUED, replace(FLEET, shut=frozenset({"a", "b"})), "is drained or dead (a, b)"),
    "one drained": (QUEUED, replace(FLEET, shut=frozenset({"a"})), "engine ollama (b)"),
    "no slot": (QUEUED, replace(FLEET, free=0), "Every slot for engine ollama is taken"),
    "no model": (
        replace(QUEUED, model="big"),
        replace(FLEET, models={"a": frozenset({"small"}), "b": frozenset({"tiny"})}),
        "has the model big",
    ),
    "delayed": (replace(QUEUED, due=NOW + 5_000), FLEET, f"It waits until {when(NOW + 5_000)} (5 s)"),
    "placed": (PLACED, FLEET, f"A worker on a starts it; if none did by {when(NOW + 15_000)}"),
    "placed, drained": (PLACED, replace(FLEET, shut=frozenset({"a"})), "a is drained or dead"),
    "running": (RUNNING, FLEET, "The word of its worker (w1)"),
    "running, limited": (replace(RUNNING, timeout=60_000), FLEET, "It may run until"),
    "running, silent": (RUNNING, replace(FLEET, suspect=True), "Its worker has been silent since"),
    "cancelling": (replace(RUNNING, desired="cancel"), FLEET, "asked to stop it, and kills it within about 6 s."),
    "removing": (replace(RUNNING, desired="remove"), FLEET, "then it is removed"),
    "guess": (GUESS, FLEET, f"after {when(NOW + 10_000)}, it is queued again for try 2 of 3"),
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
    "reported, unwanted": (replace(REPORTED, desired="cancel"), FLEET, "for desk to carry out"),
    "reported, ended": (replace(REPORTED, state="completed"), FLEET, "a newer created_at begins a new generation"),
    "reported, guess": (REPORTED_GUESS, FLEET, "any word of desk that is not older replaces it"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_situation_has_its_sentence(name):
    record, around, sentence = CASES[name]
    assert sentence in " ".join(what_next(KEY, record, around))


def test_a_guess_is_never_said_to_end_a_job_that_may_run_again():
    assert "for good" not in " ".join(what_next(KEY, GUESS, FLEET))


def test_a_node_that_tells_no_models_may_have_any():
    said = what_next(KEY, replace(QUEUED, model="big"), FLEET)
    assert "(a, b)" in said[0]
