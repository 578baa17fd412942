"""`broker groups`: who subscribes to the logs, how far behind, what is parked, and what is to become of it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from broker.cli.options import FormatOption
from broker.cli.output import Columns, Format, instant, print_list, span
from broker.cli.session import broker
from broker.cli.table import Column
from broker.errors import Invalid
from broker.subscriptions.groups import group_json, parked_json


class Verb(StrEnum):
    """What is wanted of one group."""

    parked = "parked"
    replay = "replay"
    remove = "remove"


#: What is not known, and what there is none of.
UNKNOWN, NONE = "?", "-"


def _owner(seen: dict[str, Any]) -> str:
    return f"{seen['owner']}{'' if seen['live'] else '?'}" if seen["owner"] else NONE


def _looked(seen: dict[str, Any]) -> str:
    return UNKNOWN if seen["silent_ms"] is None else f"{span(seen['silent_ms'])} ago"


def _entries(seen: dict[str, Any]) -> object:
    if seen["origin"] is None:
        return NONE
    return UNKNOWN if seen["lag_entries"] is None else seen["lag_entries"]


def _behind(seen: dict[str, Any]) -> str:
    if seen["origin"] is None:
        return NONE
    return UNKNOWN if seen["lag_ms"] is None else span(seen["lag_ms"])


def _owner_style(owner: str) -> str:
    return "doubt" if owner.endswith((UNKNOWN, NONE)) else "good"


def _lag_style(lag: str) -> str:
    return "doubt" if lag == UNKNOWN else ""


def _count_style(count: str) -> str:
    return "" if count == "0" else "bad"


def _key(parked: dict[str, Any]) -> str:
    return str(parked["entry"]["key"]) if parked["entry"] else UNKNOWN


COLUMNS: Columns = (
    (Column("GROUP", least=8), lambda seen: seen["group"]),
    (Column("ORIGIN", least=8), lambda seen: seen["origin"] or NONE),
    (Column("OWNER", 5, least=6, style=_owner_style), _owner),
    (Column("LAST LOOK", 3, right=True), _looked),
    (Column("LAG", right=True, style=_lag_style), _entries),
    (Column("BEHIND", 1, right=True, style=_lag_style), _behind),
    (Column("PARKED", 2, right=True, style=_count_style), lambda seen: seen["parked"]),
    (Column("EVICTED", 5, right=True, style=_count_style), lambda seen: seen["evicted"]),
    (Column("GAPS", 4, right=True, style=_count_style), lambda seen: seen["gaps"]),
)

PARKED_COLUMNS: Columns = (
    (Column("ID"), lambda parked: parked["id"]),
    (Column("ORIGIN", 3, least=8), lambda parked: parked["origin"]),
    (Column("AT", 4), lambda parked: instant(parked["at"]) or UNKNOWN),
    (Column("KEY", 1, least=16, keep_end=True), _key),
    (Column("TRIES", 2, right=True), lambda parked: parked["tries"]),
    (Column("REASON", least=12), lambda parked: parked["reason"] or NONE),
)


def groups(
    verb: Annotated[
        Verb | None, typer.Argument(metavar="parked|replay|remove", show_default=False)
    ] = None,
    group: Annotated[str | None, typer.Argument(metavar="GROUP", show_default=False)] = None,
    id: Annotated[str | None, typer.Argument(metavar="ID", show_default=False)] = None,
    all: Annotated[bool, typer.Option("--all", help="With replay: all that is parked.")] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="With remove: although members live; they go on where they stand."
        ),
    ] = False,
    output: FormatOption = Format.table,
) -> None:
    """List the groups that subscribe to the logs: who reads, how many entries and how long behind.

    `?` is what is not known, never 0. An owner with `?` has let its lease lapse, `-` is none. EVICTED are parked
    entries that went for good, since no more are kept; GAPS, how often entries were lost unread.

    parked: the entries whose handler failed for good. replay: have one of them (ID, or ORIGIN/ID), or --all, handled
    again; prints which. remove: forget the group, its places and what it has parked.
    """
    _check_usage(verb, group, id, all=all, force=force)
    with broker() as here:
        if verb is None or group is None:
            shown = [group_json(seen) for seen in here.groups()]
            print_list(shown, output, COLUMNS, "no groups; Broker.subscribe makes one")
        elif verb is Verb.remove:
            here.remove_group(group, force=force)
        else:
            found = here.replay_parked(group, id) if verb is Verb.replay else here.parked(group)
            listed = [parked_json(group, one) for one in found]
            print_list(listed, output, PARKED_COLUMNS, f"group {group} has nothing parked")


def _check_usage(
    verb: Verb | None, group: str | None, id: str | None, *, all: bool, force: bool
) -> None:
    if verb is not None and group is None:
        raise Invalid(f"name the GROUP: broker groups {verb} GROUP")
    if verb is Verb.replay and (id is not None) == all:
        raise Invalid("name the ID of a parked entry, or --all of them")
    if verb is not Verb.replay and (id is not None or all):
        raise Invalid("an ID and --all go with replay")
    if verb is not Verb.remove and force:
        raise Invalid("--force goes with remove")
