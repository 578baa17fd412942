"""The fleet over HTTP: nodes and what is said of them, groups, and how it all stands."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from broker import Broker, Delivery
from broker.fleet.nodes import node_json
from broker.store.nodes import WorkerInfo
from broker.store.server import PrivateRedis
from broker.store.store import Store
from broker.subscriptions.groups import group_json, parked_json
from broker.web import fleet_models as models
from tests.system.command import held, patient, until
from tests.web.test_jobs import rule_of

WORKER = WorkerInfo(name="node-a-w", node="node-a", engine="echo", pid=7, started_at=1)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two looks at one node see it alike, however long this machine stands still between them."""
    patient(monkeypatch)


def test_nodes_are_told_as_the_command_line_tells_them(http: httpx.Client, broker: Broker) -> None:
    assert http.get("/v1/nodes").json() == []
    broker.beat(WORKER)
    broker.tell_node("node-a", pressure=3, models=["m"])
    [found] = http.get("/v1/nodes").json()
    [seen] = broker.nodes()
    expected = node_json(seen, broker.config.budgets)
    moving = ("silent_ms",)
    assert {**found, **dict.fromkeys(moving)} == {**expected, **dict.fromkeys(moving)}
    assert set(models.Node.model_fields) == set(found)
    assert set(models.Worker.model_fields) == set(found["workers"][0])
    models.Node.model_validate(found)


def test_what_is_said_of_a_node_is_answered_by_how_it_then_stands(
    http: httpx.Client, broker: Broker
) -> None:
    broker.beat(WORKER)
    for verb, flag in (("drain", "drained"), ("dead", "dead"), ("resume", None)):
        answer = http.post(f"/v1/nodes/node-a/{verb}", json={})
        assert (answer.status_code, answer.json()["flag"]) == (200, flag)
        assert [node.flag or None for node in broker.nodes()] == [flag]
    removed = http.post(
        "/v1/nodes/node-a/remove", content=b"", headers={"content-type": "application/json"}
    )
    assert removed.json()["node"] == "node-a"
    assert broker.nodes() == []


def test_a_node_that_was_not_heard_of_waits_for_its_flag_alone(http: httpx.Client) -> None:
    for verb in ("resume", "remove"):
        assert rule_of(http.post(f"/v1/nodes/later/{verb}", json={}), 404) == "not_found"
    assert http.post("/v1/nodes/later/drain", json={}).json()["flag"] == "drained"
    assert http.get("/v1/nodes").json()[0]["beaten_at"] is None
    # Without its flag nothing is known of it any more: that is no reason to say that it was not there.
    resumed = http.post("/v1/nodes/later/resume", json={})
    assert (resumed.status_code, resumed.json()["flag"]) == (200, None)
    assert http.get("/v1/nodes").json() == []


def test_a_wrong_word_about_a_node_is_refused(http: httpx.Client) -> None:
    for path in ("NO", "a b", "%00", "%FF", "n" * 64):
        assert rule_of(http.post(f"/v1/nodes/{path}/drain", json={}), 400) == "invalid"
    assert rule_of(http.post("/v1/nodes/node-a/explode", json={}), 400) == "invalid"
    assert rule_of(http.post("/v1/nodes/node-a/drain", json={"force": True}), 400) == "invalid"
    assert rule_of(http.get("/v1/nodes/node-a/drain"), 405)
    assert http.get("/v1/nodes").json() == []


def test_groups_tell_who_reads_and_what_is_parked(http: httpx.Client, broker: Broker) -> None:
    assert http.get("/v1/groups").json() == []

    def handler(delivery: Delivery) -> None:
        raise ValueError("not today <b>")

    broker.submit("echo", 1)
    with broker.subscribe("sink", handler, tries=1):
        until(lambda: any(seen.parked for seen in broker.groups()))
        [found] = http.get("/v1/groups").json()
        [seen] = broker.groups()
        expected = group_json(seen)
    moving = dict.fromkeys(("silent_ms", "looked_at"))
    assert {**found, **moving} == {**expected, **moving}
    assert set(models.Group.model_fields) == set(found)
    models.Group.model_validate(found)
    parked = http.get("/v1/groups/sink/parked").json()
    assert parked == [parked_json("sink", one) for one in broker.parked("sink")]
    assert "not today <b>" in parked[0]["reason"]
    assert set(models.Parked.model_fields) == set(parked[0])
    models.Parked.model_validate(parked[0])
    assert rule_of(http.get("/v1/groups/nobody/parked"), 404) == "not_found"
    assert rule_of(http.get("/v1/groups/NO/parked"), 400) == "invalid"


def test_the_overview_tells_how_it_all_stands(http: httpx.Client, broker: Broker) -> None:
    held(broker, broker.submit("echo", 1).key)
    broker.submit_many("echo", range(3))
    until(lambda: http.get("/v1/overview").json()["jobs"]["queued"] == 3)
    found = http.get("/v1/overview").json()
    assert (found["jobs"]["running"], found["ready"], found["occupied"]) == (1, 3, {"echo": 1})
    assert [origin["origin"] for origin in found["origins"]] == ["desk"]
    assert set(models.Overview.model_fields) == set(found)
    models.Overview.model_validate(found)


def test_the_overview_grows_old_while_a_log_cannot_be_read(
    http: httpx.Client, broker: Broker, store: Store
) -> None:
    broker.submit("echo")
    until(lambda: http.get("/v1/overview").json()["jobs"]["queued"] == 1)
    key = broker.log("desk").key
    kept = store.client.dump(key)

    def age_ms() -> int:
        age: int = http.get("/v1/overview").json()["list_age_ms"]
        return age

    store.client.set(key, "no log")
    # A list that follows is looked at every 2 s: it never grows so old by itself.
    until(lambda: age_ms() > 4_000)
    assert http.get("/v1/overview").json()["jobs"]["queued"] == 1
    store.client.restore(key, 0, kept, replace=True)
    until(lambda: age_ms() < 4_000)


def test_a_redis_that_is_away_is_said_so_by_every_route(
    serve: Callable[..., str], server: PrivateRedis
) -> None:
    url = serve(redis=f"redis://127.0.0.1:{server.port}")
    with httpx.Client(base_url=url, trust_env=False, timeout=60) as http:
        made = http.post("/v1/jobs", json={"engine": "echo", "id": "7"})
        assert made.status_code == 201
        server.stop()
        for path in ("jobs", "jobs/7", "jobs/desk%2Fecho%2F%2F7/why", "nodes", "groups"):
            assert rule_of(http.get(f"/v1/{path}"), 503) == "unavailable"
        for path in ("jobs/desk%2Fecho%2F%2F7/cancel", "nodes/node-a/drain"):
            assert rule_of(http.post(f"/v1/{path}", json={}), 503) == "unavailable"
        assert rule_of(http.post("/v1/jobs", json={"engine": "echo"}), 503) == "unavailable"
        server.start()
        until(lambda: http.get("/v1/jobs/7").status_code == 200)
