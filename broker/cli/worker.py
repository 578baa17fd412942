"""`broker worker`: starts the supervisor of `workers`, the package that executes jobs.

The broker never imports that package: it is named here by a dotted text, as in the hand-off to RQ.
"""

from __future__ import annotations

from importlib import import_module
from typing import Annotated

import typer

from broker.cli.exits import Exit
from broker.cli.session import broker
from broker.config import settings
from broker.errors import Misconfigured
from broker.logs import set_up_logs
from broker.rules.key import check_name

SUPERVISOR, REGISTRY = "workers.supervisor", "workers.registry"
SLOTS_MAX = 1_024


def worker(
    node: Annotated[
        str | None, typer.Option(metavar="NODE", help="Default: BROKER_NODE or the host.")
    ] = None,
    engine: Annotated[
        list[str] | None,
        typer.Option(metavar="ENGINE", help="Again for more; default: every engine known."),
    ] = None,
    slots: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=SLOTS_MAX,
            help="Jobs at a time, of each engine; default: its own.",
        ),
    ] = None,
    imports: Annotated[
        list[str] | None,
        typer.Option("--import", metavar="MODULE", help="A module that defines engines."),
    ] = None,
    inline: Annotated[
        bool, typer.Option("--inline", help="No process for each job: no kill, no timeout.")
    ] = False,
) -> None:
    """Run this node's worker processes until Ctrl-C or SIGTERM; jobs in hand are finished first."""
    config = settings(node=node and check_name("node", node))
    set_up_logs(config.log_level, config.log_format)
    registry = import_module(REGISTRY)
    known = registry.load(imports or [])
    specs = [registry.find(name) for name in dict.fromkeys(engine or known)]
    if not specs:
        raise Misconfigured(
            "no engine is known: define one in broker.toml, or name its module with --import"
        )
    with broker(config.node) as here:  # says now what would otherwise be said by each process
        url = here.store.url
    supervisor = import_module(SUPERVISOR).Supervisor(
        config.node,
        specs,
        slots=slots,
        imports=imports or [],
        inline=inline,
        url=url,
        namespace=config.namespace,
    )
    if code := supervisor.run():
        raise Exit(code)
