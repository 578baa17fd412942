"""Reports in bulk: batched by origin, answered in the order in which they came, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from broker.errors import Invalid
from broker.jobs.outcome import Outcome
from broker.jobs.submission import new_event_id
from broker.rules.event import RemovePair, Report, origin_of
from broker.rules.key import encode
from broker.rules.verdict import REFUSED
from broker.rules.wire import Reported, parse_event
from broker.store.view import View

#: How many events wait for their answers at most: a few calls' worth for each of several origins.
WINDOW = 1_000


class Reporter:
    """Collects events and sends them in batches. Events of one origin keep their order; so do all answers."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._waiting: list[Reported | Outcome] = []

    @property
    def full(self) -> bool:
        """Whether it is time to flush."""
        return len(self._waiting) >= WINDOW

    def add(self, item: Mapping[str, Any] | Reported | Outcome) -> None:
        """Take one event, or an outcome that is known already and only keeps its place in the order."""
        self._waiting.append(self._event(item))

    @property
    def outcomes(self) -> list[Outcome | None]:
        """The answer of each that was added since the last flush that succeeded; None = it still waits."""
        return [item if isinstance(item, Outcome) else None for item in self._waiting]

    def flush(self) -> list[Outcome]:
        """Send what waits; raises Unavailable where Redis does not take it (it then still waits), and Damaged."""
        origins: dict[str, list[tuple[int, Reported]]] = {}
        for place, item in enumerate(self._waiting):
            if not isinstance(item, Outcome):
                origins.setdefault(origin_of(item), []).append((place, item))
        for waiting in origins.values():
            self._send(waiting)
        answers = [item for item in self._waiting if isinstance(item, Outcome)]
        self._waiting = []
        return answers

    def _send(self, waiting: list[tuple[int, Reported]]) -> None:
        """Each answer takes the place of its event, so that a failure halfway leaves only the rest to send."""
        places = iter(waiting)
        for answers in self._view.steps([event for _, event in waiting]):
            for answer, (place, event) in zip(answers, places, strict=False):
                self._waiting[place] = Outcome.of(name_of(event), answer)

    def _event(self, item: Mapping[str, Any] | Reported | Outcome) -> Reported | Outcome:
        if isinstance(item, Outcome):
            return item
        if isinstance(item, Mapping):
            try:
                item = parse_event(item)
            except Invalid as wrong:
                return Outcome(wrong.key, REFUSED, "invalid")
        return stamped(item)


def stamped(event: Reported) -> Reported:
    """The event as our client sends it: with a nonce where neither number nor shape would answer a re-send."""
    nonce = event.event_id
    if not nonce and (not isinstance(event, Report) or (event.resync and event.seq == 0)):
        nonce = new_event_id()
    return replace(event, event_id=nonce, by=event.by or "origin")


def name_of(event: Reported) -> str:
    """The key text of an event; a pair's is `origin/id`, which is no job's."""
    if isinstance(event, RemovePair):
        return f"{event.origin}/{encode(event.id)}"
    return str(event.key)


def report_many(
    view: View, items: Iterable[Mapping[str, Any] | Reported | Outcome]
) -> Iterator[Outcome]:
    """The outcome of each item, in order, a window at a time."""
    reporter = Reporter(view)
    for item in items:
        reporter.add(item)
        if reporter.full:
            yield from reporter.flush()
    yield from reporter.flush()
