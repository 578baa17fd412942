"""`broker nodes` and `broker node`: the fleet as it says of itself, and what an operator says of it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from broker.cli.options import FormatOption
from broker.cli.output import Columns, Format, print_list, span, warn
from broker.cli.session import broker
from broker.cli.table import Column
from broker.errors import NotFound
from broker.fleet import node_json


class Verb(StrEnum):
    """What is to become of a node."""

    drain = "drain"
    resume = "resume"
    dead = "dead"
    remove = "remove"


_STATE_STYLES = {"up": "good", "silent": "doubt", "drained": "dim", "dead": "bad"}


def _state(node: dict[str, Any]) -> str:
    return str(node["flag"] or ("silent" if node["suspect"] else "up"))


def _slots(node: dict[str, Any]) -> str:
    return f"{node['running']}/{node['slots']}"


def _engines(node: dict[str, Any]) -> str:
    each = (f"{name} {said['running']}/{said['slots']}" for name, said in node["engines"].items())
    return ", ".join(each) or "-"


def _beat(node: dict[str, Any]) -> str:
    return f"{span(node['silent_ms'])} ago" if node["beaten_at"] else "never"


COLUMNS: Columns = (
    (Column("NODE", least=8), lambda node: node["node"]),
    (Column("STATE", style=lambda state: _STATE_STYLES.get(state, "")), _state),
    (Column("BUSY", right=True), _slots),
    (Column("LAST BEAT", 1, right=True), _beat),
    (Column("PRESSURE", 3, right=True), lambda node: node["pressure"]),
    (Column("ENGINES", 2, least=12), _engines),
)


def nodes(output: FormatOption = Format.table) -> None:
    """List nodes: state, slots that are busy and there are, last beat, and the same for each engine."""
    with broker() as here:
        budget = here.config.budgets.suspect_ms
        shown = [node_json(seen, budget) for seen in here.nodes()]
    print_list(shown, output, COLUMNS, "no nodes; broker worker starts one")


def node(
    verb: Annotated[Verb, typer.Argument(metavar="drain|resume|dead|remove", show_default=False)],
    name: Annotated[str, typer.Argument(metavar="NODE", show_default=False)],
) -> None:
    """Say what is to become of a node.

    drain: it gets no new jobs. dead: it is gone for good, do not wait for it. resume: like any other again.
    remove: forget it (one that still beats comes back).
    """
    with broker() as here:
        known = {seen.name for seen in here.nodes()}
        if verb in (Verb.drain, Verb.dead):
            here.flag_node(name, "drained" if verb is Verb.drain else "dead")
            if name not in known:
                warn(f"node {name} has not been heard of; the flag waits for it")
            return
        if name not in known:
            raise NotFound(f"no node {name!r} is known")
        if verb is Verb.resume:
            here.flag_node(name, None)
        else:
            here.remove_node(name)
