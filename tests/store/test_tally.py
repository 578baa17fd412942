"""How many events were answered how: kept by the merge itself, so that no answer of any process is missed."""

from __future__ import annotations

import pytest

from broker.rules.event import Report
from broker.store.figures import read_figures
from broker.store.store import Store
from broker.store.view import View
from tests.store.readers import patient
from tests.store.story import CREATED
from tests.store.twins import ORIGIN, key, pair


def report(id="7", state="running", **more):
    return Report(**({"key": key(id), "created_at": CREATED, "state": state} | more))


def counts(story):
    return {" ".join(pair): count for pair, count in story.twin.books().counts.items()}


def answers(store):
    [figures] = read_figures(store, [ORIGIN])
    return {":".join(pair): count for pair, count in figures.answers.items()}


def test_each_answer_counts_once_by_its_rule(story):
    told = [report(seq=1), report(seq=3), report(seq=2), report(seq=4, state="completed")]
    assert story.tell_all(told) == [
        "applied first_sighting", "applied higher_seq", "refused stale_seq", "applied higher_seq",
    ]  # fmt: skip
    assert counts(story) == {
        "applied first_sighting": 1, "applied higher_seq": 2, "refused stale_seq": 1,
    }  # fmt: skip


def test_a_repeat_counts_as_a_duplicate_by_the_first_answers_rule(story):
    story.submit(event_id="s")
    story.submit(event_id="s")
    story.submit(event_id="another")
    assert counts(story) == {"applied submitted": 1, "duplicate submitted": 2}


def test_of_an_invalid_event_nothing_is_written_not_even_a_count(story):
    assert story.tell_all([report(created_at=0), report()])[0] == "refused invalid"
    assert counts(story) == {"applied first_sighting": 1}


def test_a_broad_removal_is_one_event_however_many_jobs_it_takes(story):
    for engine in ("ollama", "openai"):
        story.report(key=key(engine=engine))
    story.remove_pair()
    assert counts(story) == {"applied first_sighting": 2, "applied removed": 1}


def test_a_broad_removal_that_has_to_be_asked_again_counts_when_it_is_decided(script, monkeypatch):
    """The siblings that the first call names are not all: it was not decided."""
    script.apply([report()])
    shared, missed = View.shared, [True]

    def once_none(view, origin, id):
        return [] if missed and missed.pop() else shared(view, origin, id)

    monkeypatch.setattr(View, "shared", once_none)
    assert script.apply([pair()])[0].outcome == "applied"
    assert not missed
    assert script.books().counts == {("applied", "first_sighting"): 1, ("applied", "removed"): 1}


def test_an_error_counts_without_its_reason(script):
    script.store.client.set(script.keys.of_job(key("50").job).job, "no hash")
    script.apply([report(str(id)) for id in range(48, 52)])
    assert answers(script.store) == {"applied:first_sighting": 3, "error:": 1}


@pytest.mark.parametrize("foreign", ["many", "9" * 19, "", "1.5"])
def test_what_a_foreign_hand_wrote_there_stops_no_event_and_begins_anew(script, foreign):
    name = "n:applied:first_sighting"
    script.store.client.hset(script.keys.meta, name, foreign)
    assert [answer.outcome for answer in script.apply([report("1"), report("2")])] == [
        "applied"
    ] * 2
    script.apply([report("3")])
    assert script.store.client.hget(script.keys.meta, name) == b"3"


def test_redis_cli_shows_it_by_its_name(script):
    script.apply([report(seq=1), report(seq=2)])
    assert script.store.client.hget(script.keys.meta, "n:applied:higher_seq") == b"1"


def test_all_processes_count_together(store, redis_url, namespace):
    other = Store.from_url(patient(redis_url), namespace)
    for turn in range(5):
        View(store).apply([report(f"a{turn}-{n}") for n in range(250)])
        View(other).apply([report(f"a{turn}-{n}") for n in range(300)])
    other.close()
    assert answers(store) == {"applied:first_sighting": 1_500, "duplicate:no_change": 1_250}
