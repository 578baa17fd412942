"""Events from third-party producers. What the ingress of the sources does, row by row, and the test that holds it here.

- Off by default, loopback only, port in use: one listener for everything, by `listen` and the token: test_server.
- Non-POST 405: `test_it_is_posted_and_nothing_else`; OPTIONS alone is told what is allowed.
- Headers before the body, the reply waits for none: test_events_bounds.
- Any Origin 403, Host 421, Content-Type 415: `test_who_may_not_post_is_told_by_the_headers_alone`.
- A body above 1 MiB 413: test_events_bounds.
- 400, each case of it: `test_what_is_no_event_is_refused_by_its_field`, and more in tests/rules/test_ingress.py.
- The origin of another node 400: not so, `test_a_producer_may_speak_for_any_origin`: one broker serves a fleet.
- `resync` in any spelling 400: not so, `test_a_resync_is_taken`; spelled otherwise it is one of the 400.
- The same exact name twice: `test_of_the_same_name_twice_the_last_value_counts`.
- 500 the write failed, nothing kept, a retry does no harm: test_events_failures.
- 200 written: `test_an_event_is_answered_by_outcome_rule_and_rev`; what is queued for peers is the log itself.
- Timeouts: test_events_bounds for the body; head and idle: test_server.
- A rejected frame leaves no trace: `test_what_is_refused_leaves_no_trace`.
- An empty origin is stamped: `test_an_event_without_an_origin_is_of_this_node`.
- Unknown fields pass through: `test_unknown_fields_are_kept_as_they_came`.
- One order, also of 64 posts at once: the tests below "many at once".
- A failed removal leaves the job: test_events_failures.
- A removal's tombstone: `test_after_a_removal_no_late_word_makes_a_ghost`; its 60 s and 4,096: not so, tests/store.
- A new lifecycle clears it, resync passes it: a newer created_at does, resync does not:
  `test_a_newer_job_of_the_same_name_is_taken_after_a_removal`.
- Ids should not collide with the proxy's: they cannot, `test_two_engines_may_use_one_number`.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, NamedTuple

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker import Broker, Invalid
from broker import settings as settings_of
from broker.rules.ingress import read
from broker.rules.wire import parse_line
from broker.store import connection
from broker.store.store import Store
from broker.web import server
from broker.web.server import serving
from tests.rules.test_ingress import anything, nearly
from tests.system.command import reported
from tests.web.producer import CREATED, PATH, contents, frame, post, unframe

KEY = "desk/ollama//7"


def rules(response: httpx.Response) -> list[tuple[str, str]]:
    """Outcome and rule of each event."""
    assert response.status_code == 200, response.text
    said = response.json()
    return [(one["outcome"], one["rule"]) for one in (said if isinstance(said, list) else [said])]


def log(broker: Broker, origin: str = "desk") -> list[tuple[str, dict[bytes, bytes]]]:
    entries = broker.store.client.xrange(broker.store.keys.of(origin).log)
    return [(rev.decode(), fields) for rev, fields in entries]


# --- answers --------------------------------------------------------------------------------------


def test_an_event_is_answered_by_outcome_rule_and_rev(http: httpx.Client, broker: Broker) -> None:
    told = post(http, reported(seq=1))
    [(rev, _)] = log(broker)
    assert told.json() == {
        "key": KEY, "outcome": "applied", "rule": "first_sighting", "rev": rev,
    }  # fmt: skip
    assert told.headers["content-type"] == "application/json"


def test_a_frame_is_answered_alike(http: httpx.Client, broker: Broker) -> None:
    told = post(http, frame("workload:submitted", state="queued", runId="r1", scheduledOn="gpu-1"))
    assert rules(told) == [("applied", "first_sighting")]
    record = broker.get(told.json()["key"])
    assert (record.state, record.node) == ("queued", "gpu-1")


def test_an_array_is_answered_by_an_array_in_order(http: httpx.Client) -> None:
    told = post(http, [reported("a"), frame(id="b"), reported("a"), unframe("c"), reported("c")])
    assert rules(told) == [
        ("applied", "first_sighting"),
        ("applied", "first_sighting"),
        ("duplicate", "no_change"),
        ("applied", "removed"),
        ("refused", "tombstoned"),
    ]
    keys = [one["key"] for one in told.json()]
    assert keys == [
        "desk/ollama//a",
        "desk/ollama//b",
        "desk/ollama//a",
        "desk/c",
        "desk/ollama//c",
    ]


def test_an_array_of_one_is_answered_by_an_array(http: httpx.Client) -> None:
    assert isinstance(post(http, [reported()]).json(), list)


def test_refused_and_duplicate_are_answers_like_any_other(http: httpx.Client) -> None:
    assert rules(post(http, reported(state="completed", seq=4)))[0][0] == "applied"
    assert rules(post(http, reported(state="completed", seq=4))) == [("duplicate", "no_change")]
    assert rules(post(http, reported(state="failed", seq=5))) == [("refused", "terminal")]
    assert rules(post(http, reported(state="running", created_at=9))) == [
        ("refused", "older_generation")
    ]


def test_what_only_redis_can_judge_is_refused_by_the_rules(http: httpx.Client) -> None:
    told = post(http, reported(created_at=10**14))  # days ahead of its clock
    assert rules(told) == [("refused", "invalid")]


@pytest.mark.parametrize("said", [reported(origin=""), reported(origin=None), frame(), unframe()])
def test_an_event_without_an_origin_is_of_this_node(http: httpx.Client, said: Any) -> None:
    assert post(http, said).json()["key"].startswith("desk/")


def test_a_producer_may_speak_for_any_origin(http: httpx.Client) -> None:
    said = [reported(origin="den"), frame(originatedFrom="attic"), unframe(originatedFrom="barn")]
    assert [one["key"] for one in post(http, said).json()] == [
        "den/ollama//7", "attic/ollama//7", "barn/7",
    ]  # fmt: skip


def test_two_engines_may_use_one_number(http: httpx.Client, broker: Broker) -> None:
    post(http, [reported(engine="ollama"), reported(engine="vllm", state="failed")])
    states = {str(listed.key): listed.record.state for listed in broker.jobs()}
    assert states == {KEY: "running", "desk/vllm//7": "failed"}


def test_a_resync_is_taken(http: httpx.Client) -> None:
    assert rules(post(http, frame(resync=True))) == [("applied", "first_sighting")]
    assert rules(post(http, reported(resync=True, node="gpu-1"))) == [("applied", "repoint")]


def test_unknown_fields_are_kept_as_they_came(http: httpx.Client, broker: Broker) -> None:
    said = json.dumps(reported())[:-1] + ',"cost" :1.10,"labels":{ "a" : [1 ,2]}}'
    post(http, f"[{said}]".encode())
    kept = broker.store.client.get(broker.store.keys.of_job(broker.find(KEY)).spec)
    assert kept == b'{"cost":1.10,"labels":{ "a" : [1 ,2]}}'


def test_of_the_same_name_twice_the_last_value_counts(http: httpx.Client, broker: Broker) -> None:
    twice = json.dumps(reported(state="nonsense"))[:-1] + ',"state":"queued"}'
    assert rules(post(http, twice.encode())) == [("applied", "first_sighting")]
    assert broker.get(KEY).state == "queued"


def test_after_a_removal_no_late_word_makes_a_ghost(http: httpx.Client, broker: Broker) -> None:
    assert rules(post(http, unframe())) == [("applied", "removed")]  # before anything was known
    assert (
        rules(post(http, [frame(), frame(resync=True), reported(run="r2")]))
        == [("refused", "tombstoned")] * 3
    )
    assert rules(post(http, frame(id="8"))) == [("applied", "first_sighting")]
    assert [str(listed.key) for listed in broker.jobs()] == ["desk/ollama//8"]


def test_a_newer_job_of_the_same_name_is_taken_after_a_removal(http: httpx.Client) -> None:
    post(http, unframe(removedAt=CREATED + 1))
    assert rules(post(http, frame(createdAt=CREATED + 1))) == [("refused", "tombstoned")]
    assert rules(post(http, frame(createdAt=CREATED + 2))) == [("applied", "first_sighting")]


# --- what is refused ------------------------------------------------------------------------------


class Shut(NamedTuple):
    """A server of which nothing that a test posts may ever leave a trace."""

    http: httpx.Client
    store: Store


@pytest.fixture(scope="module")
def shut(redis_url: str) -> Iterator[Shut]:
    namespace = f"shut-{os.getpid()}"
    given = settings_of(namespace=namespace, node="desk", listen="127.0.0.1:0")
    with (
        closing(Store.from_url(redis_url, namespace)) as store,
        serving(Broker(Store.from_url(redis_url, namespace), given)) as url,
        httpx.Client(base_url=url, trust_env=False, timeout=60) as http,
    ):
        yield Shut(http, store)


KELVIN = {"wor\u212aloadId": "7"}
WRONG: dict[str, tuple[Any, str | None]] = {
    "not JSON": (b"{", None),
    "not UTF-8": (b'{"event":"\xff"}', None),
    "NaN": (b'{"event":"report","seq":NaN}', None),
    "too deep": (b"[" * 9_999, None),
    "no object": (7, None),
    "no event": ({}, None),
    "an unknown event": ({"event": "report!"}, "event"),
    "another jsonrpc": (frame() | {"jsonrpc": "1.0"}, "jsonrpc"),
    "an unknown method": (frame("workloads:upsert"), "method"),
    "no params": ({"jsonrpc": "2.0", "method": "workload:started"}, "params"),
    "no workloadInfo": (frame() | {"params": {}}, "params.workloadInfo"),
    "no engine": (reported(engine=None), "engine"),
    "no id": (unframe(""), "params.workloadId"),
    "no created_at": (reported(created_at=None), "created_at"),
    "another state": (frame(state="Running"), "params.workloadInfo.state"),
    "a long id": (reported("x" * 257), "id"),
    "a long workloadId": (unframe("x" * 257), "params.workloadId"),
    "a negative number": (reported(seq=-1), "seq"),
    "an origin that is no text": (frame(originatedFrom=7), "params.workloadInfo.originatedFrom"),
    "a folded name": (reported() | {"State": "queued"}, "State"),
    "a long s": (reported() | {"\u017ftate": "queued"}, "\u017ftate"),
    "a Kelvin sign": (unframe("7", **KELVIN), "params.wor\u212aloadId"),
    "two names that fold together": (reported() | {"note": 1, "NOTE": 2}, "NOTE"),
    "resync otherwise spelled": (reported() | {"reSync": True}, "reSync"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_event_is_refused_by_its_field(shut: Shut, name: str) -> None:
    body, field = WRONG[name]
    told = post(shut.http, body)
    assert told.status_code == 400
    assert told.headers["content-type"] == "application/problem+json"
    said = told.json()
    assert (said["rule"] in {"malformed", "invalid"}, said.get("field")) == (True, field)
    assert "index" not in said


@pytest.mark.parametrize("name", [name for name in WRONG if isinstance(WRONG[name][0], dict | int)])
def test_one_that_is_none_refuses_the_whole_array(shut: Shut, name: str) -> None:
    body, field = WRONG[name]
    told = post(shut.http, [reported("a"), body, reported("b")])
    said = told.json()
    assert (told.status_code, said["index"], said.get("field")) == (400, 1, field)
    assert contents(shut.store) == {}


@pytest.mark.parametrize("count", [0, 1_001])
def test_an_array_holds_one_to_a_thousand(shut: Shut, count: int) -> None:
    told = post(shut.http, [unframe()] * count)
    assert (told.status_code, told.json()["rule"]) == (400, "malformed")


def test_a_thousand_are_taken_at_once(http: httpx.Client, broker: Broker) -> None:
    told = post(http, [reported(str(n)) for n in range(1_000)])
    assert rules(told) == [("applied", "first_sighting")] * 1_000
    assert [one["rev"] for one in told.json()] == [rev for rev, _ in log(broker)]


def test_an_id_of_256_bytes_is_taken(http: httpx.Client) -> None:
    assert rules(post(http, [reported("x" * 256), unframe("é" * 128)])) == [
        ("applied", "first_sighting"),
        ("applied", "removed"),
    ]


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "PATCH", "DELETE"])
def test_it_is_posted_and_nothing_else(shut: Shut, method: str) -> None:
    told = shut.http.request(method, PATH, headers={"origin": "http://evil.example"})
    assert (told.status_code, told.headers["allow"]) == (405, "OPTIONS, POST")


def test_who_asks_what_a_page_may_do_is_told_nothing_that_a_browser_takes_for_leave(
    shut: Shut,
) -> None:
    asked = {"origin": "http://evil.example", "access-control-request-method": "POST"}
    told = shut.http.options(PATH, headers=asked)
    assert (told.status_code, told.content, told.headers["allow"]) == (204, b"", "OPTIONS, POST")
    assert not [name for name in told.headers if name.startswith("access-control")]


STRANGERS = {
    "a page": ({"origin": "http://evil.example"}, 403),
    "a page of our own": ({"origin": "OWN"}, 403),
    "a page of nobody": ({"origin": "null"}, 403),
    "a page without a name": ({"origin": ""}, 403),
    "a rebound host": ({"host": "evil.example"}, 421),
    "another port": ({"host": "127.0.0.1:1"}, 421),
    "a form": ({"content-type": "application/x-www-form-urlencoded"}, 415),
    "a text": ({"content-type": "text/plain"}, 415),
    "almost JSON": ({"content-type": "application/json-patch+json"}, 415),
    "no type": ({"content-type": ""}, 415),
}


@pytest.mark.parametrize("who", STRANGERS)
def test_who_may_not_post_is_told_by_the_headers_alone(shut: Shut, who: str) -> None:
    headers, status = STRANGERS[who]
    own = str(shut.http.base_url).rstrip("/")
    given = {name: value.replace("OWN", own) for name, value in headers.items()}
    for body in (reported(), b"{"):  # whatever it holds
        told = post(shut.http, body, **given)
        assert (told.status_code, told.json()["status"]) == (status, status)
    assert contents(shut.store) == {}


@pytest.mark.parametrize(
    "kind", ["application/json", "application/json; charset=utf-8", "Application/JSON;charset=x"]
)
def test_json_is_json_whatever_it_says_beside(http: httpx.Client, kind: str) -> None:
    assert post(http, reported(), content_type=kind).status_code == 200


def test_what_is_refused_leaves_no_trace(http: httpx.Client, store: Store) -> None:
    post(http, [reported(seq=2), reported("8", "completed"), unframe("9")])
    before = contents(store)
    assert len(before) > 5
    statuses = {post(http, body).status_code for body, _ in WRONG.values()}
    statuses |= {
        post(http, reported("new"), **given).status_code for given, _ in STRANGERS.values()
    }
    statuses |= {http.get(PATH).status_code, post(http, []).status_code}
    assert statuses == {400, 403, 405, 415, 421}
    assert contents(store) == before


def test_with_a_token_it_must_be_there(serve: Any, store: Store) -> None:
    url = serve(token="a-token-of-24-letters-ok")
    with httpx.Client(base_url=url, trust_env=False, timeout=60) as http:
        told = post(http, reported())
        assert (told.status_code, told.headers["www-authenticate"]) == (401, "Bearer")
        assert post(http, b"{", authorization="Bearer wrong-token-of-its-own").status_code == 401
        assert contents(store) == {}
        taken = post(http, reported(), authorization="Bearer a-token-of-24-letters-ok")
        assert taken.status_code == 200


# --- many at once ---------------------------------------------------------------------------------


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer of Redis is waited for, however late: one that is given up and asked for again may be a duplicate.

    So is a thread: who finds none in time is told to come again.
    """
    monkeypatch.setattr(connection, "ANSWER_SECONDS_MAX", 60.0)
    monkeypatch.setattr(server, "TURN_SECONDS_MAX", 60.0)


def at_once(http: httpx.Client, bodies: list[Any]) -> list[httpx.Response]:
    with ThreadPoolExecutor(len(bodies)) as threads:
        return list(threads.map(lambda body: post(http, body), bodies))


@pytest.mark.usefixtures("unhurried")
def test_sixty_four_posts_at_once_leave_the_record_of_the_highest_number(
    http: httpx.Client, broker: Broker
) -> None:
    bodies = [reported(seq=n, node=f"gpu-{n}", state="queued") for n in range(1, 64)]
    told = at_once(http, [*bodies, reported(seq=64, node="gpu-64", state="completed")])
    counts = Counter(rule for response in told for _, rule in rules(response))
    assert counts.total() == 64
    assert set(counts) <= {"first_sighting", "higher_seq", "stale_seq", "terminal"}
    record = broker.get(KEY)
    assert (record.state, record.seq, record.node) == ("completed", 64, "gpu-64")
    revs = {response.json()["rev"] for response in told if response.json()["outcome"] == "applied"}
    assert [rev for rev, _ in log(broker)] == sorted(revs, key=_order)


@pytest.mark.usefixtures("unhurried")
def test_arrays_at_once_keep_each_its_own_order(http: httpx.Client, broker: Broker) -> None:
    def story(job: int) -> list[Any]:
        said = [reported(str(job), "queued", seq=n, node=f"gpu-{n}") for n in range(1, 12)]
        return [*said, reported(str(job), "completed", seq=12, node="gpu-11")]

    for response in at_once(http, [story(job) for job in range(64)]):
        assert [rule for _, rule in rules(response)] == ["first_sighting", *["higher_seq"] * 11]
        revs = [one["rev"] for one in response.json()]
        assert revs == sorted(revs, key=_order)
    assert {listed.record.state for listed in broker.jobs()} == {"completed"}
    assert len(log(broker)) == 64 * 12


def test_the_log_has_the_order_of_the_answers_for_each_origin(
    http: httpx.Client, broker: Broker
) -> None:
    """Longer than one atomic step, three origins in turn, broad removals between."""
    said: list[Any] = []
    for n in range(300):
        origin = ("desk", "den", "attic")[n % 3]
        said.append(reported(str(n // 3), origin=origin))
        if n % 50 == 49:
            said.append(unframe(str(n // 3), originatedFrom=origin))
    answers = post(http, said).json()
    assert {one["outcome"] for one in answers} == {"applied"}
    for origin in ("desk", "den", "attic"):
        told = [one["rev"] for one in answers if one["key"].startswith(f"{origin}/")]
        assert told == [rev for rev, _ in log(broker, origin)]


def test_a_repeat_is_a_duplicate_where_the_event_names_itself(
    http: httpx.Client, broker: Broker
) -> None:
    """By its number, its shape, its event_id; a removal by its tombstone."""
    said = [
        reported("numbered", seq=1),
        reported("shaped", node="a"),
        reported("named", resync=True, event_id="e1"),
        unframe("gone"),
    ]
    first = post(http, said).json()
    assert {one["outcome"] for one in first} == {"applied"}
    before = log(broker)
    assert [outcome for outcome, _ in rules(post(http, said))] == ["duplicate"] * 4
    assert log(broker) == before


def _order(rev: str) -> tuple[int, int]:
    high, low = rev.split("-")
    return int(high), int(low)


# --- anything -------------------------------------------------------------------------------------


@pytest.fixture
def lines(redis_url: str, namespace: str) -> Iterator[Broker]:
    """Who reads events from a file, on a namespace of its own. One for all examples: who begins does not ask twice."""
    store = Store.from_url(redis_url, f"{namespace}-line")
    with Broker(store, settings_of(namespace=f"{namespace}-line", node="desk")) as made:
        yield made


@pytest.mark.usefixtures("unhurried")
@settings(
    max_examples=300,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(body=anything | nearly | st.lists(nearly, max_size=3))
def test_whatever_is_posted_is_answered_and_taken_as_broker_report_takes_it(
    http: httpx.Client, lines: Broker, body: Any
) -> None:
    """The same events in the same order."""
    told = post(http, body)
    assert told.status_code in {200, 400}, told.text
    said = told.json()
    if told.status_code == 400:
        assert said["rule"] in {"malformed", "invalid"}
        return
    pairs = zip(body, said, strict=True) if isinstance(body, list) else [(body, said)]
    for event, answer in pairs:
        try:
            line = parse_line(json.dumps(event))
        except Invalid:  # a line has to name its origin
            [line], _ = read(json.dumps(event), "desk")
            assert answer["key"].startswith("desk/")
        [outcome] = lines.report_many([line])
        assert outcome.to_json() | {"rev": ""} == answer | {"rev": ""}
