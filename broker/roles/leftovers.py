"""What RQ still keeps of attempts that are over: given up, ended or removed, and never cleared away.

Each attempt that ends leaves traces for a moment, until its worker or the sweeper clears them away. What is still there
when it was seen long ago is left over: whoever should have done it died in between.
"""

from __future__ import annotations

from collections.abc import Iterator

from broker.errors import Invalid
from broker.roles.handoff import Handoff, Misfit, Noted
from broker.rules.audit import DISCARD, DRIFT, SET_ASIDE, Finding
from broker.rules.key import Key
from broker.rules.liveness import Budgets
from broker.store.store import Store
from broker.store.typed import put_aside
from broker.store.view import View


class Leftovers:
    """Looks at all of RQ's queues of one namespace; keeps from look to look since when each trace is one too many."""

    def __init__(self, store: Store, handoff: Handoff, budgets: Budgets | None = None) -> None:
        self._store = store
        self._clock = store.clock
        self._view = View(store)
        self._handoff = handoff
        budgets = budgets or Budgets()
        #: Whoever has to clear up may have died, and its successor may hold back for the brake: then it is late.
        self._patience_ms = 2 * budgets.guess_ms + budgets.brake_ms
        self._since: dict[Noted, int] = {}
        #: What the newest look found, by the key of its finding.
        self._left: dict[str, Noted] = {}
        self._misfits: dict[str, Misfit] = {}

    def look(self) -> Iterator[list[Finding]]:
        """Queue by queue, what is left over. Raises Unavailable, Damaged."""
        before, self._since, self._left = self._since, {}, {}
        self._misfits = {}
        for page in self._handoff.noted():
            misfits = {found.name: found for found in page if isinstance(found, Misfit)}
            self._misfits |= misfits
            yield list(map(_finding_of, misfits.values()))
            yield list(self._judge([found for found in page if isinstance(found, Noted)], before))

    def is_known(self, finding: Finding) -> bool:
        """Whether the newest look at RQ found it, so that `discard` mends it."""
        return finding.key in self._left or finding.key in self._misfits

    def discard(self, finding: Finding) -> bool:
        """Have RQ forget what the newest look found, or set its key aside; whether there still was anything."""
        if misfit := self._misfits.pop(finding.key, None):
            return put_aside(self._store, misfit.name, misfit.right)
        noted = self._left.pop(finding.key, None)
        return noted is not None and self._handoff.discard_noted(noted)

    def _judge(self, page: list[Noted], before: dict[Noted, int]) -> Iterator[Finding]:
        now = self._clock.now()
        for noted, key in find_over(self._view, self._handoff, page):
            since = self._since[noted] = before.get(noted, now)
            if now - since < self._patience_ms:
                continue
            name, why = (
                f"{noted.queue} {noted.id}",
                "it is over" if key else "its job is gone there",
            )
            self._left[name] = noted
            yield Finding(
                kind=DRIFT,
                origin=key.origin if key else "",
                job=key.job if key else "",
                text=f"RQ keeps attempt {noted.id} in {noted.queue}, though {why}",
                what=DISCARD,
                key=name,
            )


def _finding_of(misfit: Misfit) -> Finding:
    return Finding(
        kind=DRIFT,
        origin="",
        job="",
        text=f"{misfit.name} is a {misfit.found}, not a {misfit.right}",
        what=SET_ASIDE,
        key=misfit.name,
    )


def find_over(
    view: View, handoff: Handoff, page: list[Noted]
) -> Iterator[tuple[Noted, Key | None]]:
    """Those of the attempts on which no job stands any more, each with its job where that is known.

    Raises Unavailable, Damaged.
    """
    keys = list(map(_key, page))
    known = [key for key in keys if key]
    records = dict(zip(known, view.get_many(known), strict=True))
    for noted, key in zip(page, keys, strict=True):
        record = records.get(key) if key else None
        if not (key and record and not record.ended and handoff.is_of(noted, key, record)):
            yield noted, key


def _key(noted: Noted) -> Key | None:
    """The job that it is of, where it still says so."""
    try:
        return Key.parse(noted.key)
    except Invalid:
        return None
