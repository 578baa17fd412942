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
from broker.cli.output import Columns, Format, age, print_list, span
from broker.cli.session import broker
from broker.cli.table import Column
from broker.errors import Invalid
from broker.rules.filter import Filter
from broker.rules.key import check_name
from broker.rules.state import RUNNING


def state_style(state: str) -> str:
    """The colour of a shown state."""
    if state[-1:] in ("~", "?"):
        return "doubt"
    return {"completed": "good", "failed": "bad", "running": "busy", "cancelled": "dim"}.get(
        state, ""
    )


def _took(job: dict[str, Any]) -> str:
    began, ended = job["started_at"], job["completed_at"]
    if not began or job["inferred"]:
        return "-"
    if ended:
        return span(ended - began)
    return age(began) if job["state"] == RUNNING else "-"


def _tries(job: dict[str, Any]) -> str:
    return f"{job['tries']}/{job['attempts']}" if job["kind"] == "submitted" else "-"


COLUMNS: Columns = (
    # `engine//id` of ours, mostly: what a key is known by.
    (Column("KEY", least=19, keep_end=True), lambda job: job["key"]),
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
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on until Ctrl-C.")] = False,
    output: FormatOption = Format.table,
) -> None:
    """List jobs, oldest first. `failed~` is a guess, `running?` a job whose worker is silent.

    --watch shows the newest as they change. With -o jsonl it prints the list, then a line for each change: the job's
    record, also where it fits the options no more, or {"key", "gone": true, "rev", "rule", "by"}.
    """
    check_state(state)
    if watch and (output is Format.json or (output is Format.table and not sys.stdout.isatty())):
        raise Invalid("--watch needs -o jsonl, or a terminal to draw a table on")
    with broker() as here:
        if watch:
            from broker.cli import watching

            if origin is not None:
                check_name("origin", origin)
            fits = Filter(
                states=None if state is None else {state}, node=node, engine=engine, origin=origin
            )
            if output is Format.jsonl:
                watching.stream(here, fits)
            else:
                watching.show(here, fits, COLUMNS)
        else:
            found = here.jobs(state=state, node=node, engine=engine, origin=origin)
            print_list([job.to_json() for job in found], output, COLUMNS, "no jobs")
