"""Wishes for many jobs in one call: each is decided by itself, and a call that is sent again applies once."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

import pytest

from broker import Broker, Key, Refused, settings
from broker.store.store import Store
from tests.store.cutting_proxy import CuttingProxy
from tests.system.command import held, reported


def rules(outcomes):
    return [(outcome.outcome, outcome.rule) for outcome in outcomes]


def failed(broker, **options):
    job = broker.submit("echo", {"n": 1}, **options)
    held(broker, job.key).finish("failed", error="boom")
    return job.key


class TestCancelling:
    def test_answers_in_the_order_of_the_keys_whatever_their_origin(self, broker):
        keys = [broker.submit("echo", n, origin="desk" if n % 3 else "nas").key for n in range(9)]
        outcomes = broker.cancel_many(keys)
        assert [outcome.key for outcome in outcomes] == [str(key) for key in keys]
        assert {broker.get(key).state for key in keys} == {"cancelled"}

    def test_decides_each_by_its_own_state(self, broker):
        queued, running, ended = (broker.submit("echo", n).key for n in range(3))
        held(broker, running)
        held(broker, ended).finish("completed")
        broker.report(reported())
        keys = [queued, running, ended, broker.find("ollama//7"), Key("desk", "echo", "", "none")]
        assert rules(broker.cancel_many(keys)) == [
            ("applied", "desired"),
            ("applied", "desired"),
            ("refused", "too_late"),
            ("applied", "desired"),
            ("refused", "unknown"),
        ]
        assert rules(broker.cancel_many(keys[1:4], force=True)) == [
            ("applied", "desired"),
            ("refused", "too_late"),
            ("refused", "not_ours"),
        ]
        assert [broker.get(key).state for key in keys[:2]] == ["cancelled", "cancelled"]

    def test_takes_the_ends_of_keys_and_nothing(self, broker):
        broker.submit("echo", id="a")
        assert rules(broker.cancel_many(["echo//a"])) == [("applied", "desired")]
        assert broker.cancel_many([]) == []

    def test_says_a_wish_that_was_sent_twice_once(self, broker):
        key = broker.submit("echo").key
        assert rules(broker.cancel_many([key, key])) == [
            ("applied", "desired"),
            ("refused", "too_late"),
        ]


class TestRemoving:
    def test_takes_what_ended_and_asks_what_runs(self, broker):
        queued, running = (broker.submit("echo", n).key for n in range(2))
        held(broker, running)
        broker.report(reported())
        keys = [queued, running, broker.find("ollama//7")]
        assert rules(broker.remove_many(keys)) == [
            ("applied", "removed"),
            ("applied", "remove_requested"),
            ("applied", "removed"),
        ]
        assert [str(listed.key) for listed in broker.jobs()] == [str(running)]
        assert rules(broker.remove_many(keys, force=True)) == [
            ("duplicate", "seen"),
            ("applied", "removed"),
            ("duplicate", "seen"),
        ]


class TestRetrying:
    def test_answers_each_by_its_rule_and_names_the_new_job(self, broker):
        ended, queued, spent = failed(broker), broker.submit("echo").key, failed(broker)
        broker.store.client.delete(broker.store.keys.of_job(spent).spec)
        broker.report(reported(state="failed"))
        keys = [ended, queued, spent, broker.find("ollama//7"), Key("desk", "echo", "", "none")]
        outcomes = broker.retry_many(keys)
        assert rules(outcomes) == [
            ("applied", "submitted"),
            ("refused", "not_terminal"),
            ("refused", "expired"),
            ("refused", "not_ours"),
            ("refused", "unknown"),
        ]
        assert [outcome.key for outcome in outcomes] == [str(key) for key in keys]
        assert [bool(outcome.new_key) for outcome in outcomes] == [True, *[False] * 4]
        anew = broker.get(outcomes[0].new_key)
        assert (anew.retry_of, anew.state, broker.view.spec(Key.parse(outcomes[0].new_key))) == (
            str(ended),
            "queued",
            {"n": 1},
        )
        assert list(outcomes[0].to_json()) == ["key", "outcome", "rule", "rev", "new_key"]

    def test_a_payload_that_is_null_is_one(self, broker):
        key = broker.submit("echo", None).key
        broker.cancel(key)
        assert broker.view.spec(broker.retry(key).key) is None

    def test_more_than_a_batch(self, broker):
        keys = [job.key for job in broker.submit_many("echo", range(250))]
        broker.cancel_many(keys)
        outcomes = broker.retry_many(keys)
        assert len({outcome.new_key for outcome in outcomes}) == 250
        specs = broker.view.specs([Key.parse(outcome.new_key) for outcome in outcomes])
        assert specs == [(n,) for n in range(250)]

    def test_a_retried_job_names_the_one_before_it(self, broker):
        first = failed(broker, priority=7, attempts=2, timeout=3, model="m", requester="me")
        second = broker.retry(first).key
        held(broker, second).finish("failed", error="boom")
        third = broker.retry(second).key
        records = [broker.get(key) for key in (first, second, third)]
        assert [record.retry_of for record in records] == ["", str(first), str(second)]
        options = ("priority", "attempts", "timeout", "model", "requester", "digest")
        assert len({tuple(getattr(each, name) for name in options) for each in records}) == 1
        assert [record.tries for record in records] == [1, 1, 0]

    def test_a_later_job_of_the_same_name_is_retried_as_itself(self, broker):
        broker.cancel(broker.submit("echo", "old", id="7").key)
        broker.remove("7")
        key = broker.submit("echo", "new", id="7").key
        with pytest.raises(Refused, match="has not ended: it is queued"):
            broker.retry(key)
        broker.cancel(key)
        assert broker.view.spec(broker.retry(key).key) == "new"


@pytest.fixture
def proxied(redis_server, namespace):
    """A client whose replies can be swallowed."""
    path = unquote(redis_server.url.removeprefix("unix://"))
    assert Path(path).is_socket()
    with CuttingProxy(path) as proxy:
        store = Store.from_url(f"redis://127.0.0.1:{proxy.port}", namespace)
        yield Broker(store, settings(namespace=namespace, node="desk")), proxy
        store.close()


@pytest.mark.parametrize("verb", ["cancel_many", "remove_many", "retry_many"])
def test_a_call_whose_answer_is_lost_is_sent_again_and_applies_once(broker, proxied, verb):
    """The reply to the one writing call is swallowed; redis-py sends it again, in silence."""
    through, proxy = proxied
    jobs = [job.key for job in broker.submit_many("echo", range(5))]
    if verb == "retry_many":
        broker.cancel_many(jobs)
    through.cancel_many([])
    before = len(broker.log("desk").read())
    run = through.store.scripts.run

    def cutting(name, *words):
        proxy.cut(1)
        return run(name, *words)

    through.store.scripts.run = cutting
    outcomes = getattr(through, verb)(jobs)
    assert all(outcome.ok for outcome in outcomes)
    assert {outcome.outcome for outcome in outcomes} == {"duplicate"}
    written = {"cancel_many": 5, "remove_many": 10, "retry_many": 5}[verb]
    assert len(broker.log("desk").read()) == before + written
    if verb == "retry_many":
        assert len(broker.jobs(state="queued")) == 5
        assert {broker.get(told.new_key).retry_of for told in outcomes} == set(map(str, jobs))
