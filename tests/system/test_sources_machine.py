"""What the source document on an ordered watcher asks of the machine of jobs: what is wanted apart from what is so.

Cases S, told to the model and to the script; S1 and S2 through the roles that settle them. That an end stays reachable
from every state, whatever comes in between, is explored in tests/rules/test_attempt_explored.py.

Whom a sweep chooses (S12, S14) is in test_sources_sweep.py. Not here at all: S3 and S4, for nobody starts or stops
machines here, only jobs.
"""

from __future__ import annotations

import pytest

from tests.roles.fleet import Fleet, settle
from tests.store.story import CREATED
from tests.store.twins import key
from tests.system.sources import frame, removal

#: How each state of a submitted job comes about, as verbs of a story.
STATES = {
    "queued": ["submit"],
    "placed": ["submit", "place"],
    "running": ["submit", "place", "start"],
    "a guess": ["submit", "place", "start", "guess"],
    "ended": ["submit", "place", "start", "finish"],
}
WISHES = {"run": [], "cancel": ["cancel"], "remove": ["cancel", "remove"]}


@pytest.fixture
def fleet(store):
    made = Fleet(store)
    yield made
    made.close()


def test_S1_forty_seven_jobs_cancelled_at_once_leave_nothing_that_is_wanted(fleet, broker):
    fleet.workers_of("node-a", count=10)
    fleet.know_origin()
    dispatcher = fleet.dispatcher()
    keys = fleet.submit_many(range(47))
    settle(dispatcher)
    for one in fleet.placed(keys)[:5]:
        fleet.start(one)
    assert len(dispatcher._office.load) == 48
    outcomes = [broker.cancel(one).rule for one in keys]
    assert set(outcomes) == {"desired"}
    for one in keys[:5]:
        fleet.finish(one, "cancelled")
    settle(dispatcher)
    assert [job.key.id for job in broker.jobs() if not job.record.ended] == ["known"]
    assert len(dispatcher._office.load) == 1
    assert not dispatcher._office.load.carried("node-a")


def test_S2_a_backlog_of_removals_does_not_hold_up_a_new_job(fleet, broker):
    fleet.workers_of("node-a")
    fleet.know_origin()
    dispatcher = fleet.dispatcher()
    keys = fleet.submit_many(range(200))
    settle(dispatcher)
    for one in keys:
        broker.remove(one)
    new = fleet.submit("new")
    dispatcher.step()
    assert fleet.node_of(new) == "node-a"


def test_S5_a_running_job_is_cancelled_by_force_at_once_and_its_late_word_refused(source):
    source.begin()
    assert source.cancel(force=True) == "applied desired"
    assert source.now_is()[0] == "cancelled"
    assert source.finish(attempt=1) == "refused terminal"
    assert source.now_is()[0] == "cancelled"


def test_S6_a_job_cancelled_between_look_and_dispatch_is_never_dispatched(source):
    source.submit()
    looked = source.record().rev
    source.cancel()
    assert source.place(rev=looked) == "refused not_ready"
    assert source.start() == "refused terminal"


def test_S7_a_worker_that_revives_is_refused_and_the_second_attempt_stands(source):
    source.begin(attempts=3)
    source.guess()
    assert source.requeue() == "applied requeued"
    source.place(node="node-b")
    assert source.start(node="node-b", holder="h2", worker="w2") == "applied started"
    for late in (source.reassert, source.finish):
        assert late(attempt=1, holder="h1") == "refused stale_attempt"
    assert source.finish(attempt=2, holder="h2", result="2") == "applied finished"
    assert source.finish(attempt=1, holder="h1", state="failed") == "refused terminal"
    assert source.now_is()[:2] == ("completed", "node-b")


def test_S8_a_cancel_after_the_result_is_too_late(source):
    source.begin()
    source.finish(result="1")
    assert source.cancel() == "refused too_late"
    assert source.cancel(force=True) == "refused too_late"
    assert source.now_is()[0] == "completed"


def test_S9_a_job_whose_hand_off_was_lost_is_taken_back_and_placed_again(source):
    source.submit()
    source.place(node="node-a")
    assert source.unplace() == "applied unplaced"
    assert source.start(attempt=1, node="node-a") == "refused stale_attempt"
    assert source.place(node="node-b") == "applied placed"
    assert source.start(node="node-b") == "applied started"
    assert source.record().tries == 1


@pytest.mark.parametrize("wish", WISHES)
@pytest.mark.parametrize("state", STATES)
def test_S10_whatever_a_job_is_and_whatever_is_wanted_somebody_can_take_it_on(source, state, wish):
    """Or it has ended and nobody wants more."""
    for verb in STATES[state] + WISHES[wish]:
        told = getattr(source, verb)()
        assert told.startswith("applied") or (state, told) == ("ended", "refused too_late")
    record = source.record()
    if record is None:  # removed at once
        assert (wish, state) in {("remove", "queued"), ("remove", "placed"), ("remove", "ended")}
        return
    ways = ("place", "start", "finish", "lost", "unplace", "guess", "requeue", "reassert")
    taken = [way for way in ways if getattr(source, way)().startswith("applied")]
    assert taken or (record.ended and wish != "remove")


def test_S11_a_word_on_a_job_that_is_gone_is_answered_and_the_next_one_heard(broker):
    broker.report(frame("running", "a", 1))
    broker.report(frame("completed", "a", 2, id="8"))
    broker.report(removal())
    frames = [frame("completed", "a", 2), frame("failed", "a", 3, id="8"), frame("queued", id="9")]
    told = [(answer.outcome, answer.rule) for answer in broker.report_many(frames)]
    assert told == [
        ("refused", "tombstoned"), ("refused", "terminal"), ("applied", "first_sighting")
    ]  # fmt: skip


def test_S13_one_bad_row_hides_no_other_from_whoever_lists(broker, caplog):
    for id in "123":
        broker.report(frame("running", "a", 1, id=id))
    broker.store.client.hset(broker.store.keys.of_job(key("2")).job, "created_at", "never")
    with broker.watch() as watcher:
        assert {one.id for one in watcher.snapshot().records} == {"1", "3"}
    assert [job.key.id for job in broker.jobs()] == ["1", "3"]
    assert "desk/ollama//2" in caplog.text


def test_a_wish_and_a_state_never_share_a_field(source):
    source.begin()
    source.cancel()
    record = source.record()
    assert (record.state, record.desired, record.created_at) == ("running", "cancel", CREATED)
