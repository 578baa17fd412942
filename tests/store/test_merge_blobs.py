"""What lies beside a record (spec, result, output): stored by the event that brings it, gone in time after the end."""

from __future__ import annotations

import pytest

from broker.store.view import View
from tests.store.story import CREATED, Story
from tests.store.twins import key

TTL_MS = 60_000


@pytest.fixture
def story(script):
    script.view = View(script.store, result_ttl_ms=TTL_MS)
    return Story(script)


def blob(story, what):
    """The blob and its remaining life: None where it is gone, `stays` or `ends`."""
    client, name = story.twin.store.client, getattr(story.twin.keys.of_job(key().job), what)
    kind = client.type(name)
    if kind == b"none":
        return None
    lives = client.pttl(name)
    assert lives == -1 or 0 < lives <= TTL_MS
    value = client.get(name).decode() if kind == b"string" else "stream"
    return value, "stays" if lives == -1 else "ends"


def write_output(story):
    story.twin.store.client.xadd(story.twin.keys.of_job(key().job).out, {"chunk": "1"})


def test_submit_brings_the_spec(story):
    story.submit(spec='{"payload":2}')
    assert blob(story, "spec") == ('{"payload":2}', "stays")
    assert story.twin.view.spec(key()) == {"payload": 2}


def test_a_submit_that_is_no_news_brings_nothing(story):
    story.submit()
    story.submit(spec='{"payload":9}')
    assert story.twin.view.spec(key()) == {"payload": 1}


def test_completed_lets_all_end_in_time(story):
    story.begin()
    write_output(story)
    story.finish(result="[1]")
    assert blob(story, "spec") == ('{"payload":1}', "ends")
    assert blob(story, "result") == ("[1]", "ends")
    assert blob(story, "out") == ("stream", "ends")


@pytest.mark.parametrize("state", ["failed", "cancelled"])
def test_what_failed_keeps_its_spec_for_a_retry(story, state):
    story.begin()
    write_output(story)
    story.finish(state, result='"why"')
    assert blob(story, "spec") == ('{"payload":1}', "stays")
    assert blob(story, "result") == ('"why"', "ends")
    assert blob(story, "out") == ("stream", "ends")


@pytest.mark.parametrize("how", ["cancel", "lost"])
def test_an_end_by_others_lets_the_output_end_too(story, how):
    story.begin(attempts=1)
    write_output(story)
    if how == "lost":
        story.guess()
        assert blob(story, "out") == ("stream", "stays")
        story.lost()
    else:
        story.cancel(force=True)
    assert blob(story, "out") == ("stream", "ends")
    assert blob(story, "spec") == ('{"payload":1}', "stays")


def test_a_requeue_keeps_the_spec(story):
    story.begin()
    story.finish("failed", retryable=True, result='"first error"')
    assert blob(story, "spec") == ('{"payload":1}', "stays")
    assert blob(story, "result") == ('"first error"', "stays")


def test_an_error_of_an_earlier_attempt_is_no_result(story):
    story.begin()
    story.finish("failed", retryable=True, result='"first error"')
    story.go_on()
    story.finish("completed")
    assert blob(story, "result") is None


def test_a_result_once_stored_is_never_rewritten(story):
    story.begin()
    story.finish(result="1")
    assert story.finish(result="2") == "refused terminal"
    assert story.twin.view.result(key()) == 1
    assert story.twin.view.has_result(key())


@pytest.mark.parametrize("how", ["remove", "remove_pair", "prune"])
def test_what_goes_takes_all_with_it(story, how):
    story.begin()
    write_output(story)
    story.finish(result="1")
    assert getattr(story, how)().startswith("applied")
    job = story.twin.keys.of_job(key().job)
    assert story.twin.store.client.exists(job.job, job.spec, job.result, job.out) == 0


def test_a_removal_that_waited_drops_the_result(story):
    story.begin()
    story.remove()
    story.finish(result="1")
    assert blob(story, "result") is None
    assert blob(story, "spec") is None


def test_a_report_carries_unknown_fields_along(story):
    story.report("queued", seq=1, extras='{"x":1}')
    story.report("running", seq=2)
    assert blob(story, "spec") == ('{"x":1}', "stays")
    story.report("running", node="node-b", seq=3, extras='{"x":2}')
    assert story.twin.view.spec(key()) == {"x": 2}
    story.report("completed", seq=4)
    assert blob(story, "spec") == ('{"x":2}', "ends")


def test_a_newer_generation_inherits_nothing(story):
    story.report("failed", extras='{"x":1}', full='"whole"')
    assert blob(story, "result") == ('"whole"', "ends")
    story.report("queued", created_at=CREATED + 1)
    assert blob(story, "spec") is None
    assert blob(story, "result") is None
    assert not story.twin.view.has_spec(key())


def test_a_refused_report_brings_nothing(story):
    story.report("running", seq=5, extras='{"x":1}')
    story.report("queued", seq=4, extras='{"x":2}', full="2")
    assert story.twin.view.spec(key()) == {"x": 1}
    assert story.twin.view.result(key()) is None
