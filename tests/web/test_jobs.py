"""Jobs over HTTP: handed in, listed, looked at, and what may be wished of them."""

from __future__ import annotations

import json
import threading
from itertools import product
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from broker import Broker, Key
from broker.jobs.outcome import Listed
from broker.store.output import write
from broker.store.store import Store
from broker.web import models, wanted
from tests.system.command import guessed, held, placed, reported

JSON = {"content-type": "application/json"}
HOUR_MS = 3_600_000


def rule_of(answer: httpx.Response, status: int) -> str:
    """The rule of a problem document."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    said = answer.json()
    assert said["status"] == status
    assert said["detail"]
    return str(said["rule"])


def path_of(key: object) -> str:
    return f"/v1/jobs/{quote(str(key), safe='')}"


def submitted(http: httpx.Client, **fields: Any) -> dict[str, Any]:
    answer = http.post("/v1/jobs", json={"engine": "echo"} | fields)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_submitted_job_is_answered_as_every_list_shows_it(
    http: httpx.Client, broker: Broker
) -> None:
    made = submitted(http, payload={"n": 1}, id="7", priority=5, model="m", timeout=1.5, delay=60)
    assert made == broker.listed("desk/echo//7").to_json()
    assert (made["priority"], made["model"], made["timeout"]) == (5, "m", 1500)
    assert made["due"] > made["created_at"]


def test_the_location_of_a_submitted_job_leads_to_it(http: httpx.Client) -> None:
    for id in ("7", "a/b", "a%b", "a%2Fb", "{x}:y z", "è语", "..", "a?b#c", "\x01", "\0"):
        answer = http.post("/v1/jobs", json={"engine": "echo", "id": id, "run": "r/1"})
        shown = http.get(answer.headers["location"])
        assert shown.status_code == 200
        assert shown.json()["id"] == id
        assert shown.json()["key"] == answer.json()["key"]


def test_the_same_id_and_payload_is_the_same_job(http: httpx.Client) -> None:
    first = submitted(http, id="7", payload={"a": 1, "b": 2})
    again = http.post("/v1/jobs", json={"engine": "echo", "id": "7", "payload": {"b": 2, "a": 1}})
    assert (again.status_code, again.json()) == (200, first)
    assert again.headers["location"] == path_of(first["key"])
    other = http.post("/v1/jobs", json={"engine": "echo", "id": "7", "payload": {"a": 2}})
    assert rule_of(other, 409) == "conflict"


def test_a_job_that_was_removed_is_not_accepted_again(http: httpx.Client, broker: Broker) -> None:
    later = broker.store.clock.now() + HOUR_MS
    broker.report(
        {"event": "remove", "origin": "desk", "engine": "echo", "id": "7", "removed_at": later}
    )
    assert rule_of(http.post("/v1/jobs", json={"engine": "echo", "id": "7"}), 409) == "tombstoned"


WRONG_SUBMISSIONS = [
    (b'{"engine":"echo","nope":1}', "nope"),
    (b'{"payload":1}', "engine"),
    (b'{"engine":""}', "engine"),
    (b'{"engine":7}', "engine"),
    (b'{"engine":"' + b"e" * 65 + b'"}', "engine"),
    (b'{"engine":"echo","priority":101}', "priority"),
    (b'{"engine":"echo","priority":"5"}', "priority"),
    (b'{"engine":"echo","priority":true}', "priority"),
    (b'{"engine":"echo","priority":' + b"9" * 400 + b"}", "priority"),
    (b'{"engine":"echo","attempts":0}', "attempts"),
    (b'{"engine":"echo","timeout":' + b"9" * 400 + b"}", "timeout"),
    (b'{"engine":"echo","timeout":1e308}', "timeout"),
    (b'{"engine":"echo","delay":-1}', "delay"),
    (b'{"engine":"echo","origin":"NO NAME"}', "origin"),
    (b'{"engine":"echo","id":"\\ud800"}', "id"),
    (b'{"engine":"echo","payload":{"a":[0,"\\ud800"]}}', "payload.a.1"),
    (b'{"engine":"echo","\\ud800":1}', "the body"),
    (b'[{"engine":"echo"}]', "the body"),
    (b"null", "the body"),
    (b"", "engine"),
]


def test_a_wrong_submission_is_told_by_its_field(http: httpx.Client) -> None:
    for body, field in WRONG_SUBMISSIONS:
        answer = http.post("/v1/jobs", content=body, headers=JSON)
        assert rule_of(answer, 400) == "invalid"
        assert answer.json()["field"] == field


def test_a_bound_is_told_in_all_its_digits(http: httpx.Client) -> None:
    for field, bound in (("delay", "at most 31536000"), ("priority", "at most 100")):
        answer = http.post("/v1/jobs", json={"engine": "echo", field: 10**9})
        assert answer.json()["detail"] == f"{field}: must be {bound}, not 1000000000"


UNKEEPABLE = [
    b"{",
    b"\xff",
    b'{"engine":"echo","payload":NaN}',
    b'{"engine":"echo","payload":1e999}',
    b'{"engine":"echo","payload":' + b"9" * 5000 + b"}",
    b'{"engine":"echo","payload":"\\udc00"}',
    b'{"engine":"echo","payload":' + b"[" * 65 + b"]" * 65 + b"}",
    b'{"engine":"echo","payload":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    '{"engine":"ééééééééééééééééééééééééééééééééé"}'.encode(),
    b'{"engine":"echo","at_most_once":true,"attempts":2}',
]


def test_what_could_not_be_kept_as_it_is_makes_no_job(http: httpx.Client, broker: Broker) -> None:
    for body in UNKEEPABLE:
        answer = http.post("/v1/jobs", content=body, headers=JSON)
        assert rule_of(answer, 400) in ("invalid", "malformed")
    assert broker.jobs() == []


def test_a_payload_is_opaque_up_to_its_bound(http: httpx.Client) -> None:
    largest = "x" * (1024 * 1024 - 2)
    odd = {"nul": "\0", "é\u2028": [1e-7, 12345678901234567890, None], "deep": [[[{}]]]}
    for payload in (largest, odd):
        made = submitted(http, payload=payload)
        assert http.get(path_of(made["key"])).json()["payload"] == payload
    beyond = http.post("/v1/jobs", json={"engine": "echo", "payload": largest + "x"})
    assert rule_of(beyond, 400) == "invalid"
    far_beyond = http.post("/v1/jobs", json={"engine": "echo", "payload": 2 * largest})
    assert rule_of(far_beyond, 413) == "too_large"


def test_a_large_body_is_read_beside_the_loop_that_serves_all(
    http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads, load = [], wanted.load

    def recorded(*args: Any) -> Any:
        threads.append(threading.current_thread().name.partition("_")[0])
        return load(*args)

    monkeypatch.setattr(wanted, "load", recorded)
    submitted(http, payload=1)
    submitted(http, payload=[[]] * 10_000)
    assert threads == ["http", "broker-calls"]


def test_a_list_is_newest_first_and_says_how_many_fit(http: httpx.Client, broker: Broker) -> None:
    keys = [submitted(http, id=str(number))["key"] for number in range(5)]
    whole = http.get("/v1/jobs")
    assert whole.json() == [job.to_json() for job in reversed(broker.jobs())]
    part = http.get("/v1/jobs", params={"limit": 2})
    assert [job["key"] for job in part.json()] == [job["key"] for job in whole.json()[:2]]
    assert part.headers["total-count"] == "5"
    assert {job["key"] for job in whole.json()} == set(keys)
    assert http.get("/v1/jobs", params={"engine": "nobody's"}).json() == []


def test_a_list_answers_the_questions_of_the_command_line(
    http: httpx.Client, broker: Broker
) -> None:
    running = held(broker, broker.submit("echo", 1).key, node="node-a")
    guess = held(broker, broker.submit("echo", 2).key, node="node-b")
    guessed(broker, guess.key)
    broker.submit("other", 3)
    ended = broker.submit("echo", 4)
    ended.cancel()
    broker.submit("echo", 5, origin="elsewhere")

    def keys(*pairs: tuple[str, str]) -> set[str]:
        return {job["key"] for job in http.get("/v1/jobs", params=list(pairs)).json()}

    assert keys(("state", "running")) == {str(running.key), str(guess.key)}
    assert keys(("state", "running"), ("state", "cancelled")) == {
        str(running.key),
        str(guess.key),
        str(ended.key),
    }
    assert keys(("node", "node-b")) == {str(guess.key)}
    assert len(keys(("engine", "other"))) == 1
    assert len(keys(("origin", "elsewhere"))) == 1
    [shown] = [job for job in http.get("/v1/jobs").json() if job["key"] == str(guess.key)]
    assert (shown["state"], shown["inferred"], shown["guessed_from"]) == ("failed", True, "running")


WRONG_QUESTIONS = [
    "limit=0", "limit=100001", "limit=x", f"limit={'9' * 5000}", "state=done", "node=NO", "engine=",
    f"engine={'e' * 65}", "origin=%00", "origin=%FF", "states=queued", "limit=1&limit=2&limit=x",
]  # fmt: skip


def test_a_wrong_question_is_refused(http: httpx.Client) -> None:
    for query in WRONG_QUESTIONS:
        answer = http.get(f"/v1/jobs?{query}")
        assert rule_of(answer, 400) == "invalid"
        assert answer.json()["field"] == query.partition("=")[0]
        assert answer.json()["detail"].startswith(f"{answer.json()['field']}: ")
    assert http.get("/v1/jobs?engine=").json()["detail"] == (
        "engine: must have at least 1 character, not ''"
    )


def test_a_route_that_is_none_is_told_in_words(http: httpx.Client) -> None:
    for path in ("/v1/nowhere", "/nowhere"):
        assert http.get(path).json()["detail"] == "there is no such route"


def test_a_long_list_is_one_array(http: httpx.Client, broker: Broker) -> None:
    broker.submit_many("echo", range(1_201))
    found = http.get("/v1/jobs", params={"limit": 5_000})
    assert len({job["key"] for job in found.json()}) == int(found.headers["total-count"]) == 1_201


ODD = Key("desk", "a:b", "r{1}", "x/y %z")


def test_a_key_in_a_path_is_one_segment_or_its_text(http: httpx.Client, broker: Broker) -> None:
    keys = (ODD, Key("desk", "echo", "", "7"), Key("desk", "è", "", "语"))
    for key in keys:
        broker.submit(key.engine, 1, run=key.run, id=key.id)
    for key, verb in product(keys, ("", "/why", "/output", "/log")):
        expected = http.get(path_of(key) + verb).json()
        assert http.get(f"/v1/jobs/{key}{verb}").json() == expected
        assert http.get(path_of("/".join(str(key).split("/")[1:])) + verb).json() == expected
        if not verb:
            assert expected["key"] == str(key)


def test_the_end_of_a_key_is_enough_where_it_names_one_job(
    http: httpx.Client, broker: Broker
) -> None:
    broker.submit("echo", 1, id="7")
    broker.submit("other", 1, id="7")
    assert http.get("/v1/jobs/echo%2F7").json()["key"] == "desk/echo//7"
    assert http.get("/v1/jobs/other%2F%2F7/why").json()["key"] == "desk/other//7"
    ambiguous = http.get("/v1/jobs/7")
    assert rule_of(ambiguous, 400) == "invalid"
    assert "desk/echo//7" in ambiguous.json()["detail"]
    assert rule_of(http.get("/v1/jobs/8"), 404) == "not_found"


PATHS = [
    ("echo/7", 404), ("echo//7", 404), ("7/", 404), ("7/nope", 404), ("", 404), ("/", 404), ("//", 404),
    ("desk/echo//7/", 404), ("desk/echo//7/why/x", 404), ("%2F", 400), ("%2F%2F%2F", 400), ("%FF", 400),
    ("NO%2Fecho%2F%2F7", 400), ("%00", 404), ("desk%2Fecho%2F%2F", 400), ("%ED%A0%80", 400), ("7%0A", 404),
    ("desk%2Fecho%2F%2F%25FF", 400), ("e" * 20_000, 400), ("7/cancel", 405), ("7/why?x=1", 200),
]  # fmt: skip


@pytest.mark.parametrize("id", ["ü 100% λ", "a/b", "a/b/c/d/e", "a%2Fb", "x:\x01"])
def test_an_id_that_is_encoded_once_names_its_job(http: httpx.Client, id: str) -> None:
    submitted(http, id=id)
    assert http.get(path_of(id)).json()["id"] == id
    assert http.get(path_of(id) + "/why").status_code == 200


def test_a_path_that_names_no_job_is_told(http: httpx.Client) -> None:
    submitted(http, id="7")
    for path, status in PATHS:
        answer = http.get(f"/v1/jobs/{path}")
        assert answer.status_code == status, path
        if status != 200:
            rule_of(answer, status)


def test_a_job_is_shown_whole(http: httpx.Client, broker: Broker) -> None:
    key = broker.submit("echo", {"n": 1}).key
    shown = http.get(path_of(key)).json()
    assert shown == broker.show(key)
    assert (shown["payload"], shown["refused"]) == ({"n": 1}, [])
    broker.report(reported(state="running", seq=3, extra=[1]))
    broker.report(reported(state="queued", seq=2))
    seen = http.get("/v1/jobs/desk/ollama//7").json()
    assert seen["extras"] == {"extra": [1]}
    assert [refusal["rule"] for refusal in seen["refused"]] == ["stale_seq"]
    assert http.get("/v1/jobs/desk/ollama//7/why").json() == broker.why("desk/ollama//7").to_json()


def test_a_result_is_told_once_there_is_one(http: httpx.Client, broker: Broker) -> None:
    waiting = broker.submit("echo", 1)
    assert rule_of(http.get(path_of(waiting.key) + "/result"), 409) == "not_terminal"
    held(broker, waiting.key).finish("completed", result={"é": None})
    assert http.get(path_of(waiting.key) + "/result").json() == {"é": None}
    failing = broker.submit("echo", 1, attempts=1)
    held(broker, failing.key).finish("failed", error="it broke <b>")
    failed = http.get(path_of(failing.key) + "/result")
    assert rule_of(failed, 409) == "job_failed"
    assert "it broke <b>" in failed.json()["detail"]
    assert rule_of(http.get("/v1/jobs/desk/echo//none/result"), 404) == "not_found"


def test_output_is_told_from_where_the_reader_stands(
    http: httpx.Client, broker: Broker, store: Store
) -> None:
    key = broker.submit("echo", 1).key
    assert http.get(path_of(key) + "/output").json() == []
    for what, text in (("chunk", "a\x1b[31m"), ("progress", "0.5")):
        write(store, key, 1, what, text, 60_000)
    both = http.get(path_of(key) + "/output").json()
    assert [(chunk["what"], chunk["text"]) for chunk in both] == [
        ("chunk", "a\x1b[31m"),
        ("progress", "0.5"),
    ]
    rest = http.get(path_of(key) + "/output", params={"after": both[0]["id"]}).json()
    assert rest == both[1:]
    assert rule_of(http.get("/v1/jobs/desk/echo//none/output"), 404) == "not_found"
    for wrong in ("x", "-", "9" * 20, f"0-{'9' * 20}", "0-0\n"):
        answer = http.get(path_of(key) + "/output", params={"after": wrong})
        assert rule_of(answer, 400) == "invalid"


def test_the_log_of_a_job_is_its_own_part_of_its_origins(
    http: httpx.Client, broker: Broker
) -> None:
    key = broker.submit("echo", 1, attempts=1).key
    other = broker.submit("echo", 2)
    late = held(broker, key)
    late.finish("failed", error="it broke")
    other.cancel()
    late.finish("completed")
    found = http.get(path_of(key) + "/log").json()
    assert [entry["rule"] for entry in found["entries"]] == [
        "submitted",
        "placed",
        "started",
        "finished",
    ]
    assert {entry["key"] for entry in found["entries"]} == {str(key)}
    assert found["whole"] is True
    assert [refusal["rule"] for refusal in found["refused"]] == ["terminal"]


def test_the_log_of_a_job_outlives_it_and_is_that_of_its_newest_generation(
    http: httpx.Client, broker: Broker
) -> None:
    for created_at in (1_700_000_000_000, 1_700_000_000_001):
        broker.report(reported(created_at=created_at))
    broker.report(reported(created_at=1_700_000_000_001, state="completed"))
    broker.remove("desk/ollama//7")
    found = http.get("/v1/jobs/desk/ollama//7/log").json()
    rules = [entry["rule"] for entry in found["entries"]]
    assert rules == ["newer_generation", "higher_rank", "removed"]
    assert found["entries"][-1]["record"] is None
    assert found["whole"] is True
    assert rule_of(http.get("/v1/jobs/desk/ollama//8/log"), 404) == "not_found"


def test_the_log_of_a_job_says_where_it_is_not_whole(http: httpx.Client, broker: Broker) -> None:
    for number in range(1, 252):
        broker.report(reported(state=("queued", "running")[number % 2], seq=number))
    found = http.get("/v1/jobs/desk/ollama//7/log").json()
    assert len(found["entries"]) == 200
    assert found["entries"][-1]["record"]["seq"] == 251
    assert found["whole"] is False


def test_a_wish_is_answered_by_its_outcome(http: httpx.Client, broker: Broker) -> None:
    queued = broker.submit("echo", 1)
    answer = http.post(path_of(queued.key) + "/cancel", json={})
    assert answer.status_code == 200
    assert answer.json()["rule"] == "desired"
    assert broker.get(queued.key).state == "cancelled"
    assert rule_of(http.post(path_of(queued.key) + "/cancel", json={}), 409) == "too_late"

    running = held(broker, broker.submit("echo", 1).key)
    assert http.post(path_of(running.key) + "/cancel", json={}).json()["rule"] == "desired"
    assert http.post(path_of(running.key) + "/cancel", json={}).json()["outcome"] == "duplicate"
    assert rule_of(http.post(path_of(running.key) + "/retry", json={}), 409) == "not_terminal"
    forced = http.post(path_of(running.key) + "/cancel", json={"force": True})
    assert forced.status_code == 200
    assert broker.get(running.key).state == "cancelled"

    anew = http.post(path_of(queued.key) + "/retry", content=b"", headers=JSON).json()
    assert broker.get(anew["new_key"]).retry_of == str(queued.key)
    assert http.post(path_of(queued.key) + "/remove", json={}).json()["rule"] == "removed"
    for verb in ("cancel", "retry"):
        assert http.post(path_of(queued.key) + f"/{verb}", json={}).status_code == 404
    broker.report(reported())
    assert rule_of(http.post("/v1/jobs/desk/ollama//7/retry", json={}), 409) == "not_ours"


def test_a_wish_that_is_written_wrongly_does_nothing(http: httpx.Client, broker: Broker) -> None:
    key = broker.submit("echo", 1).key
    for body in ({"force": "yes"}, {"forced": True}, [], {"force": True, "x": 1}):
        for verb in ("cancel", "remove", "retry"):
            assert rule_of(http.post(path_of(key) + f"/{verb}", json=body), 400) == "invalid"
    assert rule_of(http.post(path_of(key) + "/retry", json={"force": True}), 400) == "invalid"
    assert broker.get(key).state == "queued"


def test_wishes_for_many_jobs_are_answered_each_in_its_place(
    http: httpx.Client, broker: Broker
) -> None:
    keys = [str(job.key) for job in broker.submit_many("echo", range(3))]
    mixed = [keys[0], "desk/echo//none", "elsewhere/echo//x", keys[1]]
    told = http.post("/v1/jobs/cancel", json={"keys": mixed}).json()
    assert [(one["key"], one["rule"]) for one in told] == [
        (keys[0], "desired"),
        ("desk/echo//none", "unknown"),
        ("elsewhere/echo//x", "unknown"),
        (keys[1], "desired"),
    ]
    retried = http.post("/v1/jobs/retry", json={"keys": keys}).json()
    assert [one["rule"] for one in retried] == ["submitted", "submitted", "not_terminal"]
    removed = http.post("/v1/jobs/remove", json={"keys": keys, "force": True}).json()
    assert [one["rule"] for one in removed] == ["removed"] * 3
    assert {str(job.key) for job in broker.jobs()} == {one["new_key"] for one in retried[:2]}


WRONG_KEYS = [
    ([], "keys"),
    (["7"], "keys.0"),
    (["desk/echo//1", "desk/echo//1"], "keys.1"),
    (["desk/echo//1", "\ud800/%41/x/y"], "keys.1"),
    (["desk/%ff//1"], "keys.0"),
    (["desk/echo//1"] * 1_001, "keys"),
    ("desk/echo//1", "keys"),
    ([["desk/echo//1"]], "keys.0"),
]


def test_wishes_for_many_jobs_take_whole_keys_once(http: httpx.Client) -> None:
    for (keys, field), verb in product(WRONG_KEYS, ("cancel", "retry", "remove")):
        answer = http.post(f"/v1/jobs/{verb}", content=json.dumps({"keys": keys}), headers=JSON)
        assert rule_of(answer, 400) == "invalid"
        assert answer.json()["field"] == field


def test_what_redis_was_given_wrongly_is_told_and_hides_nothing_else(
    http: httpx.Client, broker: Broker, store: Store
) -> None:
    key, other = broker.submit("echo", 1).key, broker.submit("echo", 2).key
    names = store.keys.of_job(key)
    for spec in (b"no json", b"[NaN]", b'"\\ud800"', b"[" * 200_000):
        store.client.set(names.spec, spec)
        answer = http.get(path_of(key))
        if answer.status_code != 200:
            assert rule_of(answer, 503) == "damaged"
        assert http.get(path_of(other)).status_code == 200
    store.client.delete(names.job)
    store.client.set(names.job, "x")
    assert [job["key"] for job in http.get("/v1/jobs").json()] == [str(other)]
    assert rule_of(http.get(path_of(key)), 503) == "damaged"
    assert rule_of(http.post(path_of(key) + "/cancel", json={}), 503) == "damaged"


def test_the_document_names_every_field_that_is_answered(
    http: httpx.Client, broker: Broker
) -> None:
    """Answers are not checked on their way, so that a long list is quick: here they are."""
    key = broker.submit("echo", 1).key
    placed(broker, key)
    found = http.get(path_of(key)).json()
    entries = http.get(path_of(key) + "/log").json()
    pairs = [
        (models.Shown, found | {"extras": None}),
        (models.Listed, http.get("/v1/jobs").json()[0]),
        (models.Why, http.get(path_of(key) + "/why").json()),
        (models.Timeline, entries),
        (models.Entry, entries["entries"][0]),
        (models.Record, entries["entries"][0]["record"]),
        (models.Outcome, http.post(path_of(key) + "/cancel", json={}).json()),
        (models.Retried, http.post(path_of(key) + "/retry", json={}).json()),
    ]
    for model, said in pairs:
        model.model_validate(said)
        assert set(model.model_fields) == set(said), model


def test_a_record_is_shown_by_the_same_words_everywhere(broker: Broker) -> None:
    [listed] = [broker.listed(broker.submit("echo", 1).key)]
    assert isinstance(listed, Listed)
    assert list(models.Listed.model_fields) == list(listed.to_json())
