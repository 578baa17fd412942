"""A client of `/v1/watch` as a program would be: it lists, follows, and comes back where it stood."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

import httpx

from broker.rules.replay import rev_order
from tests.system.command import until


@dataclass(frozen=True)
class Event:
    """One server-sent event; a block without data has no kind."""

    kind: str
    data: Any
    id: str


def events_of(lines: Iterator[str]) -> Iterator[Event]:
    """What the lines of a stream say, by the rules of the event stream format. Comments are passed over."""
    found: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(":")
            found[name] = value.removeprefix(" ")
            continue
        if found.keys() & {"data", "id"}:
            data = json.loads(found["data"]) if "data" in found else None
            yield Event(found.get("event", ""), data, found.get("id", ""))
        found = {}


def listed(url: str, query: Mapping[str, Any] | None = None) -> httpx.Response:
    """The list, and where a stream goes on from there: a server that has just begun does not know that yet."""
    asked = {"limit": 100_000, **(query or {})}
    found: list[httpx.Response] = []

    def stands() -> bool:
        found.append(httpx.get(f"{url}/v1/jobs", params=asked, trust_env=False, timeout=60))
        assert found[-1].status_code == 200
        return "last-event-id" in found[-1].headers

    until(stands)
    return found[-1]


class Stream:
    """One connection, read by a thread: what came so far."""

    def __init__(
        self,
        url: str,
        query: Mapping[str, Any] | None = None,
        after: str = "",
        told: Callable[[Event], None] | None = None,
    ) -> None:
        self.events: list[Event] = []
        self.status = 0
        self.ended = threading.Event()
        self._told = told
        self._socket: socket.socket | None = None
        self._asked = (url, dict(query or {}), {"Last-Event-ID": after.encode()})
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        until(lambda: self.events or self.ended.is_set())

    def _read(self) -> None:
        url, query, headers = self._asked
        request = httpx.Request("GET", f"{url}/v1/watch", params=query, headers=headers)
        with (
            suppress(httpx.HTTPError, OSError),
            httpx.Client(trust_env=False, timeout=60) as client,
        ):
            answer = client.send(request, stream=True)
            self.status = answer.status_code
            self._socket = answer.extensions["network_stream"].get_extra_info("socket")
            for event in events_of(answer.iter_lines()):
                self.events.append(event)
                if self._told is not None:
                    self._told(event)
        self.ended.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.cut()

    def of(self, kind: str) -> list[Any]:
        """The data of all events of this kind."""
        return [event.data for event in list(self.events) if event.kind == kind]

    def jobs(self) -> list[str]:
        """The jobs of the changes, in order."""
        return [change["key"] for change in self.of("change")]

    def wait(self, kind: str, count: int = 1) -> list[Any]:
        """The same once there are so many."""
        until(lambda: len(self.of(kind)) >= count or self.ended.is_set())
        found = self.of(kind)
        assert len(found) >= count, self.events
        return found

    @property
    def id(self) -> str:
        """Where it stands."""
        return next((event.id for event in reversed(list(self.events)) if event.id), "")

    def cut(self) -> None:
        """End the connection as a broken line does, wherever it is."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(60)
        assert not self._thread.is_alive()


class Follower:
    """Holds the list of the jobs that fit, as a dashboard does: a list, then changes, over connections that break."""

    def __init__(self, url: str, query: Mapping[str, Any] | None = None) -> None:
        self._url = url
        self._query = dict(query or {})
        self.held: dict[str, dict[str, Any]] = {}
        self.lists = 0
        self._gone: dict[str, str] = {}
        self._lock = threading.Lock()
        self.stream = Stream(url, self._query, self.list(), self._told)

    def list(self) -> str:
        """List anew; where the stream goes on from there."""
        answer = listed(self._url, self._query)
        self.held = {job["key"]: job for job in answer.json()}
        self._gone = {}
        self.lists += 1
        return str(answer.headers["last-event-id"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stream.cut()

    def come_back(self) -> None:
        """After a cut connection: where it stood."""
        self.stream.cut()
        self.stream = Stream(self._url, self._query, self.stream.id, self._told)

    def _told(self, event: Event) -> None:
        with self._lock:
            if event.kind == "gone":
                self.list()
            elif event.kind == "change":
                self._follow(event.data)

    def _follow(self, change: dict[str, Any]) -> None:
        key, record = change["key"], change["record"]
        known = self.held[key]["rev"] if key in self.held else self._gone.get(key, "")
        if rev_order(change["rev"]) < rev_order(known) and not change["synthesized"]:
            return  # of what is told twice the higher rev counts
        if record is not None and self._fits(record):
            self.held[key] = record
        else:
            self.held.pop(key, None)
            self._gone[key] = change["rev"]

    def _fits(self, record: dict[str, Any]) -> bool:
        states = self._query.get("state")
        believed = record["guessed_from"] or record["state"]
        return (states is None or believed in states) and all(
            record[name] == self._query.get(name, record[name])
            for name in ("node", "engine", "origin")
        )

    def revs(self) -> dict[str, str]:
        """What it holds, as far as it is compared."""
        with self._lock:
            return {key: job["rev"] for key, job in self.held.items()}
