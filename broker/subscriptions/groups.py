"""Groups as every face shows them, and what an operator may do to them: replay what is parked, remove them.

The members themselves are elsewhere: nothing here reads a log for a group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.errors import Invalid, NotFound, Refused
from broker.jobs.outcome import entry_json
from broker.rules.key import check_name
from broker.store.groups import Groups, GroupSeen
from broker.store.parked import Parked, ask_replay, parked

if TYPE_CHECKING:
    from broker.jobs.catalog import Catalog


def group_json(seen: GroupSeen) -> dict[str, Any]:
    """A group at one origin as JSON. Null is what is not known, or not there: of an unread log the lag, for one."""
    return {
        "group": seen.group,
        "origin": seen.origin or None,
        "owner": seen.owner or None,
        "live": seen.live,
        "term": seen.term or None,
        "looked_at": seen.looked_at or None,
        "silent_ms": seen.silent_ms if seen.looked_at else None,
        "acked": seen.acked or None,
        "gone": seen.lag.gone or None,
        "lag_entries": seen.lag.entries,
        "lag_ms": seen.lag.ms,
        "pending": seen.lag.pending,
        "tries": seen.tries,
        "parked": seen.parked,
        "replaying": seen.replaying,
        "evicted": seen.evicted,
        "gaps": seen.gaps,
    }


def parked_json(name: str, one: Parked) -> dict[str, Any]:
    """A parked entry as JSON. `entry` is null where it cannot be read as one; `fields` then holds what it says."""
    entry, texts = one.entry, [raw.decode(errors="replace") for raw in one.fields]
    return {
        "group": name,
        "origin": one.origin,
        "id": one.id,
        "rev": one.rev,
        "at": one.at or None,
        "tries": one.tries,
        "reason": one.reason,
        "entry": entry and entry_json(one.origin, entry),
        "fields": None if entry else dict(zip(texts[::2], texts[1::2], strict=False)),
    }


def parked_by(catalog: Catalog, name: str) -> list[Parked]:
    """What the group has parked, by origin, oldest first. Raises NotFound, Invalid."""
    groups = _known(catalog, name)
    origins = groups.parked_at(name)
    return [one for origin in origins for one in parked(catalog.store, origin, name)]


def replay_parked(catalog: Catalog, name: str, id: str | None) -> list[Parked]:
    """Have a parked entry, or all of them, delivered again: those that were asked for.

    An id that stands at several origins is told apart as `ORIGIN/ID`. Raises NotFound, Invalid.
    """
    found = parked_by(catalog, name)
    if id is not None:
        found = [one for one in found if id in (one.id, f"{one.origin}/{one.id}")]
        if not found:
            raise NotFound(f"group {name} has parked no entry {id!r}")
        if len(found) > 1:
            names = ", ".join(f"{one.origin}/{one.id}" for one in found)
            raise Invalid(f"{id!r} names {len(found)} parked entries: {names}")
    for origin in sorted({one.origin for one in found}):
        ask_replay(catalog.store, origin, name, found[0].id if id is not None else None)
    return found


def remove_group(catalog: Catalog, name: str, *, force: bool) -> None:
    """Forget the group, and what it has parked. Raises NotFound, Invalid, and Refused("held") while a member lives.

    A member lives as long as it looks, if only for a lease's time after it did: one that waits owns nothing.
    """
    groups = _known(catalog, name)
    budget = catalog.config.budgets.guess_ms
    if not force and groups.is_live(name, catalog.store.clock.now(), budget):
        raise Refused(
            "held",
            f"group {name} has members, or had within {budget / 1000:g} s: end them first, or --force",
        )
    groups.remove(name)


def _known(catalog: Catalog, name: str) -> Groups:
    groups = Groups(catalog.store)
    if check_name("group", name) not in groups.names():
        raise NotFound(f"no group {name!r} is known")
    return groups
