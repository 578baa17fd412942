"""Which job goes where, and when: step by step on a real Redis, where the test is the clock and the workers."""

from __future__ import annotations

import pytest
from rq.job import Job as RqJob
from rq.serializers import JSONSerializer

from broker.rules.event import Intent, Remove, Report, Unplace
from broker.rules.handoff import rq_job_id
from broker.rules.key import Key
from tests.roles.fleet import settle

# --- placing and handing over -----------------------------------------------------------------------------------


def test_a_ready_job_is_placed_and_handed_over_at_once(fleet):
    fleet.workers_of("node-a")
    key = fleet.submit("7")

    assert settle(fleet.dispatcher()) == 1
    record = fleet.view.get(key)
    assert (record.state, record.node, record.rule, record.by) == (
        "queued",
        "node-a",
        "placed",
        "dispatcher",
    )
    assert fleet.handed_over("node-a") == [str(key)]


def test_the_hand_off_names_the_attempt_and_asks_nothing_else_of_rq(fleet):
    fleet.workers_of("node-a")
    key = fleet.submit("7")
    settle(fleet.dispatcher())
    record = fleet.view.get(key)

    id = rq_job_id(fleet.store.keys.namespace, key, record.created_at, 1)
    job = RqJob.fetch(id, connection=fleet.store.client, serializer=JSONSerializer)
    assert job.func_name == "workers.run.run"
    assert job.args == [str(key), record.created_at, 1]
    assert (job.timeout, job.result_ttl, job.failure_ttl) == (-1, 0, 0)
    assert job.description == str(key)
    assert job.retries_left is None
    assert not any((job._success_callback_name, job._failure_callback_name, job.kwargs))


def test_ids_that_no_queue_name_takes_are_handed_over_too(fleet):
    engine = "my/engine: %"
    fleet.workers_of("node-a", engine)
    keys = [fleet.submit(id, engine) for id in ("a/b:c d%", "{x}", "ü" * 128)]
    fleet.workers_of("node-a", engine, 2)

    settle(fleet.dispatcher())
    assert fleet.handed_over("node-a", engine) == [str(key) for key in keys]


def test_slots_are_never_exceeded_and_the_rest_stays_ready(fleet):
    fleet.workers_of("node-a", count=2)
    fleet.workers_of("node-b", count=1)
    keys = fleet.submit_many(range(10))
    dispatcher = fleet.dispatcher()

    assert settle(dispatcher) == 3
    assert len(fleet.placed(keys)) == len(fleet.handed_over("node-a")) + 1 == 3
    assert fleet.ready() == [str(n) for n in range(3, 10)]
    for _ in range(3):
        assert settle(dispatcher) == 0


def test_a_slot_is_held_while_its_job_runs_and_free_when_it_ends(fleet):
    fleet.workers_of("node-a")
    first, second, third = fleet.submit_many(range(3))
    dispatcher = fleet.dispatcher()
    settle(dispatcher)

    fleet.start(first)
    assert settle(dispatcher) == 0
    fleet.finish(first)
    assert settle(dispatcher) == 1
    assert fleet.placed([second, third]) == [second]


@pytest.mark.parametrize(
    "end", ["cancelled while placed", "failed", "requeued", "unplaced", "removed"]
)
def test_whatever_ends_an_attempt_frees_its_slot(fleet, end):
    fleet.workers_of("node-a")
    first, second = fleet.submit_many(range(2))
    dispatcher = fleet.dispatcher()
    settle(dispatcher)
    assert fleet.placed([first, second]) == [first]

    if end == "cancelled while placed":
        fleet.say(Intent(key=first))
    elif end == "removed":
        fleet.say(Remove(key=first))
    elif end == "unplaced":
        fleet.say(Unplace(key=first, rev=fleet.view.get(first).rev, term=fleet.clock.now()))
        fleet.say(Intent(key=first))
    else:
        fleet.start(first)
        due = fleet.clock.now() + 60_000
        fleet.finish(first, "failed", retryable=end == "requeued", due=due)

    assert settle(dispatcher) == 1
    assert fleet.node_of(second) == "node-a"


def test_a_thousand_jobs_that_came_and_went_leave_no_load(fleet):
    fleet.workers_of("node-a", count=100)
    dispatcher = fleet.dispatcher()
    for turn in range(10):
        keys = fleet.submit_many(range(turn * 100, turn * 100 + 100))
        settle(dispatcher)
        assert len(fleet.placed(keys)) == 100
        for n, key in enumerate(keys):
            fleet.say(Remove(key=key) if n % 2 else Intent(key=key))

    settle(dispatcher)
    load = dispatcher._office.load
    assert len(load) == 0
    assert not load._jobs
    assert not load._slots
    assert not load._workers
    assert load.placed_before(10**15) == []


def test_a_thousand_jobs_are_placed_a_hundred_a_step(fleet):
    fleet.workers_of("node-a", count=600)
    fleet.workers_of("node-b", count=600)
    keys = fleet.submit_many(range(1_000))
    dispatcher = fleet.dispatcher()

    assert [dispatcher.step() for _ in range(11)] == [100] * 10 + [0]
    nodes = [fleet.node_of(key) for key in keys]
    assert (nodes.count("node-a"), nodes.count("node-b")) == (500, 500)


# --- which job, and where ---------------------------------------------------------------------------------------


def test_late_binding_the_best_job_at_the_time_of_the_free_slot_gets_it(fleet):
    fleet.workers_of("node-a")
    first, waiting = fleet.submit("first"), fleet.submit("waiting")
    dispatcher = fleet.dispatcher()
    settle(dispatcher)
    urgent = fleet.submit("urgent", priority=10)

    fleet.start(first)
    fleet.finish(first)
    settle(dispatcher)
    assert fleet.placed([waiting, urgent]) == [urgent]


def test_priority_comes_before_age_and_age_before_origin(fleet):
    now = fleet.clock.now()
    for n, (origin, priority, age) in enumerate(
        [("z", 0, 50), ("a", 0, 40), ("m", -1, 90), ("a", 5, 10), ("z", 5, 20), ("m", 0, 60)]
    ):
        fleet.submit(n, origin=origin, priority=priority, created_at=now - age)
    fleet.workers_of("node-a")
    dispatcher = fleet.dispatcher()
    order = []
    for _ in range(6):
        assert settle(dispatcher) == 1
        [text] = fleet.handed_over("node-a")
        key = Key.parse(text)
        order.append(int(key.id))
        fleet.start(key)
        fleet.finish(key)
        fleet.queue("node-a").empty()

    assert order == [4, 3, 5, 0, 1, 2]


def test_the_order_of_placing_is_that_of_the_ready_list(fleet):
    for n in range(20):
        fleet.submit(n, priority=(n * 7) % 5)
    expected = fleet.ready()
    fleet.workers_of("node-a", count=20)
    settle(fleet.dispatcher())

    assert [Key.parse(text).id for text in fleet.handed_over("node-a")] == expected


def test_jobs_of_an_engine_that_nobody_offers_stay_ready_and_hold_up_nobody(fleet):
    lonely = fleet.submit_many(range(300), engine="quantum", priority=100)
    fleet.workers_of("node-a")
    key = fleet.submit("last")

    assert settle(fleet.dispatcher()) == 1
    assert fleet.placed([*lonely, key]) == [key]
    assert len(fleet.ready()) == 300


def test_a_job_waits_until_its_engine_is_offered(fleet):
    key = fleet.submit("7")
    dispatcher = fleet.dispatcher()
    assert settle(dispatcher) == 0
    fleet.workers_of("node-a", "other")
    assert settle(dispatcher) == 0

    fleet.workers_of("node-a")
    assert settle(dispatcher) == 1
    assert fleet.node_of(key) == "node-a"


def test_a_job_goes_where_its_model_is(fleet):
    fleet.workers_of("node-a", count=3)
    fleet.workers_of("node-b", count=3)
    fleet.nodes.tell("node-a", models=["small"])
    fleet.nodes.tell("node-b", models=["large", "small"])
    keys = [fleet.submit(n, model="large") for n in range(2)]
    huge = fleet.submit("huge", model="huge", priority=5)
    settle(fleet.dispatcher())

    assert {fleet.node_of(key) for key in keys} == {"node-b"}
    assert fleet.node_of(huge) == ""


def test_the_least_loaded_node_gets_the_job_of_all_engines_and_reports(fleet):
    fleet.workers_of("node-a", count=5)
    fleet.workers_of("node-b", count=5)
    for n in range(2):
        key = Key("lab", "ollama", "", str(n))
        fleet.say(Report(key=key, created_at=fleet.clock.now(), state="running", node="node-a"))
    keys = fleet.submit_many(range(4))
    settle(fleet.dispatcher())

    nodes = [fleet.node_of(key) for key in keys]
    assert nodes == ["node-b", "node-b", "node-a", "node-b"]


def test_what_a_node_reports_as_pressure_counts_as_load(fleet):
    fleet.workers_of("node-a", count=5)
    fleet.workers_of("node-b", count=5)
    fleet.nodes.tell("node-a", pressure=3)
    keys = fleet.submit_many(range(3))
    settle(fleet.dispatcher())

    assert {fleet.node_of(key) for key in keys} == {"node-b"}
