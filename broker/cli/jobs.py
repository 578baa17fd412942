"""`broker jobs`: the job list. Its columns also serve `replay`."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from broker.cli.job import error_of, shown_state
from broker.cli.options import (
    EngineOption,
    FormatOption,
    NodeOption,
    OriginOption,
    StateOption,
    check_state,
)
from broker.cli.output import Columns, Format, age, print_list, span, table_lines
from broker.cli.session import broker
from broker.cli.table import Column
from broker.errors import Invalid

#: How often `--watch` looks, in seconds.
WATCH_SECONDS = 1.0


def state_style(state: str) -> str:
    """The colour of a shown state."""
    if state[-1:] in ("~", "?"):
        return "doubt"
    return {"completed": "good", "failed": "bad", "running": "busy", "cancelled": "dim"}.get(
        state, ""
    )


def _took(job: dict[str, Any]) -> str:
    began, ended = job["started_at"], job["completed_at"]
    return span(ended - began) if began and ended and not job["inferred"] else "-"


def _tries(job: dict[str, Any]) -> str:
    return f"{job['tries']}/{job['attempts']}" if job["kind"] == "submitted" else "-"


COLUMNS: Columns = (
    (Column("KEY", least=16, keep_end=True), lambda job: job["key"]),
    (Column("STATE", style=state_style), shown_state),
    (Column("NODE", 1, least=8), lambda job: job["node"] or "-"),
    (Column("AGE", 2, right=True), lambda job: age(job["created_at"])),
    (Column("TOOK", 5, right=True), _took),
    (Column("TRIES", 4, right=True), _tries),
    (Column("MODEL", 6, least=8), lambda job: job["model"] or "-"),
    (Column("ERROR", 3, least=12), lambda job: error_of(job) or "-"),
)


def jobs(
    state: StateOption = None,
    node: NodeOption = None,
    engine: EngineOption = None,
    origin: OriginOption = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it until Ctrl-C.")] = False,
    output: FormatOption = Format.table,
) -> None:
    """List jobs, oldest first. `failed~` is a guess, `running?` a job whose worker is silent."""
    check_state(state)
    if watch and (output is not Format.table or not sys.stdout.isatty()):
        raise Invalid("--watch needs a terminal and -o table; `broker log ORIGIN --follow` streams")

    with broker() as here:

        def listed() -> list[dict[str, Any]]:
            found = here.jobs(state=state, node=node, engine=engine, origin=origin)
            return [job.to_json() for job in found]

        if watch:
            _watch(listed)
        else:
            print_list(listed(), output, COLUMNS, "no jobs")


def _watch(listed: Any) -> None:
    """The newest jobs that fit on the screen, drawn again each second."""
    from threading import Event

    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console, pace = Console(), Event()
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            found = listed()
            room = max(1, console.height - 2)
            lines = table_lines(found[-room:], COLUMNS) or ["no jobs"]
            foot = f"{len(found)} jobs" + (f", the newest {room}" if len(found) > room else "")
            live.update(Text.from_ansi("\n".join([*lines, foot]), no_wrap=True), refresh=True)
            pace.wait(WATCH_SECONDS)
