"""What `why` says would change a job's state: one case for each situation of the machine."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace

import pytest

from broker.rules.explain import Surroundings, what_next
from broker.rules.key import Key
from broker.rules.liveness import Budgets
from broker.rules.phrases import holders_lost, when
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
GUESS_SILENT = replace(GUESS, last_seen=NOW - 5_000)
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
    "no slot": (QUEUED, replace(FLEET, free={"a": 0}), "Every slot for engine ollama on open nodes (a, b) is taken"),
    "a slot elsewhere": (
        replace(QUEUED, model="big"),
        replace(FLEET, free={"a": 0, "b": 1}, models={"a": frozenset({"big"}), "b": frozenset({"tiny"})}),
        "on open nodes (a) is taken",
    ),
    "a slot on a drained node": (
        QUEUED, replace(FLEET, free={"a": 0, "b": 1}, nodes={"b": DRAINED}),
        "by priority, then age. b has a free slot, but is drained: `broker node resume b`.",
    ),
    "slots on drained nodes only": (
        QUEUED, replace(FLEET, free={"a": 1}, nodes={"a": DRAINED, "b": DEAD}),
        "is drained or dead (a, b). a has a free slot, but is drained: `broker node resume a`.",
    ),
    "a slot on a dead node": (
        QUEUED, replace(FLEET, free={"a": 0, "b": 1}, nodes={"b": DEAD}), "but is dead: `broker node resume b`.",
    ),
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
    "placed, node silent": (
        PLACED, replace(FLEET, nodes={"a": GONE}), f"Node a has been silent since {when(NOW - 9_000)}: a sweep",
    ),
    "running, silent": (
        SILENT, replace(FLEET, suspect=True),
        f"silent since {when(NOW - 4_000)}. Unless it beats by {when(NOW + 1_000)}, a sweep guesses",
    ),
    "running, silent, node beats": (
        SILENT, replace(FLEET, suspect=True, beating=frozenset({"a"})),
        f"Its worker w1 on a has been silent since {when(NOW - 4_000)}; the node itself beats.",
    ),
    "running, node dead": (
        SILENT, replace(FLEET, suspect=True, nodes={"a": DEAD}), "Unless it beats in the next seconds, a sweep guesses",
    ),
    "running, braked": (
        replace(RUNNING, last_seen=NOW - 9_000), replace(FLEET, suspect=True, braked=True),
        "Unless it beats before sweeps judge again, a sweep guesses",
    ),
    "cancelling": (replace(RUNNING, desired="cancel"), FLEET, "asked to stop it, and kills it within about 6 s."),
    "removing": (replace(RUNNING, desired="remove"), FLEET, "then it is removed"),
    "guess": (GUESS, FLEET, f"Unless it comes by {when(NOW + 10_000)}, the job is queued again for try 2 of 3"),
    "guess, node beats": (
        GUESS_SILENT, replace(FLEET, beating=frozenset({"a"})),
        f"Its worker w1 on a has been silent since {when(NOW - 5_000)}; the node itself beats.",
    ),
    "guess, node silent": (
        GUESS_SILENT, replace(FLEET, nodes={"a": GONE}),
        f"silent since {when(NOW - 5_000)}; the whole node since {when(NOW - 9_000)}.",
    ),
    "guess, beat without the job": (
        GUESS_SILENT, replace(FLEET, heard=NOW - 500),
        f"Its worker w1 on a beats, but has not spoken of this job since {when(NOW - 5_000)}.",
    ),
    "guess, later beat without the job": (
        GUESS_SILENT, replace(FLEET, heard=NOW - 4_000), f"has been silent since {when(NOW - 4_000)}.",
    ),
    "guess, patient engine": (
        GUESS, replace(FLEET, budgets=Budgets(graces={"ollama": 30_000})), f"by {when(NOW + 30_000)}, the job is",
    ),
    "guess, over": (
        replace(GUESS, guessed_at=NOW - 10_000, last_seen=NOW - 15_000), FLEET,
        "Unless it comes in the next seconds, the job is queued again",
    ),
    "guess, node dead": (
        GUESS, replace(FLEET, nodes={"a": DEAD}), "Unless it comes in the next seconds, the job is queued again",
    ),
    "guess, heard since": (
        replace(GUESS, guessed_at=NOW - 1_000), FLEET,
        f"unless it is again by {when(NOW + 5_000)}, a sweep guesses anew",
    ),
    "guess, no tries left": (replace(GUESS, tries=3), FLEET, "failed for good: all 3 tries are used"),
    "guess, once": (replace(GUESS, at_most_once=1), FLEET, "failed for good: it may run at most once"),
    "guess, poison": (replace(GUESS, deaths=2), FLEET, "failed for good: 2 holders were lost already"),
    "guess, unwanted": (replace(GUESS, desired="cancel"), FLEET, "cancelled for good: somebody asked to cancel"),
    "completed": (replace(RUNNING, state="completed"), FLEET, "the first terminal word is final"),
    "failed": (replace(RUNNING, state="failed"), FLEET, "`broker retry desk/ollama//7`"),
    "ready, and what would end it": (QUEUED, FLEET, "`broker cancel desk/ollama//7` ends it at once."),
    "running, and what would end it": (RUNNING, FLEET, "`broker cancel desk/ollama//7` asks it to stop."),
    "completed, and what takes it away": (
        replace(RUNNING, state="completed"), FLEET, "`broker remove desk/ollama//7` takes it off the list.",
    ),
    "reported, ended, and what takes it away": (
        replace(REPORTED, state="completed"), FLEET, "`broker remove desk/ollama//7` takes it away",
    ),
    "poison": (replace(RUNNING, state="failed", reason="poison", deaths=3), FLEET, "Nothing: 3 holders were lost, so"),
    "lost": (
        replace(RUNNING, state="failed", reason="lost"), FLEET,
        f"its worker w1 on a was lost, last heard of at {when(NOW)}",
    ),
    "reported": (REPORTED, FLEET, "The next report of desk"),
    "reported, silent": (REPORTED, replace(FLEET, suspect=True), "Nobody has spoken of it since"),
    "reported, no promise": (REPORTED, FLEET, "desk never promised to go on speaking of it"),
    "reported, promise": (
        REPORTED, replace(FLEET, stale=0), f"Unless desk speaks of it by {when(NOW + 300_000)}, a sweep",
    ),
    "reported, own promise": (
        REPORTED, replace(FLEET, stale=20_000), f"of it by {when(NOW + 20_000)}, a sweep guesses that it failed",
    ),
    "reported, node offline": (
        replace(REPORTED, last_seen=NOW - 6_000), replace(FLEET, nodes={"a": GONE}),
        f"Node a counts as offline: silent since {when(NOW - 9_000)}.",
    ),
    "reported, node dead": (
        REPORTED, replace(FLEET, nodes={"a": DEAD}, beating=frozenset({"a"})),
        "Node a counts as offline: called dead, though it beats.",
    ),
    "reported, guess, node offline": (
        REPORTED_GUESS, replace(FLEET, nodes={"a": GONE}), f"spoken of it since {when(NOW)}. Node a counts as offline",
    ),
    "reported, unwanted": (replace(REPORTED, desired="cancel"), FLEET, "for desk to carry out"),
    "reported, ended": (replace(REPORTED, state="completed"), FLEET, "a newer created_at begins a new generation"),
    "reported, guess": (REPORTED_GUESS, FLEET, "any word of desk that is not older replaces it"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_situation_has_its_sentence(name):
    record, around, sentence = CASES[name]
    assert sentence in " ".join(what_next(KEY, record, around))


@pytest.mark.parametrize("id", ["it's 7; reboot", "$(reboot)", "`reboot`", "{7}", "…"])
@pytest.mark.parametrize("state", ["queued", "running", "completed", "failed"])
def test_a_command_it_says_is_one_for_a_shell(id, state):
    """Also of a hostile key: pasted, it is three words, the last of which is the key."""
    key = KEY._replace(id=id)
    said = " ".join(what_next(key, replace(RUNNING, node="", state=state), FLEET))
    [command] = re.findall("`(.*?)`", said)
    *words, pasted = shlex.split(command)
    assert (words[0], len(words), Key.parse(pasted)) == ("broker", 2, key)


@pytest.mark.parametrize("record", [SILENT, PLACED, GUESS, REPORTED])
def test_that_nobody_is_judged_is_said_of_whom_it_saves(record):
    said = "nobody is judged"
    late = replace(FLEET, now=NOW + 300_000, stale=0)
    assert said in what_next(KEY, record, replace(late, braked=True))[-1]
    assert said not in " ".join(what_next(KEY, record, late))
    assert said not in " ".join(what_next(KEY, record, replace(FLEET, braked=True)))


def test_a_guess_is_never_said_to_end_a_job_that_may_run_again():
    assert "for good" not in " ".join(what_next(KEY, GUESS, FLEET))


def test_a_lost_holder_is_counted_in_words():
    assert [holders_lost(1), holders_lost(2)] == ["1 holder was lost", "2 holders were lost"]


def test_where_a_slot_is_free_no_drained_node_is_named():
    around = replace(FLEET, free={"a": 1, "b": 1}, nodes={"b": DRAINED})
    assert "resume" not in " ".join(what_next(KEY, QUEUED, around))


def test_a_drained_node_without_the_model_is_not_named():
    models = {"a": frozenset({"big"}), "b": frozenset({"tiny"})}
    around = replace(FLEET, free={"a": 0, "b": 1}, nodes={"b": DRAINED}, models=models)
    assert "resume" not in " ".join(what_next(KEY, replace(QUEUED, model="big"), around))


def test_a_node_that_tells_no_models_may_have_any():
    said = what_next(KEY, replace(QUEUED, model="big"), FLEET)
    assert "(a, b)" in said[0]
