"""Sixteen clients that talk at once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from broker.rules.event import origin_of

CLIENTS = 16
#: What they talk about: a log each.
ORIGINS = ("desk", "hall", "quay", "yard")


class Crowd:
    """Clients on threads and connections of their own, which say what is put to them in an order that chance gives."""

    def __init__(self, run, stack):
        self.chance = run.chance
        self._here = threading.local()
        self._clients = []
        self._pool = ThreadPoolExecutor(CLIENTS, initializer=self._come, initargs=(stack,))

    def _come(self, stack):
        self._here.broker = stack.client()
        self._clients.append(self._here.broker)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self._pool.shutdown()
        for client in self._clients:
            client.close()

    def say(self, events):
        """Each event in some call of some client; the events with their answers."""
        by_origin = {}
        for event in events:
            by_origin.setdefault(origin_of(event), []).append(event)
        calls = []
        for said in by_origin.values():
            self.chance.shuffle(said)
            while said:
                size = self.chance.choice((1, 1, 2, 5, 20))
                calls.append(said[:size])
                del said[:size]
        self.chance.shuffle(calls)
        return [pair for pairs in self._pool.map(self._call, calls) for pair in pairs]

    def tell(self, stories):
        """Several stories at once, each in its own order, an event a call. A part may be made when its time comes."""
        stories = list(stories)
        self.chance.shuffle(stories)
        list(self._pool.map(self._tell, stories))

    def _tell(self, story):
        for part in story:
            self._call([part(self._here.broker) if callable(part) else part])

    def _call(self, events):
        return list(zip(events, self._here.broker.view.apply(events), strict=True))
