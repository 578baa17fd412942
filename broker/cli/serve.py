"""`broker serve`: the broker's roles on an existing Redis, until told to stop."""

from __future__ import annotations

import typer

from broker.config import settings


def serve() -> None:
    """Run the broker's roles on the Redis of REDIS_URL, until Ctrl-C or SIGTERM.

    Any number may run: of each role one leads, and another takes over within seconds when it ends.
    """
    from broker.cli.signals import stop_orders
    from broker.logs import set_up_logs
    from broker.roles.serve import open_store, run_roles
    from broker.store.discover import find_url

    config = settings()
    set_up_logs(config.log_level, config.log_format)
    with stop_orders() as stop, open_store(find_url(config), config.namespace) as store:
        typer.echo("broker serve: the roles run; Ctrl-C ends them")
        run_roles(store, stop.event, config.budgets, config.bounds, config.trust_dir)
