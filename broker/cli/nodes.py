"""`broker nodes` and `broker node`: the fleet as it says of itself, and what an operator says of it."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from broker.cli.options import FormatOption
from broker.cli.output import Columns, Format, print_list, span, warn
from broker.cli.session import broker
from broker.cli.table import Column
from broker.errors import NotFound
from broker.fleet.nodes import node_json
from broker.rules.record import SUBMITTED
from broker.rules.state import QUEUED, RUNNING

if TYPE_CHECKING:
    from broker.client import Broker


class Verb(StrEnum):
    """What is to become of a node."""

    drain = "drain"
    resume = "resume"
    dead = "dead"
    remove = "remove"


#: What becomes of the node, by the word.
_MEANS = {
    Verb.drain: "is drained: it gets no new jobs",
    Verb.dead: "counts as dead: it gets no new jobs",
    Verb.remove: "is forgotten, and its flag",
}

#: And of its jobs.
_GO_ON, _GIVEN_UP = "left to end", "given up once their worker is silent"
_LEFT, _DOUBTED = "left to their origin", "doubted once their origin is silent about them"

_STATE_STYLES = {"up": "good", "silent": "doubt", "left": "dim", "drained": "dim", "dead": "bad"}


def _state(node: dict[str, Any]) -> str:
    if node["flag"]:
        return str(node["flag"])
    return "left" if node["left"] else "silent" if node["suspect"] else "up"


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
        budgets = here.config.budgets
        shown = [node_json(seen, budgets) for seen in here.nodes()]
    print_list(shown, output, COLUMNS, "no nodes; broker worker starts one")


def node(
    verb: Annotated[Verb, typer.Argument(metavar="VERB", show_default=False)],
    name: Annotated[str, typer.Argument(metavar="NODE", show_default=False)],
) -> None:
    """Say what is to become of a node.

    drain: it gets no new jobs; what runs there goes on, what waits there goes elsewhere. dead: it is gone for good, so
    its jobs are given up without a grace. resume: like any other again. remove: forget it (one that still beats comes
    back).
    """
    with broker() as here:
        budgets = here.config.budgets
        seen = next((node_json(seen, budgets) for seen in here.nodes() if seen.name == name), None)
        if verb in (Verb.drain, Verb.dead):
            here.flag_node(name, "drained" if verb is Verb.drain else "dead")
        elif seen is None:
            raise NotFound(f"no node {name!r} is known")
        elif verb is Verb.resume:
            here.flag_node(name, None)
        else:
            here.remove_node(name)
        print(_become(here, verb, name, seen))
    if seen is None:
        warn(f"node {name} has not been heard of; the flag waits for it")
    elif misfit := _misfit(verb, seen):
        warn(misfit)


def _become(here: Broker, verb: Verb, name: str, seen: dict[str, Any] | None) -> str:
    """What the word means for the node, and for the jobs on it."""
    if verb is Verb.resume:
        return f"{name} is like any other again" if seen and seen["flag"] else f"{name} had no flag"
    # By key: one that changes while it is read may come twice.
    found = {
        key: (record.kind, record.believed)
        for key, record in here.select(states={QUEUED, RUNNING}, node=name)
    }
    jobs = Counter(found.values())
    running, waiting = jobs[SUBMITTED, RUNNING], jobs[SUBMITTED, QUEUED]
    said = (
        ("running there", running, _GO_ON if verb is Verb.drain else _GIVEN_UP),
        ("waiting there", waiting, "placed elsewhere"),
        ("reported", jobs.total() - running - waiting, _DOUBTED if verb is Verb.dead else _LEFT),
    )
    parts = [f"{what}: {count:,}, {fate}" for what, count, fate in said if count]
    return "; ".join([f"{name} {_MEANS[verb]}", *(parts or ["no jobs are there"])])


def _misfit(verb: Verb, seen: dict[str, Any]) -> str:
    """Where what was said does not fit what is heard of the node."""
    name, beats = seen["node"], not seen["suspect"]
    if verb is Verb.dead and beats:
        return f"node {name} still beats, and so do its jobs' workers: to end its use, say broker node drain {name}"
    if verb is Verb.remove and beats:
        return f"node {name} still beats, and comes back with its next beat: stop its workers"
    if verb is Verb.resume and not beats:
        silence = (
            f"has been silent for {span(seen['silent_ms'])}" if seen["beaten_at"] else "never beat"
        )
        return f"node {name} {silence}: it gets jobs once it beats"
    return ""
