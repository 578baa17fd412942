"""`broker up`: everything on one machine. A private Redis, the roles, and nodes with workers; Ctrl-C ends it all.

One runs for each data folder: it holds the lock on `up.lock` there for as long as it lives, and says in `up.json`
where its Redis is. A killed one leaves the file behind but never the lock, and all its children die with it.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from broker import Broker
from broker.cli.exits import ERROR, Exit
from broker.cli.serve import LISTEN
from broker.config import data_dir, engines, settings

if TYPE_CHECKING:
    from broker.cli.children import Children
    from broker.config import Settings
    from broker.roles.loop import Turns
    from broker.store.server import PrivateRedis

#: What runs where the user configured nothing: enough to try everything with.
DEMO_MODULE = "workers.demo"
NODES_MAX = 26
#: A command that looks whether we run holds the lock for a moment; only after so many seconds somebody else has it.
LOCK_SECONDS = 1.0
LOOK_SECONDS = 0.2
#: How long the workers may take to come up before the fleet is called running all the same.
READY_SECONDS_MAX = 20.0
#: They are all there when none came for so long.
SETTLED_SECONDS = 0.5


def up(
    nodes: Annotated[int, typer.Option(min=1, max=NODES_MAX, help="How many demo nodes.")] = 2,
    slots: Annotated[
        int | None,
        typer.Option(min=1, help="Slots for each engine on each node; default: the engine's own."),
    ] = None,
    engine: Annotated[
        list[str] | None, typer.Option(metavar="ENGINE", help="Only this engine; may be repeated.")
    ] = None,
    imports: Annotated[
        list[str] | None,
        typer.Option("--import", metavar="MODULE", help="A module that defines engines."),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--data-dir", help="Where the data is kept; default: $XDG_DATA_HOME/fleet-broker."
        ),
    ] = None,
    listen: Annotated[str | None, LISTEN] = None,
) -> None:
    """Run a whole fleet on this machine: Redis, the broker's roles, HTTP, and nodes with workers. Ctrl-C ends it.

    The engines are those of broker.toml and of --import, else a demo set. The data stays in the data folder.
    """
    from broker.cli.serve import answering_http
    from broker.cli.signals import stop_orders
    from broker.logs import hush_jobs, set_up_logs
    from broker.roles.loop import Turns
    from broker.store.server import PrivateRedis

    config = settings(listen=listen)
    set_up_logs(config.log_level, config.log_format)
    hush_jobs(config.log_level)
    modules = imports or ([] if engines() else [DEMO_MODULE])
    names = [f"node-{chr(ord('a') + n)}" for n in range(nodes)]
    home = (folder or data_dir()).absolute()
    with stop_orders() as stop, _locked(home), PrivateRedis(home / "redis") as redis:
        from broker.cli.children import FINISH_SECONDS, Children

        turns = Turns()
        children = Children(
            names, url=redis.url, slots=slots, engines=engine or [], imports=modules
        )
        with (
            answering_http(redis.url, config, stop.event, turns) as http,
            _told(home, redis, config, http),
            _roles(redis.url, config, stop.event, turns) as failed,
        ):
            try:
                children.start()
                _wait_for_workers(redis.url, config, names, children, stop.event)
                _print_where(home, redis, names, http)
                while not stop.event.wait(LOOK_SECONDS):
                    children.look()
                    if words := redis.last_words:
                        raise Exit(ERROR, f"the private Redis {words}")
                if failed:
                    raise failed[0]
                typer.echo(
                    f"broker up: ending; jobs in hand have {FINISH_SECONDS:g} s, "
                    "once more Ctrl-C ends them at once"
                )
            finally:
                children.stop(lambda: stop.orders > 1)
    typer.echo(f"broker up: ended; the data is in {home}")


@contextmanager
def _locked(home: Path) -> Iterator[None]:
    """Be the only one on this data folder."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Not inherited: no child may hold it after us.
    lock = os.open(home / "up.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        deadline = time.monotonic() + LOCK_SECONDS
        while not _take(lock):
            if time.monotonic() > deadline:
                raise Exit(ERROR, _who(home))
            threading.Event().wait(0.02)
        yield
    finally:
        os.close(lock)


def _take(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _who(home: Path) -> str:
    try:
        found = json.loads((home / "up.json").read_text())
        return f"broker up runs already: pid {found['pid']}, {found['url']} (data in {home})"
    except (OSError, ValueError, KeyError, TypeError):
        return f"broker up is just starting or ending (data in {home})"


@contextmanager
def _told(home: Path, redis: PrivateRedis, config: Settings, http: str) -> Iterator[None]:
    """Say in `up.json` where it runs, for this user only and whole at once; and no longer when it ends."""
    said: dict[str, Any] = {
        "pid": os.getpid(),
        "url": redis.url,
        "namespace": config.namespace,
        "redis_cli": redis.redis_cli,
        "http": http,
        "data_dir": str(home),
    }
    draft, file = home / "up.json.new", home / "up.json"
    draft.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            json.dump(said, out)
    except OSError as failed:  # of a write, unlike of an open, it does not name the file
        draft.unlink(missing_ok=True)
        raise OSError(failed.errno, failed.strerror, str(draft)) from failed
    draft.replace(file)
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


@contextmanager
def _roles(
    url: str, config: Settings, stop: threading.Event, turns: Turns
) -> Iterator[list[BaseException]]:
    """The roles, on a thread; what they failed with, if they did."""
    from broker.cli.serve import check_server
    from broker.roles.serve import open_store, run_roles

    failed: list[BaseException] = []
    end = threading.Event()

    def run() -> None:
        try:
            run_roles(store, end, config.budgets, config.bounds, config.trust_dir, turns)
        except BaseException as error:  # noqa: BLE001 - told by the main thread
            failed.append(error)
            stop.set()

    with open_store(url, config.namespace) as store:
        check_server(store, config)
        thread = threading.Thread(target=run, name="roles", daemon=True)
        thread.start()
        try:
            yield failed
        finally:
            end.set()
            thread.join()


def _wait_for_workers(
    url: str, config: Settings, nodes: Sequence[str], children: Children, stop: threading.Event
) -> None:
    """Until every node has workers and no more of them come: the first submit must find its engine."""
    deadline = time.monotonic() + READY_SECONDS_MAX
    counts: dict[str, int] = {}
    with Broker.from_url(url, namespace=config.namespace) as broker:
        while time.monotonic() < deadline and not stop.wait(SETTLED_SECONDS):
            children.look()
            before, counts = counts, _beating(broker, config.budgets.suspect_ms)
            if counts == before and counts.keys() >= set(nodes):
                return


def _beating(broker: Broker, suspect_ms: int) -> dict[str, int]:
    """How many workers of each node beat."""
    return Counter(worker.node for worker in broker.workers() if worker.silent_ms <= suspect_ms)


def _print_where(home: Path, redis: PrivateRedis, nodes: Sequence[str], http: str = "") -> None:
    lines = [
        "broker up: the fleet runs; Ctrl-C ends it, the data stays",
        f"  nodes      {', '.join(nodes)}",
        *([f"  dashboard  {http}/"] if http else []),
        f"  Redis      {redis.redis_cli}",
        f"  REDIS_URL  {redis.url}",
        f"  data       {home}",
    ]
    if home != data_dir() or os.environ.get("REDIS_URL"):
        lines.append(
            f"  elsewhere  export REDIS_URL={redis.url}   (else commands do not find this one)"
        )
    typer.echo("\n".join(lines))
