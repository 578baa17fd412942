"""What the source document on ordered broadcasts says: emitted in order, and marked as seen only after that.

"Emitted" is here: an entry in the origin's log, which each reader is told once. Cases 51-54 on one job are in
test_sources.py, those of a subscriber in test_sources_subscribe.py.

Not here, for they come with another part: 58 (who is no member sends and gets nothing: joining), 95-115 (an HTTP door);
what the latter say of an event, whichever door it takes, is at the end. Not here at all: 59 (targets told apart by
more than their name: a node's name is its identity), and what is said of a full queue and of frames that are given up
after three tries: nobody sends to a reader here, each reads the log at its own pace.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import redis

from broker.client import Broker
from broker.config import settings
from broker.errors import Unavailable
from broker.producer import JobEvents
from broker.rules.bounds import Bounds
from broker.rules.replay import rev_order
from broker.store.server import PrivateRedis
from broker.store.store import Store
from broker.store.watch import Watcher
from tests.store.readers import ORIGIN, changes_until, patient
from tests.store.story import CREATED
from tests.store.twins import key
from tests.system.sources import Moments, Source, frame, removal

THREADS = 16
#: What makes Redis refuse every write: the setting, and the value that ends it.
REFUSALS = {"full": ("maxmemory", 1, 0), "without its replica": ("min-replicas-to-write", 1, 0)}

FRAMES = {
    "numbered": frame("completed", "a", 2),
    "not numbered": frame("completed", "a"),
    "resync": frame("completed", "a", resync=True),
    "a broad removal": removal(),
    "an exact removal": removal(engine="ollama", runId=""),
}
each_frame = pytest.mark.parametrize("told", FRAMES.values(), ids=FRAMES)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server of our own: these tests spoil it."""
    options = {"appendonly": "no", "save": ""}
    with PrivateRedis(tmp_path_factory.mktemp("spoiled"), options=options) as server:
        yield server


@pytest.fixture
def own(server, namespace):
    """Makes clients of that server, each with connections of its own."""
    made, url = [], patient(server.url)

    def make():
        made.append(Broker(Store.from_url(url, namespace), settings(node="desk")))
        return made[-1]

    yield make
    for broker in made:
        broker.close()


@pytest.fixture
def spoiled(own):
    return own()


@contextmanager
def writes_refused(broker, how="full"):
    name, value, before = REFUSALS[how]
    broker.store.client.config_set(name, value)
    try:
        yield
    finally:
        broker.store.client.config_set(name, before)


def revs_of(broker):
    return [entry.rev for entry in broker.log(ORIGIN).entries()]


class TestMarkedAfterTheEmit:
    @pytest.mark.parametrize("how", REFUSALS)
    @each_frame
    def test_49_a_failed_emit_is_told_its_retry_emitted_once_and_the_third_not(
        self, spoiled, told, how
    ):
        spoiled.report(frame("running", "a"))
        with spoiled.watch() as watcher:
            watcher.snapshot()
            with writes_refused(spoiled, how):
                for _ in range(2):
                    with pytest.raises(Unavailable):
                        spoiled.report(told)
                assert watcher.changes(0) == []
            answers = [spoiled.report(told).outcome for _ in range(2)]
            assert answers == ["applied", "duplicate"]
            assert [change.key for change in watcher.changes(60_000)] == [key()]
        assert len(revs_of(spoiled)) == 2

    def test_49_a_batch_cut_off_at_any_moment_and_sent_again_whole_is_emitted_once(
        self, broker, redis_url, namespace, monkeypatch
    ):
        def batch(id):
            for origin in ("desk", "nas", "shelf"):
                of = {"id": str(id), "originatedFrom": origin}
                yield frame("queued", "a", **of)
                yield frame("running", "a", **of)
                yield frame("completed", "a", **of)
                yield removal(str(id), originatedFrom=origin)

        def cut_off():
            raise redis.ConnectionError("cut off")

        with Broker(Store.from_url(redis_url, namespace), settings(node="desk")) as sender:
            moments = Moments(sender.store, monkeypatch)
            list(sender.report_many(batch("first")))
            calls = moments.count(lambda: list(sender.report_many(batch("second"))))
            assert calls >= 6
            for number in range(calls):
                moments.before(number, cut_off)
                with pytest.raises(Unavailable):
                    list(sender.report_many(batch(number)))
                list(sender.report_many(batch(number)))
        for origin in ("desk", "nas", "shelf"):
            entries = broker.log(origin).entries()
            told = [(entry.job, entry.record and entry.record.state) for entry in entries]
            assert len(told) == len(set(told)) == (calls + 2) * 4

    def test_49_the_same_by_the_command_line(self, server, command, spoiled, monkeypatch, tmp_path):
        monkeypatch.setenv("REDIS_URL", server.url)
        file = tmp_path / "frames.jsonl"
        file.write_text(json.dumps(frame("running", "a", 1)))
        with writes_refused(spoiled):
            assert command("report", file).code == 6
        outcomes = [command.ok("report", file).lines[0]["outcome"] for _ in range(2)]
        assert outcomes == ["applied", "duplicate"]

    def test_49_a_job_whose_removal_failed_is_still_listed(self, spoiled):
        spoiled.report(frame("running", "a", 1))
        with writes_refused(spoiled), pytest.raises(Unavailable):
            spoiled.report(removal())
        assert [job.key for job in spoiled.jobs()] == [key()]
        assert spoiled.report(frame("completed", "a", 2)).rule == "higher_seq"

    def test_50_of_concurrent_duplicates_exactly_one_is_emitted_once_writes_succeed(self, own):
        """Nobody gets through before everybody has failed; then all try again at once."""
        brokers = [own() for _ in range(THREADS)]
        rounds = [frame("running", "a", id=str(number)) for number in range(10)]
        rounds += [removal(str(number)) for number in range(5)]
        gate = threading.Barrier(THREADS + 1, timeout=60)

        def send(broker):
            answers = []
            for told in rounds:
                gate.wait()
                gate.wait()  # shut
                with pytest.raises(Unavailable):
                    broker.report(told)
                gate.wait()
                gate.wait()  # open
                answers.append(broker.report(told).outcome)
            return answers

        with ThreadPoolExecutor(THREADS) as pool:
            sending = [pool.submit(send, broker) for broker in brokers]
            for _ in rounds:
                gate.wait()
                with writes_refused(brokers[0]):
                    gate.wait()
                    gate.wait()
                gate.wait()
            answers = [thread.result() for thread in sending]
        for heard in zip(*answers, strict=True):
            assert Counter(heard) == {"applied": 1, "duplicate": THREADS - 1}
        assert len(revs_of(brokers[0])) == len(rounds)

    def test_50_a_job_whose_emit_fails_holds_up_no_other(self, broker):
        damaged = broker.store.keys.of_job(key("2")).job
        broker.store.client.set(damaged, "spoiled")
        frames = [frame("running", "a", 1, id=id) for id in "123"]
        outcomes = [answer.outcome for answer in broker.report_many(frames)]
        assert outcomes == ["applied", "error", "applied"]
        broker.store.client.delete(damaged)
        assert [broker.report(frames[1]).outcome for _ in range(2)] == ["applied", "duplicate"]

    def test_51_a_removal_that_was_forgotten_lets_no_ghost_in(self, twin):
        source = Source(twin(Bounds(tombstones_max=2)))
        source.say("running", "a", 1)
        source.take_away()
        for id in ("8", "9"):
            source.wait(1)
            source.take_away(id, engine="ollama")
        assert "7" not in source.twin.books().tombstones
        assert source.say("running", "a", 2, resync=True) == "refused tombstoned"
        assert source.take_away() == "applied removed"  # it reads as new
        assert source.jobs == []

    def test_53_a_removal_speaks_of_its_own_origin_alone(self, broker):
        for origin in ("desk", "nas"):
            broker.report(frame("running", "a", 1, originatedFrom=origin))
        for origin in ("desk", "nas"):
            assert broker.report(removal(originatedFrom=origin)).rule == "removed"
        assert broker.jobs() == []


class TestOrder:
    def test_55_twenty_five_frames_arrive_in_the_order_in_which_they_were_sent(self, broker):
        broker.report(frame("running", "a", 1, id="before"))
        with broker.watch() as watcher:
            watcher.snapshot()
            sent = [str(number) for number in range(25)]
            for id in sent:
                broker.report(frame("running", "a", 1, id=id))
            told = changes_until(watcher, lambda told: len(told) >= 25)
        assert [change.key.id for change in told] == sent

    def test_55_each_reader_sees_what_sixteen_threads_send_in_the_order_of_the_log(self, broker):
        def send(thread):
            for number in range(25):
                broker.report(frame("running", str(number), number + 1, id=str(thread)))

        broker.report(frame("running", "a", 1, id="before"))
        with ThreadPoolExecutor(THREADS + 3) as pool:
            watchers = [broker.watch() for _ in range(3)]
            for watcher in watchers:
                watcher.snapshot()
            enough = THREADS * 25
            reading = [
                pool.submit(changes_until, watcher, lambda told: len(told) >= enough)
                for watcher in watchers
            ]
            list(pool.map(send, range(THREADS)))
            heard = [[change.rev for change in told.result()] for told in reading]
            for watcher in watchers:
                watcher.close()
        log = revs_of(broker)[1:]
        assert log == sorted(log, key=rev_order)
        assert heard == [log] * 3

    def test_55_frames_that_failed_keep_their_places(self, spoiled):
        with JobEvents(spoiled, "ollama", retry_seconds=3_600) as events:
            with writes_refused(spoiled):
                job = events.create()
                events.dispatch(job, "a")
                events.start(job)
                events.finish(job)
            assert revs_of(spoiled) == []
            events.step()
        told = [(entry.record.seq, entry.record.state) for entry in spoiled.log(ORIGIN).entries()]
        assert told == [(1, "queued"), (2, "queued"), (3, "running"), (4, "completed")]

    def test_47_W5_a_producer_that_closes_writes_what_waits_or_says_how_much_it_could_not(
        self, spoiled
    ):
        events = JobEvents(spoiled, "ollama", retry_seconds=3_600)
        with writes_refused(spoiled):
            job = events.create()
            events.dispatch(job, "a")
            events.finish(job)
            assert events.close(timeout=0) == 3
        assert revs_of(spoiled) == []
        assert events.close() == 0
        assert [entry.record.state for entry in spoiled.log(ORIGIN).entries()] == [
            "queued", "queued", "completed"
        ]  # fmt: skip

    def test_56_a_repeat_taken_before_the_removal_and_sent_after_it_revives_nothing(self, broker):
        """The producer's own snapshot: it asserts its live jobs again, and is held between taking and sending."""

        class Held:
            config = broker.config
            held = None

            def report(self, event):
                if self.held:
                    self.held()
                return broker.report(event)

        sender = Held()
        with JobEvents(sender, "ollama", resync_seconds=0, retry_seconds=3_600) as events:
            job = events.create()
            events.dispatch(job, "a")
            events.start(job)
            sender.held = lambda: broker.remove(job.key)
            events.step()
            assert events.live == []  # nor does it try again
        assert [entry.event for entry in broker.log(ORIGIN).entries()][-1] == "remove"
        assert broker.jobs() == []
        assert [refusal.rule for refusal in broker.view.refusals(job.key)] == ["tombstoned"]

    @pytest.mark.parametrize("exact", [{}, {"engine": "ollama", "runId": ""}], ids=["broad", "exact"])  # fmt: skip
    def test_56_a_removal_while_a_listing_is_held_comes_last_whenever_that_is(
        self, broker, redis_url, namespace, monkeypatch, exact
    ):
        """Held before each call that a listing makes: between cursor and scan, between two pages, before the replay."""
        monkeypatch.setattr("broker.store.scan.PAGE", 50)
        ids = [str(number) for number in range(200)]
        list(broker.report_many(frame("running", "a", 1, id=id) for id in ids))
        store = Store.from_url(redis_url, namespace)
        moments = Moments(store, monkeypatch)
        with Watcher(store) as watcher:
            calls = moments.count(watcher.snapshot)
        assert calls > 10
        for number in range(calls):
            with Watcher(store) as watcher:
                moments.before(number, lambda id=ids[number]: broker.report(removal(id, **exact)))
                held = watcher.snapshot().records
                for change in watcher.changes(0):
                    assert change.record is None
                    held.pop(change.key, None)
            assert set(held) == {key(id) for id in ids[number + 1 :]}
        store.close()

    def test_57_five_rounds_use_the_connections_of_the_first(self, own, spoiled):
        reader = own()
        with reader.watch() as watcher:
            watcher.snapshot()
            opened = []
            for number in range(5):
                spoiled.report(frame("running", "a", 1, id=str(number)))
                assert len(watcher.changes(60_000)) == 1
                assert watcher.changes(1) == []
                opened.append(spoiled.store.client.info("stats")["total_connections_received"])
        assert len(set(opened)) == 1

    def test_48_who_comes_late_is_told_what_runs_and_what_ended_and_nothing_that_was_removed(
        self, broker
    ):
        broker.report(frame("running", "a", 1, id="runs"))
        broker.report(frame("completed", "a", 1, id="ended"))
        broker.report(frame("running", "a", 1, id="removed"))
        broker.report(removal("removed"))
        with broker.watch() as watcher:
            assert {one.id for one in watcher.snapshot().records} == {"runs", "ended"}


class TestEitherDoor:
    """What 95-115 say of an event, whichever door it takes."""

    @pytest.mark.parametrize(
        "wrong",
        [{"id": "x" * 257}, {"state": "Running"}, {"state": ""}, {"originatedFrom": "No Node"}, {"engine": ""}],
        ids=["long id", "case", "no state", "origin", "no engine"],
    )  # fmt: skip
    def test_a_frame_out_of_bounds_is_refused_and_leaves_no_trace(self, broker, wrong):
        before = set(broker.store.client.scan_iter(f"{broker.store.keys.namespace}:*"))
        told = frame("running", "a", 1)
        told["params"]["workloadInfo"] |= wrong
        [outcome] = broker.report_many([told])
        assert (outcome.outcome, outcome.rule) == ("refused", "invalid")
        assert set(broker.store.client.scan_iter(f"{broker.store.keys.namespace}:*")) == before

    @pytest.mark.parametrize("id", ["x" * 256, "a/b", "*", "7\n8", "{7}", "é" * 128])
    def test_an_id_of_up_to_256_bytes_is_a_job_like_any_other(self, broker, id):
        assert broker.report(frame("running", "a", 1, id=id)).applied
        assert broker.report(frame("completed", "a", 2, id=id)).rule == "higher_seq"
        assert broker.report(removal(id)).rule == "removed"
        assert broker.jobs() == []

    def test_sixty_four_at_once_are_emitted_each_once_and_in_one_order(self, broker):
        frames = [frame("running", "a", 1, id=str(number)) for number in range(64)]
        with ThreadPoolExecutor(THREADS) as pool:
            answers = list(pool.map(broker.report, frames))
        assert sorted((answer.rev for answer in answers), key=rev_order) == revs_of(broker)

    def test_a_removal_keeps_out_its_job_until_a_newer_one_of_that_name_comes(self, source):
        source.say("running", "a", 1)
        source.take_away()
        assert source.say("completed", "a", 2) == "refused tombstoned"
        source.wait(3_600_000)  # an hour later as well
        assert source.say("completed", "a", 2, resync=True) == "refused tombstoned"
        assert source.say("running", "a", 1, id="8") == "applied first_sighting"
        assert source.say("running", "a", 1, createdAt=source.now) == "applied first_sighting"
        assert source.say("completed", "a", 2, createdAt=CREATED) == "refused tombstoned"
        assert source.now_is() == ("running", "a", 1)
