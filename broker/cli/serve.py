"""`broker serve`: the broker's roles on an existing Redis, and HTTP, until told to stop."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.exits import ERROR
from broker.config import settings

if TYPE_CHECKING:
    from broker.config import Settings
    from broker.roles.loop import Turns
    from broker.store.store import Store

#: `--listen`, of `serve` and `up`.
LISTEN = typer.Option(
    metavar="HOST:PORT",
    help="Where HTTP is answered, or off; default: 127.0.0.1:7070 (setting listen). Others than this machine need "
    "a token: BROKER_TOKEN or BROKER_TOKEN_FILE.",
)

_log = logging.getLogger(__name__)


def serve(
    allow_volatile: Annotated[
        bool,
        typer.Option(
            "--allow-volatile",
            help="Also on a Redis that forgets: one that evicts, or has no append-only file.",
        ),
    ] = False,
    listen: Annotated[str | None, LISTEN] = None,
) -> None:
    """Run the broker's roles on the Redis of REDIS_URL, and answer HTTP, until Ctrl-C or SIGTERM; twice: at once.

    Any number may run, each at an address of its own: of each role one leads, and another takes over within seconds
    when it ends. Redis must be set to keep what it took: maxmemory-policy noeviction, appendonly yes.
    """
    from broker.cli.signals import stop_orders
    from broker.logs import set_up_logs
    from broker.roles.loop import Turns
    from broker.roles.serve import open_store, run_roles
    from broker.store.discover import find_url

    config = settings(allow_volatile=allow_volatile or None, listen=listen)
    set_up_logs(config.log_level, config.log_format)
    url, turns = find_url(config), Turns()
    with stop_orders(_end_at_once) as stop, open_store(url, config.namespace) as store:
        check_server(store, config)
        with answering_http(url, config, stop.event, turns) as http:
            where = f"HTTP at {http}" if http else "no HTTP (setting listen is off)"
            typer.echo(f"broker serve: the roles run, {where}; Ctrl-C ends them")
            run_roles(store, stop.event, config.budgets, config.bounds, config.trust_dir, turns)


def _end_at_once() -> None:
    """Whatever still hangs is left as a kill would leave it: the fleet is made for that."""
    print("broker serve: ended at once; others lead when its leases have run out", file=sys.stderr)
    sys.stderr.flush()
    os._exit(ERROR)


@contextmanager
def answering_http(
    url: str, config: Settings, stop: threading.Event, turns: Turns
) -> Iterator[str]:
    """HTTP beside the roles, on connections of its own; gives its url, empty where it is off.

    From `stop` on it takes nothing new, and it sets `stop` where it ends by itself. Raises Misconfigured.
    """
    from broker.client import Broker
    from broker.roles.serve import open_store
    from broker.web.server import serving

    if config.listen == "off":
        yield ""
        return
    with (
        open_store(url, config.namespace) as store,
        serving(Broker(store, config), turns=turns.ages, draining=stop, died=stop.set) as where,
    ):
        yield where


def check_server(store: Store, config: Settings) -> None:
    """Refuse a Redis whose settings may lose jobs, or warn where that is allowed. Raises Misconfigured, Unavailable."""
    from broker.fleet.checkup import check_start
    from broker.store.health import read

    for warning in check_start(read(store), allow_volatile=config.allow_volatile):
        _log.warning(warning)
