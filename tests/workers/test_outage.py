"""Redis goes away, and comes back with all it had. Whatever a worker was doing, nothing is lost and nobody leaves."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
import redis

from broker.errors import Unavailable
from broker.store.connection import connect
from broker.store.server import find_server
from tests.workers.fleet import ENTRY, Fleet, alive, until
from workers.main import EXIT_UNAVAILABLE
from workers.outage import Outage

AWAY_SECONDS = 7


class Server:
    """A Redis on one socket that can be stopped and started again."""

    def __init__(self, folder):
        self.socket = folder / "s"
        self.command = [
            find_server().path,
            *("--port", "0", "--unixsocket", str(self.socket), "--dir", str(folder)),
            *("--appendonly", "yes", "--appendfsync", "always", "--save", ""),
        ]
        self.url = f"unix://{self.socket}"
        self.process = None

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL)
        client = connect(self.url)

        def answers():
            try:
                return client.ping()
            except Exception:  # noqa: BLE001 - whatever it is, it is not up yet
                return False

        until(answers)
        client.close()

    def stop(self):
        self.process.terminate()
        self.process.wait()

    def away(self, seconds=AWAY_SECONDS, meanwhile=lambda: None):
        self.stop()
        meanwhile()
        time.sleep(seconds)
        self.start()


@pytest.fixture
def server(tmp_path_factory):
    made = Server(tmp_path_factory.mktemp("r"))
    made.start()
    yield made
    made.stop()


@pytest.fixture
def fleet(server, namespace, tmp_path):
    made = Fleet(server.url, namespace, tmp_path)
    yield made
    made.close()


def hold(fleet, folder, **more):
    """A job that runs, and the file that lets it go (those after it, too)."""
    mark, go = folder / "mark", folder / "go"
    payload = {"mark": str(mark), "go": str(go)} | more
    job = fleet.hand(fleet.submit("held", payload, attempts=1))
    until(mark.exists)
    return job, go


def test_the_end_of_a_job_is_told_when_redis_is_back(server, fleet, tmp_path):
    worker = fleet.worker("held")
    job, go = hold(fleet, tmp_path)
    server.away(meanwhile=go.touch)
    record = fleet.ended(job)
    assert (record.state, record.tries, record.deaths) == ("completed", 1, 0)
    assert fleet.ended(hold(fleet, tmp_path)[0]).state == "completed"
    assert worker.poll() is None
    until(lambda: not fleet.leftovers())


def test_rqs_notes_may_fail_while_a_job_runs(server, fleet, tmp_path):
    worker = fleet.rq_worker(fleet.queue("held").name, "--job-monitoring-interval", "1")
    job, go = hold(fleet, tmp_path)
    server.away(3)
    go.touch()
    assert fleet.ended(job).state == "completed"
    assert fleet.ended(hold(fleet, tmp_path)[0]).state == "completed"
    assert worker.poll() is None


def test_a_death_is_told_when_redis_is_back(server, fleet, tmp_path):
    worker = fleet.worker("held")
    job, go = hold(fleet, tmp_path, dies=True)
    server.away(3, meanwhile=go.touch)
    record = fleet.ended(job)
    assert (record.state, record.reason, record.deaths) == ("failed", "died", 1)
    assert worker.poll() is None


def test_a_worker_without_work_waits_for_redis(server, fleet):
    worker = fleet.worker("echo")
    server.away(3)
    until(lambda: [seen for seen in fleet.beats(worker.pid) if seen.silent_ms < 1_000])
    assert fleet.run("echo", 1).state == "completed"
    assert worker.poll() is None


@pytest.mark.parametrize("options", [[], ["--inline"]])
def test_each_process_tells_one_story_of_an_outage(server, fleet, options):
    """Its beats, its asking for work and RQ's notes fail together; the beats of an inline one come from a child."""
    worker = fleet.worker("echo", *options)
    processes = 2 if options else 1
    for outage in (1, 2):
        server.away(4)
        until(lambda: worker.log.read_text().count("well again") >= outage * processes)  # noqa: B023
        assert fleet.run("echo", outage).state == "completed"
    said = worker.log.read_text()
    assert said.count("warning") == 2 * 2 * processes, said
    assert said.count("trying on") == said.count("well again") == 2 * processes


def test_a_redis_that_goes_away_between_the_first_beat_and_the_birth_is_told_in_one_line(fleet):
    command = [sys.executable, "-P", str(ENTRY), f"--namespace={fleet.namespace}"]
    imports = "tests.workers.early_outage"
    worker = fleet.spawn([*command, "--node=n1", "--engine=echo", f"--import={imports}"])
    assert worker.wait(180) == EXIT_UNAVAILABLE
    said = worker.log.read_text()
    assert "Redis does not answer: Error 111 connecting to h:6379. Connection refused\n" in said
    assert "Traceback" not in said


class TestOutage:
    """Kinds of calls, in the order in which they end."""

    @pytest.fixture
    def outage(self, caplog):
        return Outage("w")

    def test_it_is_over_when_each_kind_that_failed_was_taken(self, outage, caplog):
        for what in ("beat", "ask", "beat", "ask"):
            outage.met(what, time.monotonic(), Unavailable("away"))
        outage.taken("beat")
        assert told(caplog) == ["worker w: cannot beat: away; trying on"]
        outage.taken("ask")
        assert len(told(caplog)) == 2
        assert "well again after" in told(caplog)[1]

    def test_a_full_stop_of_redis_py_stands_before_no_semicolon(self, outage, caplog):
        outage.met("ask", time.monotonic(), redis.ConnectionError("Connection refused."))
        assert told(caplog) == ["worker w: cannot ask: Connection refused; trying on"]

    def test_what_fails_for_good_beside_others_is_told_once(self, outage, caplog):
        for _ in range(9):
            outage.met("ask", time.monotonic(), Unavailable("not allowed"))
            outage.taken("beat")
        assert len(told(caplog)) == 1

    def test_a_call_that_began_in_it_and_fails_late_is_no_new_one(self, outage, caplog):
        begun = time.monotonic()
        outage.met("beat", begun, Unavailable("away"))
        outage.taken("beat")
        outage.met("ask", begun, Unavailable("away"))
        assert len(told(caplog)) == 2
        outage.met("ask", time.monotonic(), Unavailable("away again"))
        assert "away again" in told(caplog)[2]


def told(caplog):
    return [record.getMessage() for record in caplog.records]


def test_a_timeout_is_enforced_while_redis_is_away(server, fleet, tmp_path):
    mark = tmp_path / "pid"
    fleet.worker("stubborn")
    job = fleet.hand(fleet.submit("stubborn", str(mark), timeout=6.0, attempts=1))
    until(mark.exists)
    server.stop()
    until(lambda: not alive(int(mark.read_text())))
    server.start()
    record = fleet.ended(job)
    assert (record.state, record.reason) == ("failed", "timeout")


@pytest.mark.parametrize("damaged", ["log", "job"])
def test_the_end_of_a_job_is_told_when_what_stood_in_its_way_is_mended(fleet, tmp_path, damaged):
    """As the auditor mends it: a key of a wrong type goes, and the job's own comes back from the log."""
    worker = fleet.worker("held")
    job, go = hold(fleet, tmp_path)
    client, keys = fleet.broker.store.client, fleet.broker.store.keys
    name = keys.of(job.key.origin).log if damaged == "log" else keys.of_job(job.key).job
    with client.pipeline(transaction=True) as pipe:  # a beat between the two would find no job
        pipe.rename(name, "aside").set(name, "spoilt").execute()
    if damaged == "job":
        until(lambda: "cannot beat" in worker.log.read_text())
    go.touch()
    time.sleep(3)  # longer than each re-send of its end
    client.rename("aside", name)
    record = fleet.ended(job)
    assert (record.state, record.tries, record.deaths) == ("completed", 1, 0)
    assert worker.poll() is None
    until(lambda: not fleet.leftovers())
    until(lambda: worker.log.read_text().count("all is well again") == (damaged == "job"))
    assert worker.log.read_text().count("cannot beat") == (damaged == "job")
