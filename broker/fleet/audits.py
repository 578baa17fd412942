"""One audit of everything, as `broker doctor` runs it, and what the auditor found by itself lately.

It reads and judges; it mends nothing. What RQ keeps is the auditor's to look at: nothing here knows RQ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from broker.errors import Damaged
from broker.fleet.checkup import ERROR, OK, WARNING, Finding
from broker.rules import audit as books
from broker.store.audit import Audit
from broker.store.audited import FOUND, REPAIRS_MAX
from broker.store.beats import Beats
from broker.store.strays import Strays

if TYPE_CHECKING:
    from broker.jobs.catalog import Catalog

#: A round comes every minute: one that is so old, in milliseconds, was the last of its auditor.
ROUND_MS_MAX = 300_000
#: Repairs are told for so long, in milliseconds, and so many of them.
REPAIRED_MS_MAX = 86_400_000
REPAIRS_TOLD = 5


#: What counts in a round: 0 in a healthy fleet.
GAUGES = (*FOUND, "unread")

#: Is told what is looked through, and how many jobs of it were looked at.
Progress = Callable[[str, int], None]


def audit(catalog: Catalog, tell: Progress) -> Iterator[Finding]:
    """Look through all that is kept, once. Raises Unavailable where Redis does not answer."""
    looks: list[Audit] = []
    is_fine = True
    for finding in _look_through(catalog, looks, tell):
        is_fine = False
        yield finding
    if is_fine:
        jobs = sum(look.looked for look in looks)
        text = f"{jobs} jobs of {len(looks)} origins agree with their indexes and logs"
        yield Finding(OK, "books", text)
    try:
        yield from _auditor(catalog)
    except Damaged as error:
        yield Finding(ERROR, "auditor", f"what it tells cannot be read: {error}")


def _look_through(catalog: Catalog, looks: list[Audit], tell: Progress) -> Iterator[Finding]:
    strays = Strays(catalog.store)
    tell("all keys", 0)
    yield from _told("the list of origins", strays.walk())
    yield from _told("the list of workers", Beats(catalog.store, strays.telling).walk())
    try:
        origins = catalog.origins()
    except Damaged:  # told above
        return
    for origin in origins:
        also = strays.unlisted.get(origin, ())
        look = Audit(catalog.store, origin, catalog.config.budgets, also)
        looks.append(look)
        yield from _told(f"the books of {origin}", _steps(look, tell))


def _steps(look: Audit, tell: Progress) -> Iterator[list[books.Finding]]:
    while not look.step():
        tell(look.origin, look.looked)
    yield look.findings


def _told(what: str, pieces: Iterator[list[books.Finding]]) -> Iterator[Finding]:
    try:
        for piece in pieces:
            yield from map(_shown, piece)
    except Damaged as error:
        yield Finding(ERROR, "books", f"{what} cannot be looked through: {error}")


def _shown(found: books.Finding) -> Finding:
    about = f"{found.origin}/{found.job}" if found.job else found.key
    return Finding(ERROR, found.kind, found.text, about)


def _auditor(catalog: Catalog) -> Iterator[Finding]:
    """What the auditor's newest round found, and what it mended."""
    seen, now = catalog.audit(), catalog.store.clock.now()
    gauges = {name: getattr(seen, name) for name in GAUGES}
    if not seen.at:
        yield Finding(WARNING, "auditor", "none has gone round yet: it runs in broker serve")
    elif now - seen.at > ROUND_MS_MAX:
        yield Finding(WARNING, "auditor", f"its last round ended {_ago(now - seen.at)}")
    else:
        told = ", ".join(f"{name} {count}" for name, count in gauges.items())
        text = f"its newest round over {seen.origins} origins: {told}, repaired {seen.repaired}"
        text += f"; in all rounds: found {seen.found_total}, repaired {seen.repaired_total}"
        yield Finding(WARNING if any(gauges.values()) else OK, "auditor", text)
    kept = catalog.repairs(REPAIRS_MAX)
    repairs = [repair for repair in kept if now - repair.at <= REPAIRED_MS_MAX]
    for repair in repairs[:REPAIRS_TOLD]:
        about = f"{repair.origin}/{repair.job}" if repair.job else ""
        text = f"{_ago(now - repair.at)} ({repair.what}): {repair.text}"
        yield Finding(WARNING, "repaired", text, about)
    if len(repairs) > REPAIRS_TOLD:
        many = f"{len(repairs):,}" + (" or more" if len(repairs) == REPAIRS_MAX else "")
        text = f"{many} in the last 24 h; these are the newest {REPAIRS_TOLD}"
        yield Finding(WARNING, "repaired", text)


def _ago(ms: int) -> str:
    seconds = max(0, ms) // 1000
    return f"{seconds // 60} min ago" if seconds >= 60 else f"{seconds} s ago"
