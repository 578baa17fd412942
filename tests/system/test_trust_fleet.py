"""Three nodes that trust each other, as real processes on a real Redis: stopped, frozen, and killed in between."""

from __future__ import annotations

import fcntl
import json
import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker import Broker
from broker.store.server import PrivateRedis
from tests.system.command import Command, until
from tests.system.peers import Peer

NODES = ("alpha", "beta", "gamma")
#: How long processes may take that begin all at once: it catches a hang, and no slow machine.
SECONDS_MAX = 300.0


class Fleet:
    """The nodes, and what their streams hold."""

    def __init__(self, command: Command, folder: Path) -> None:
        self.command = command
        self.alpha, self.beta, self.gamma = (Peer(command, folder, node) for node in NODES)

    def stream(self, node: str) -> list[tuple[str, str, str]]:
        """The id, the change and the node of each entry, as Redis itself tells them."""
        with Broker.from_url(
            self.command.env["REDIS_URL"], namespace=self.command.env["BROKER_NAMESPACE"]
        ) as broker:
            entries = broker.store.client.xrange(broker.store.keys.trust(node))
        return [
            (id.decode(), said[b"change"].decode(), said[b"node"].decode()) for id, said in entries
        ]


@pytest.fixture
def fleet(command: Command, tmp_path: Path) -> Fleet:
    return Fleet(command, tmp_path)


def numbered(*changes: tuple[str, str]) -> list[tuple[str, str, str]]:
    return [(f"{gen}-0", *change) for gen, change in enumerate(changes, 1)]


def run(peer: Peer, *words: object, stdin: str = "") -> str:
    ran = peer.process(*words, stdin=stdin.encode())
    assert (ran.code, ran.err) == (0, ""), ran
    return ran.out


def test_a_node_comes_by_a_word_goes_by_a_proof_and_comes_back_in_a_newer_epoch(fleet):
    alpha, beta, gamma = fleet.alpha, fleet.beta, fleet.gamma
    cards = {peer.node: run(peer, "init", "-o", "json") for peer in (alpha, beta, gamma)}
    run(alpha, "pin", "-", stdin=cards["beta"])
    run(beta, "pin", "-", stdin=cards["alpha"])
    run(alpha, "pin", "-", stdin=cards["gamma"])
    run(beta, "admit", "-", stdin=run(alpha, "endorse", "gamma"))
    assert beta.known() == ["alpha", "gamma"]
    run(beta, "remove", "--proof", "-", stdin=run(alpha, "remove", "gamma"))
    assert beta.known() == ["alpha"]
    assert beta.process("pin", "-", stdin=cards["gamma"].encode()).code == 4

    again = run(gamma, "init", "--epoch", 2, "-o", "json")
    run(alpha, "pin", "-", stdin=again)
    run(beta, "pin", gamma.folder / "node.crt", "--epoch", 2)
    assert [beta.card("gamma")["epoch"], alpha.card("gamma")["epoch"]] == [2, 2]
    assert fleet.stream("alpha") == numbered(
        ("pinned", "beta"),
        ("pinned", "gamma"),
        ("endorsed", "gamma"),
        ("removed", "gamma"),
        ("pinned", "gamma"),
    )
    assert fleet.stream("beta") == numbered(
        ("pinned", "alpha"), ("pinned", "gamma"), ("removed", "gamma"), ("pinned", "gamma")
    )
    assert fleet.stream("gamma") == []


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PrivateRedis]:
    """A Redis of this test's own, to be stopped and started."""
    with PrivateRedis(tmp_path / "redis") as made:
        yield made


@pytest.fixture
def away(fleet: Fleet, server: PrivateRedis, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """Alpha pinned beta and gamma while Redis was away; now it is back."""
    for peer in (fleet.alpha, fleet.beta, fleet.gamma):
        peer.init()
    fleet.command.env["REDIS_URL"] = server.url
    monkeypatch.setenv("REDIS_URL", server.url)
    server.stop()
    for other in (fleet.beta, fleet.gamma):
        ran = fleet.alpha.process("pin", other.folder / "node.crt")
        assert (ran.code, ran.err.count("\n")) == (0, 1)
        assert "warning" in ran.err
    assert fleet.alpha.known() == ["beta", "gamma"]
    fleet.command.env["REDIS_URL"] = server.start()
    monkeypatch.setenv("REDIS_URL", server.url)
    return fleet


BOTH = numbered(("pinned", "beta"), ("pinned", "gamma"))


def test_serve_tells_what_waited_for_redis(away):
    assert away.stream("alpha") == []
    with away.alpha.start("serve", stdout=subprocess.DEVNULL) as serving:
        until(lambda: len(away.stream("alpha")) == 2, SECONDS_MAX)
        until(lambda: not waiting(away.alpha), SECONDS_MAX)
        away.alpha.ok("endorse", "beta")
        serving.send_signal(signal.SIGTERM)
        assert serving.wait(SECONDS_MAX) == 0
        serving.stderr.read()
    assert away.stream("alpha") == [*BOTH, ("3-0", "endorsed", "beta")]


def test_the_next_command_tells_what_waited_for_redis(away):
    assert away.alpha.told() == [("pinned", "beta"), ("pinned", "gamma")]
    assert away.alpha.ok("show").err == ""
    assert away.stream("alpha") == BOTH


def waiting(peer: Peer) -> list[object]:
    """What its outbox holds: changes that were not told, and the one that was last begun."""
    said = json.loads((peer.folder / "outbox.json").read_text())
    return said["waiting"] + ([said["begun"]] if "begun" in said else [])


def test_many_who_tell_at_once_tell_once(away):
    telling = [away.alpha.start("trust", "show", stdout=subprocess.DEVNULL) for _ in range(6)]
    with away.alpha.start("serve", stdout=subprocess.DEVNULL) as serving:
        for process in telling:
            assert process.communicate(timeout=SECONDS_MAX)[1] == b""
        serving.send_signal(signal.SIGTERM)
        assert b"failed" not in serving.communicate(timeout=SECONDS_MAX)[1]
    assert away.stream("alpha") == BOTH


def test_many_who_pin_the_same_at_once_pin_once(fleet):
    fleet.alpha.init()
    card = fleet.alpha.file(fleet.beta.init().card())
    pinning = [fleet.alpha.start("trust", "pin", card) for _ in range(8)]
    said = [process.communicate(timeout=SECONDS_MAX) for process in pinning]
    assert sorted(out[:6] for out, _ in said) == [b""] * 7 + [b"pinned"]
    assert fleet.stream("alpha") == numbered(("pinned", "beta"))


@pytest.fixture
def blocked(
    fleet: Fleet, server: PrivateRedis, monkeypatch: pytest.MonkeyPatch
) -> Iterator[subprocess.Popen[bytes]]:
    """`pin beta` on alpha that hangs while it tells Redis of it: the change is on disk, and Redis takes no write."""
    fleet.command.env["REDIS_URL"] = server.url
    monkeypatch.setenv("REDIS_URL", server.url)
    fleet.alpha.init()
    card = fleet.alpha.file(fleet.beta.init().card())
    with Broker.from_url(server.url) as broker:
        broker.store.client.execute_command("CLIENT", "PAUSE", 60_000, "WRITE")
        with fleet.alpha.start("trust", "pin", card) as process:
            until(
                lambda: (
                    "b" in "".join(client["flags"] for client in broker.store.client.client_list())
                )
            )
            yield process
            process.communicate()


def kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    assert process.wait(SECONDS_MAX) == -signal.SIGKILL


def go_on(server: PrivateRedis) -> None:
    with Broker.from_url(server.url) as broker:
        broker.store.client.execute_command("CLIENT", "UNPAUSE")


def test_ctrl_c_while_redis_is_told_is_quiet_and_what_was_changed_is_told_by_the_next(
    fleet, server, blocked
):
    blocked.send_signal(signal.SIGINT)
    _, err = blocked.communicate(timeout=SECONDS_MAX)
    assert (blocked.returncode, err) == (130, b"")
    go_on(server)
    assert fleet.alpha.known() == ["beta"]
    assert fleet.stream("alpha") == numbered(("pinned", "beta"))


def test_one_that_is_killed_before_redis_took_it_has_told_once_after_the_next(
    fleet, server, blocked
):
    kill(blocked)
    go_on(server)
    assert fleet.alpha.known() == ["beta"]
    assert fleet.stream("alpha") == numbered(("pinned", "beta"))
    assert waiting(fleet.alpha) == []


def test_one_that_is_killed_after_redis_took_it_has_told_once_after_the_next(
    fleet, server, blocked
):
    with (fleet.alpha.folder / "lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # so it cannot note that Redis has it
        go_on(server)
        until(lambda: fleet.stream("alpha"))
        kill(blocked)
    assert len(waiting(fleet.alpha)) == 1
    fleet.alpha.ok("show")
    assert fleet.stream("alpha") == numbered(("pinned", "beta"))
    assert waiting(fleet.alpha) == []


def test_one_that_is_killed_at_any_moment_did_all_or_nothing(fleet):
    """What stands on disk was told once after the next command, and what does not was never told."""
    draw = random.Random(20_261_129)
    fleet.alpha.init()
    card = fleet.alpha.file(fleet.beta.init().card())
    count = fleet.alpha.files / "count"

    def pin(epoch: int, last: int) -> int:
        program = ("-m", "tests.system.mortal", fleet.alpha.folder, count, last)
        process = fleet.alpha.start("trust", "pin", card, "--epoch", epoch, program=program)
        process.communicate(timeout=SECONDS_MAX)
        return process.returncode

    assert pin(1, 0) == 0
    calls = int(count.read_text())
    run(fleet.alpha, "remove", "beta")
    expected = [("pinned", "beta"), ("removed", "beta")]
    for epoch in range(2, 14):
        # In each twelfth of its way once; the last calls may not come, for no two ways are quite alike.
        last = int((epoch - 2 + draw.random()) / 12 * calls * 0.95) + 1
        assert pin(epoch, last) == -signal.SIGKILL
        is_pinned = fleet.alpha.known() == ["beta"] and fleet.alpha.card("beta")["epoch"] == epoch
        expected += [("pinned", "beta")] * is_pinned
        assert [change for _, *change in map(tuple, fleet.stream("alpha"))] == [
            list(said) for said in expected
        ]
        assert waiting(fleet.alpha) == []
        assert not list(fleet.alpha.folder.rglob("*.tmp"))
