"""The client as a program uses it, on a real Redis; what workers would say is said by hand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from broker import (
    Broker,
    Invalid,
    JobFailed,
    Key,
    NotFound,
    Refused,
    TimedOut,
    WorkerInfo,
)
from tests.system.command import held as holder
from tests.system.command import patient, reported, until, waits


class TestSubmitting:
    def test_gives_a_queued_job_of_this_node(self, broker: Broker) -> None:
        job = broker.submit("echo", {"n": 1})
        record = job.record()
        assert (job.key.origin, job.key.engine, job.key.run) == ("desk", "echo", "")
        assert (record.state, record.kind, record.attempt, record.attempts) == (
            "queued",
            "submitted",
            1,
            3,
        )

    def test_new_ids_have_twelve_characters_and_sort_by_time(self, broker: Broker) -> None:
        ids = [job.id for job in broker.submit_many("echo", range(250))]
        assert {len(id) for id in ids} == {12}
        assert ids == sorted(set(ids))

    def test_the_same_id_and_payload_is_the_same_job(self, broker: Broker) -> None:
        first = broker.submit("echo", {"a": 1, "b": 2}, id="7")
        second = broker.submit("echo", {"b": 2, "a": 1}, id="7")
        assert first.key == second.key
        assert len(broker.jobs()) == 1

    def test_the_same_id_with_another_payload_is_refused(self, broker: Broker) -> None:
        broker.submit("echo", 1, id="7")
        with pytest.raises(Refused) as refused:
            broker.submit("echo", 2, id="7")
        assert refused.value.rule == "conflict"

    @pytest.mark.parametrize(
        "options",
        [
            {"priority": 101},
            {"attempts": 0},
            {"attempts": 2, "at_most_once": True},
            {"timeout": 0},
            {"timeout": -1},
            {"delay": -1},
            {"delay": float("nan")},
        ],
    )
    def test_options_out_of_bounds_are_invalid(self, broker: Broker, options: dict) -> None:
        with pytest.raises(Invalid):
            broker.submit("echo", 1, **options)
        assert broker.jobs() == []

    @pytest.mark.parametrize("payload", ["x" * 1024 * 1024, {1, 2}, float("nan")])
    def test_a_payload_that_is_no_json_of_1_mib_is_invalid(
        self, broker: Broker, payload: object
    ) -> None:
        with pytest.raises(Invalid):
            broker.submit("echo", payload)

    def test_a_long_model_is_kept_whole(self, broker: Broker) -> None:
        model = "hf.co/mradermacher/Mistral-Small-3.1-24B-Instruct-2503-abliterated-i1-GGUF:Q4_K_M"
        job = broker.submit("echo", 1, model=model, id="i" * 100)
        assert job.record().model == model
        job.cancel()
        anew = broker.retry(job.key).record()
        assert (anew.model, anew.retry_of) == (model, str(job.key))
        with pytest.raises(Invalid, match="model"):
            broker.submit("echo", 1, model="m" * 257)

    def test_at_most_once_means_one_attempt(self, broker: Broker) -> None:
        assert broker.submit("echo", 1, at_most_once=True).record().attempts == 1


class TestFinding:
    def test_any_unambiguous_end_of_a_key_names_the_job(self, broker: Broker) -> None:
        job = broker.submit("ollama", 1, id="7")
        broker.submit("ollama", 1, id="17")
        for text in ("7", "ollama/7", "ollama//7", "desk/ollama//7"):
            assert broker.find(text) == job.key

    @pytest.mark.parametrize(
        "id", ["ü 100% λ", "a/b", "a//b", "a/b/c/d/e", "a/", "/", "%ff", "a%2Fb", "x:\x01"]
    )
    def test_an_id_as_it_is_names_its_job(self, broker: Broker, id: str) -> None:
        job = broker.submit("echo", 1, id=id)
        assert broker.find(id) == broker.find(str(job.key)) == job.key

    def test_an_id_that_looks_like_the_end_of_another_key_is_ambiguous(
        self, broker: Broker
    ) -> None:
        literal, decoded = broker.submit("echo", 1, id="%20"), broker.submit("echo", 1, id=" ")
        with pytest.raises(Invalid, match="names 2 jobs: desk/echo//%20, desk/echo//%2520"):
            broker.find("%20")
        assert broker.find(" ") == broker.find("echo/%20") == decoded.key
        assert broker.find("%2520") == literal.key

    @pytest.mark.parametrize(
        "text", ["", "a/b/c/d/e", "a/", "%ff", "Desk/echo//7", "\ud800", "x" * 257]
    )
    def test_what_is_neither_a_key_nor_an_id_is_told_so(self, broker: Broker, text: str) -> None:
        broker.submit("echo", 1)
        with pytest.raises(Invalid):
            broker.find(text)

    def test_an_ambiguous_end_names_the_candidates(self, broker: Broker) -> None:
        broker.submit("ollama", 1, id="7")
        broker.submit("lmstudio", 1, id="7")
        with pytest.raises(Invalid, match="desk/lmstudio//7, desk/ollama//7"):
            broker.find("7")
        assert broker.find("ollama/7").engine == "ollama"

    def test_an_unknown_one_is_not_found(self, broker: Broker) -> None:
        with pytest.raises(NotFound):
            broker.find("7")
        with pytest.raises(NotFound):
            broker.get("desk/echo//7")

    @pytest.mark.parametrize("id", ["a/b", "a:b", "50%", "{x}", "a b", "ü", "x" * 256, "\n"])
    def test_odd_ids_are_found_by_their_encoded_text(self, broker: Broker, id: str) -> None:
        job = broker.submit("echo", 1, id=id)
        assert broker.find(str(job.key)) == job.key
        assert broker.find(str(job.key).split("/")[-1]) == job.key

    def test_engine_and_run_never_run_together(self, broker: Broker) -> None:
        one = broker.submit("a:b", 1, run="c", id="7")
        two = broker.submit("a", 1, run="b:c", id="7")
        assert one.key != two.key
        assert {listed.key for listed in broker.jobs()} == {one.key, two.key}


@contextmanager
def meanwhile(broker: Broker, act: Callable[..., object], *args: object) -> Iterator[None]:
    """Done on another thread once somebody waits; it has its answer before the connections are closed."""

    def once_waited_for() -> None:
        until(lambda: waits(broker))
        act(*args)

    other = threading.Thread(target=once_waited_for)
    other.start()
    try:
        yield
    finally:
        other.join()


class TestEnding:
    def test_the_result_comes_back(self, broker: Broker) -> None:
        job = broker.submit("echo", 1)
        assert holder(broker, job.key).finish("completed", result={"n": 2}).rule == "finished"
        assert job.result(timeout=1) == {"n": 2}

    def test_a_null_result_is_a_result(self, broker: Broker) -> None:
        job = broker.submit("echo", 1)
        holder(broker, job.key).finish("completed")
        assert job.result(timeout=1) is None

    def test_a_failed_job_tells_its_whole_error(self, broker: Broker) -> None:
        job = broker.submit("echo", 1)
        holder(broker, job.key).finish("failed", error="e" * 200)
        assert len(job.record().error) == 64
        with pytest.raises(JobFailed, match="e" * 200):
            job.result(timeout=1)

    def test_a_reported_job_that_failed_tells_its_whole_error_too(self, broker: Broker) -> None:
        broker.report(reported("7", "failed", error="e" * 200))
        with pytest.raises(JobFailed, match="failed: " + "e" * 200):
            broker.result("desk/ollama//7")

    def test_waiting_ends_when_the_job_does(self, broker: Broker) -> None:
        job = broker.submit("echo", 1)
        held = holder(broker, job.key)
        with meanwhile(broker, held.finish, "completed"):
            record = job.wait(timeout=60)
        assert record is not None
        assert record.state == "completed"

    def test_waiting_ends_when_the_job_is_removed(self, broker: Broker) -> None:
        job = broker.submit("echo", 1)
        with meanwhile(broker, broker.remove, job.key):
            assert job.wait(timeout=60) is None

    def test_waiting_has_a_deadline(self, broker: Broker) -> None:
        with pytest.raises(TimedOut):
            broker.submit("echo", 1).wait(timeout=0.05)

    def test_a_retryable_failure_waits_for_its_backoff(self, broker: Broker) -> None:
        job = broker.submit("echo", 1)
        assert holder(broker, job.key).finish("failed", retryable=True).rule == "requeued"
        record = job.record()
        assert (record.state, record.attempt, record.tries) == ("queued", 2, 1)
        assert record.due > 0

    def test_retry_is_a_new_job_that_names_the_old_one(self, broker: Broker) -> None:
        job = broker.submit("echo", {"n": 1}, priority=5, timeout=3)
        held = holder(broker, job.key)
        with pytest.raises(Refused) as running:
            broker.retry(job.key)
        assert running.value.rule == "not_terminal"
        held.finish("failed", error="broken")
        anew = broker.retry(job.key)
        record = anew.record()
        assert anew.key != job.key
        assert (record.retry_of, record.priority, record.timeout) == (str(job.key), 5, 3000)
        assert broker.show(anew.key)["payload"] == {"n": 1}


class TestWishing:
    def test_a_waiting_job_is_cancelled_at_once(self, broker: Broker) -> None:
        job = broker.submit("echo", 1)
        assert job.cancel().rule == "desired"
        assert (job.record().state, job.record().attempt) == ("cancelled", 2)
        assert job.cancel().rule == "too_late"

    def test_a_running_job_is_asked_to_stop(self, broker: Broker) -> None:
        job = broker.submit("echo", 1)
        held = holder(broker, job.key)
        assert job.cancel().rule == "desired"
        assert job.cancel().rule == "no_change"
        assert held.beat() == (True, "cancel", False)

    def test_force_ends_it_and_refuses_its_worker(self, broker: Broker) -> None:
        job = broker.submit("echo", 1)
        held = holder(broker, job.key)
        job.cancel(force=True)
        assert job.record().state == "cancelled"
        assert not held.beat().valid
        assert held.finish("completed").rule == "terminal"
        [refusal] = broker.why(job.key).refusals
        assert (refusal.rule, refusal.event) == ("terminal", "finish")

    def test_a_running_job_is_removed_when_its_worker_ends_it(self, broker: Broker) -> None:
        job = broker.submit("echo", 1)
        held = holder(broker, job.key)
        assert broker.remove(job.key).rule == "remove_requested"
        assert held.finish("cancelled").rule == "finished"
        with pytest.raises(NotFound):
            broker.get(job.key)
        assert broker.submit("echo", 1, id=job.id).record().attempt == 1

    def test_a_pair_takes_every_engine_and_run(self, broker: Broker) -> None:
        for engine, run in (("a", ""), ("a", "r1"), ("b", "")):
            broker.submit(engine, 1, run=run, id="7")
        broker.submit("a", 1, id="8")
        assert broker.remove_pair("desk", "7").rule == "removed"
        assert [listed.key.id for listed in broker.jobs()] == ["8"]


class TestExplaining:
    @pytest.fixture(autouse=True)
    def patience(self, monkeypatch: pytest.MonkeyPatch) -> None:
        patient(monkeypatch)

    def test_why_names_the_deciding_event_and_what_would_change_it(self, broker: Broker) -> None:
        job = broker.submit("echo", 1)
        why = broker.why(job.key).to_json()
        assert why["deciding"]["rule"] == "submitted"
        assert why["deciding"]["rev"] == job.record().rev
        assert "No node offers engine echo" in why["next"][0]

    def test_why_knows_that_a_job_was_removed(self, broker: Broker) -> None:
        job = broker.submit("echo", 1)
        broker.remove(job.key)
        why = broker.why(str(job.key))
        assert why.listed is None
        assert why.tombstone > 0

    def test_why_knows_from_when_on_a_forgotten_job_would_be_taken(self, broker: Broker) -> None:
        broker.store.client.hset(broker.store.keys.of("desk").meta, "horizon", 1_764_400_000_000)
        key = Key("desk", "ollama", "", "7")
        with pytest.raises(NotFound, match="since 2025-11-29"):
            broker.why(key)
        told = {"event": "report", "origin": "desk", "engine": "ollama", "id": "7", "seq": 1}
        outcome = broker.report(told | {"state": "running", "created_at": 1_764_400_000_000})
        assert outcome.rule == "tombstoned"
        assert broker.why(key).next[0].startswith("Only what was created after 2025-11-29")
        with pytest.raises(NotFound):
            broker.why("desk/echo//other")

    def test_a_running_job_without_beats_is_in_doubt(self, broker: Broker) -> None:
        job = broker.submit("echo", 1)
        holder(broker, job.key)
        worker = WorkerInfo(name="node-a-w", node="node-a", engine="echo", pid=1, started_at=1)
        broker.beat(worker)
        assert not broker.listed(job.key).suspect
        broker.store.client.zadd(broker.store.keys.workers, {"node-a-w": 1})
        broker.store.client.hset(broker.store.keys.of_job(job.key).job, "last_seen", 1)
        assert broker.listed(job.key).suspect


class TestReporting:
    def test_outcomes_come_in_the_order_of_the_events(self, broker: Broker) -> None:
        events = [
            {"event": "report", "origin": origin, "engine": "e", "id": str(n), "state": state}
            | {"seq": seq, "created_at": 1_000}
            for n in range(300)
            for origin in ("desk", "lab")
            for state, seq in (("running", 2), ("queued", 1))
        ]
        outcomes = list(broker.report_many(events))
        assert [outcome.rule for outcome in outcomes] == ["first_sighting", "stale_seq"] * 600
        assert [outcome.key for outcome in outcomes[:3]] == [
            "desk/e//0",
            "desk/e//0",
            "lab/e//0",
        ]

    def test_an_invalid_event_is_an_answer_and_the_rest_goes_on(self, broker: Broker) -> None:
        good = {"event": "report", "origin": "desk", "engine": "e", "id": "1", "state": "queued"}
        events = [good | {"created_at": "0x10"}, good | {"created_at": 5}]
        assert [outcome.rule for outcome in broker.report_many(events)] == [
            "invalid",
            "first_sighting",
        ]

    def test_unknown_fields_are_carried_along(self, broker: Broker) -> None:
        broker.report(
            {"event": "report", "origin": "desk", "engine": "e", "id": "1", "state": "queued"}
            | {"created_at": 5, "gpu": {"name": "x", "load": 0.5}}
        )
        assert broker.show("1")["extras"] == {"gpu": {"name": "x", "load": 0.5}}

    def test_the_log_alone_gives_the_list_back(self, broker: Broker) -> None:
        job = broker.submit("echo", 1, id="1")
        broker.submit("echo", 1, id="2")
        holder(broker, job.key).finish("completed", result=1)
        broker.remove("2")
        replayed = broker.replay("desk")
        assert list(replayed) == [job.key]
        assert replayed[job.key].rev == job.record().rev
        assert replayed[job.key].state == "completed"
