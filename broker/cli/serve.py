"""`broker serve`: the broker's roles on an existing Redis, until told to stop."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Annotated

import typer

from broker.config import settings

if TYPE_CHECKING:
    from broker.config import Settings
    from broker.store.store import Store

_log = logging.getLogger(__name__)


def serve(
    allow_volatile: Annotated[
        bool,
        typer.Option(
            "--allow-volatile",
            help="Also on a Redis that forgets: one that evicts, or has no append-only file.",
        ),
    ] = False,
) -> None:
    """Run the broker's roles on the Redis of REDIS_URL, until Ctrl-C or SIGTERM.

    Any number may run: of each role one leads, and another takes over within seconds when it ends. Redis must be set
    to keep what it took: maxmemory-policy noeviction, appendonly yes.
    """
    from broker.cli.signals import stop_orders
    from broker.logs import set_up_logs
    from broker.roles.serve import open_store, run_roles
    from broker.store.discover import find_url

    config = settings(allow_volatile=allow_volatile or None)
    set_up_logs(config.log_level, config.log_format)
    with stop_orders() as stop, open_store(find_url(config), config.namespace) as store:
        check_server(store, config)
        typer.echo("broker serve: the roles run; Ctrl-C ends them")
        run_roles(store, stop.event, config.budgets, config.bounds, config.trust_dir)


def check_server(store: Store, config: Settings) -> None:
    """Refuse a Redis whose settings may lose jobs, or warn where that is allowed. Raises Misconfigured, Unavailable."""
    from broker.checkup import check_start
    from broker.store.health import read

    for warning in check_start(read(store), allow_volatile=config.allow_volatile):
        _log.warning(warning)
