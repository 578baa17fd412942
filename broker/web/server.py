"""Runs the application: uvicorn on a thread with an event loop of its own, beside the roles."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from ipaddress import ip_address

import uvicorn

from broker.aio.calls import Calls
from broker.aio.client import AsyncBroker
from broker.client import Broker
from broker.config import Settings
from broker.errors import Misconfigured
from broker.web.app import create_app, methods_of
from broker.web.auth import Gate
from broker.web.body import Drain
from broker.web.guard import Guard
from broker.web.hosts import Door
from broker.web.hub import Hub
from broker.web.protocol import CLIENTS_MAX, REST_SECONDS_MAX, Connection, Seldom
from broker.web.timings import Timings

#: How long requests in hand may take to end when the server does, in seconds.
END_SECONDS_MAX = 3
#: How long a call of a request waits for a thread where others, which Redis may not answer, hold them, in seconds.
TURN_SECONDS_MAX = 5.0
#: Connections that the system holds until we take them.
BACKLOG = 1_024

_log = logging.getLogger(__name__)


@contextmanager
def serving(
    broker: Broker,
    *,
    turns: Callable[[], Mapping[str, float]] = dict,
    draining: threading.Event | None = None,
    died: Callable[[], object] = lambda: None,
) -> Iterator[str]:
    """Answer HTTP at `config.listen` while the context lasts; gives the url, empty where it is off.

    `broker` is closed with it. Once `draining` is set, only its health is told, and streams end. Where the server ends
    by itself, `died` is called from its thread, and the context ends with RuntimeError. Raises Misconfigured where the
    address cannot be listened at, or may not be without a token.
    """
    config = broker.config
    if config.listen == "off":
        yield ""
        return
    draining, timings = draining or threading.Event(), Timings()
    with bound(config) as (listener, door), broker.readers(told=timings.follow) as readers:
        calls = Calls(waiting_max=CLIENTS_MAX, wait_seconds_max=TURN_SECONDS_MAX)
        hub = Hub(AsyncBroker(broker, calls=calls), readers, turns, draining, timings)
        server = _Server(hub, door, Gate(config.token, door.port), listener, died)
        server.start()
        try:
            yield door.url
        finally:
            draining.set()
            server.stop()
    server.raise_failure()


class _Server:
    """The thread that serves."""

    def __init__(
        self,
        hub: Hub,
        door: Door,
        gate: Gate,
        listener: socket.socket,
        died: Callable[[], object],
    ) -> None:
        app = create_app(hub, gate)
        guard = Guard(
            app,
            door,
            gate,
            takes=methods_of(app).__contains__,
            is_full=lambda: len(self._uvicorn.server_state.connections) > CLIENTS_MAX,
            is_draining=hub.draining.is_set,
        )
        settings = uvicorn.Config(
            hub.timings.counted(Drain(guard)),
            http=Connection,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level=logging.WARNING,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=BACKLOG,
            timeout_keep_alive=REST_SECONDS_MAX,
            timeout_graceful_shutdown=END_SECONDS_MAX,
        )
        self._uvicorn = uvicorn.Server(settings)
        self._hub = hub
        self._listener = listener
        self._died = died
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self._drain = threading.Thread(target=self._end_streams, name="http-drain", daemon=True)

    def start(self) -> None:
        _quieten()
        self._thread.start()
        self._drain.start()

    def stop(self) -> None:
        """Take nothing new, let what is in hand end, and come back within seconds."""
        self._uvicorn.should_exit = True
        self._thread.join(2 * END_SECONDS_MAX)

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise RuntimeError(f"HTTP ended by itself: {self._failure!r}")

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as failure:  # noqa: BLE001 - told by whoever runs us
            self._failure = failure
        if self._uvicorn.should_exit:
            if self._failure is not None:
                _log.warning("HTTP ended with %r", self._failure)
                self._failure = None
        else:
            self._failure = self._failure or RuntimeError("no reason is known")
            self._died()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            await self._uvicorn.serve(sockets=[self._listener])
        finally:
            await self._hub.broker.close()

    def _end_streams(self) -> None:
        """They last as long as their readers do; and no connection waits for a further request."""
        self._hub.draining.wait()
        with suppress(RuntimeError):  # the loop may have ended already
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._end_rest)
        self._hub.readers.close()

    def _end_rest(self) -> None:
        for connection in list(self._uvicorn.server_state.connections):
            connection.shutdown()


def _quieten() -> None:
    logger = logging.getLogger("uvicorn.error")
    if not any(isinstance(one, Seldom) for one in logger.filters):
        logger.addFilter(Seldom())


@contextmanager
def bound(config: Settings) -> Iterator[tuple[socket.socket, Door]]:
    """The listening socket of `config.listen`, and what stands at its door; raises Misconfigured."""
    name, _, port = config.listen.rpartition(":")
    host = name.strip("[]")
    try:
        found = socket.getaddrinfo(
            host, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        # Of a name's addresses the one that all clients try.
        found.sort(key=lambda one: one[0] != socket.AF_INET)
        family, kind, number, _, address = found[0]
        listener = socket.socket(family, kind, number)
    except (OSError, UnicodeError) as wrong:
        raise _unusable(config, wrong) from None
    with listener:
        where = str(address[0])
        _check_token(config, where)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:  # `[::]` means everybody
                is_six = not ip_address(where.partition("%")[0]).is_unspecified
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, is_six)
            listener.bind(address)
            listener.listen(BACKLOG)
        except OSError as wrong:
            raise _unusable(config, wrong) from None
        # An address is known anyway; a name that was asked for is ours wherever it leads.
        named = {host.lower()} - {"localhost", where}
        yield (
            listener,
            Door(where.partition("%")[0], listener.getsockname()[1], named | {*config.hosts}),
        )


def _check_token(config: Settings, address: str) -> None:
    is_here = ip_address(address.partition("%")[0]).is_loopback
    if config.token is not None or (is_here and not config.hosts):
        return
    why = f"others reach {config.listen}" if not is_here else "setting hosts names us to others"
    raise Misconfigured(
        f"setting token: {why}, so one is required: give BROKER_TOKEN or BROKER_TOKEN_FILE, 16 characters or more "
        "(openssl rand -hex 24)"
    )


def _unusable(config: Settings, wrong: OSError | UnicodeError) -> Misconfigured:
    if isinstance(wrong, UnicodeError):  # between two dots of a name stands nothing, or too much
        wrong = OSError(errno.EINVAL, "that is no host name")
    why = wrong.strerror or str(wrong)
    if wrong.errno == errno.EADDRINUSE:
        why = "another program listens there (a second serve or up?)"
    return Misconfigured(
        f"setting listen: cannot listen at {config.listen}: {why}; "
        "give another one by --listen or BROKER_LISTEN: HOST:PORT, or off"
    )
