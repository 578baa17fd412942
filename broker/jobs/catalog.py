"""Catalog: the reading half of the client. What is known, who is in doubt, and why.

It writes nothing, and never answers from a cache: each call reads the records as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import Any, Self

from broker.config import Settings, settings
from broker.errors import Invalid, JobFailed, NotFound, Refused
from broker.jobs.explain import Why, explain
from broker.jobs.outcome import Listed
from broker.readers.readers import Readers
from broker.rules.filter import Filter
from broker.rules.key import ID_BYTES_MAX, Key, check_name, check_part, decode
from broker.rules.liveness import suspect
from broker.rules.record import REPORTED, Record
from broker.rules.replay import Change, fold
from broker.rules.state import COMPLETED
from broker.store import output
from broker.store.audited import Audited, AuditSeen, Repair
from broker.store.connection import check_version
from broker.store.discover import find_url
from broker.store.groups import Groups, GroupSeen
from broker.store.log import Log
from broker.store.nodes import Nodes, NodeSeen, WorkerSeen
from broker.store.output import Chunk
from broker.store.parked import Parked
from broker.store.scan import scan
from broker.store.store import Store
from broker.store.view import View
from broker.store.watch import Watcher
from broker.subscriptions.groups import parked_by
from broker.waiting.wait import wait_for_end


class Catalog:
    """The readable side of one namespace on one Redis. Thread-safe; a context manager."""

    def __init__(self, store: Store, config: Settings | None = None) -> None:
        self.config = config or settings()
        self.store = store
        self.view = View(store, self.config.bounds, result_ttl_ms=self.config.result_ttl_ms)
        self.fleet = Nodes(store)

    @classmethod
    def from_url(
        cls, url: str | None = None, *, namespace: str | None = None, node: str | None = None
    ) -> Self:
        """Connect to `url`; without one to `REDIS_URL`, else a running `broker up`, else 127.0.0.1:6379.

        Raises Unavailable where no Redis answers, Misconfigured where it is older than 7.0.
        """
        config = settings(redis_url=url, namespace=namespace, node=node)
        store = Store.from_url(find_url(config), config.namespace)
        check_version(store.client)
        return cls(store, config)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back the connections."""
        self.store.close()

    def find(self, text: str) -> Key:
        """The job that `text` names: a whole key, any unambiguous suffix of one (`7`, `ollama/7`, `ollama//7`), or an
        id as it is, where that is no whole key.

        Raises NotFound where none fits, Invalid naming some where several do.
        """
        malformed: Invalid | None = None
        ids = set()
        try:
            if text.count("/") == 3:
                return Key.parse(text)
            ids.add(_last_part(text))
        except Invalid as wrong:
            malformed = wrong
        with suppress(Invalid):
            ids.add(check_part("id", text, ID_BYTES_MAX))
        shared = {
            key
            for origin in self.view.origins()
            for id in ids
            for key in self.view.shared(origin, id)
        }
        found = sorted(key for key in shared if key.fits(text) or key.id == text)
        if not found:
            raise malformed or NotFound(f"no job {text!r} is known")
        if len(found) > 1:
            some = ", ".join(map(str, found[:5])) + (", ..." if len(found) > 5 else "")
            raise Invalid(f"{text!r} names {len(found)} jobs: {some}")
        return found[0]

    def get(self, key: Key | str) -> Record:
        """The record of a job; raises NotFound."""
        key = self._key(key)
        record = self.view.get(key)
        if record is None:
            raise NotFound(f"no job {key} is known")
        return record

    def jobs(
        self,
        *,
        state: str | None = None,
        node: str | None = None,
        engine: str | None = None,
        origin: str | None = None,
    ) -> list[Listed]:
        """All jobs that fit, by the time of their creation; a guess is matched by the state that it replaced."""
        states = None if state is None else {state}
        found = dict(self.select(states=states, node=node, engine=engine, origin=origin))
        return self.list_records(
            sorted(found.items(), key=lambda pair: (pair[1].created_at, pair[0]))
        )

    def select(
        self,
        *,
        states: Collection[str] | None = None,
        node: str | None = None,
        engine: str | None = None,
        origin: str | None = None,
    ) -> Iterator[tuple[Key, Record]]:
        """The jobs that fit as they are read, in bounded memory: in no order, and one that changes may come twice."""
        wanted = Filter(states=states, node=node, engine=engine)
        origins = self.view.origins() if origin is None else [check_name("origin", origin)]
        for name in origins:
            for page in scan(self.store, name):
                yield from (pair for pair in page.items() if wanted.fits(*pair))

    def listed(self, key: Key | str) -> Listed:
        """One job as a list shows it; raises NotFound."""
        key = self._key(key)
        return self.list_records([(key, self.get(key))])[0]

    def list_records(self, found: list[tuple[Key, Record]]) -> list[Listed]:
        """Records as a list shows them: with the doubt that their workers' beats give."""
        now = self.store.clock.now()
        beats = {seen.name: seen.beaten_at for seen in self.fleet.workers(now)}
        budgets = self.config.budgets
        return [
            Listed(key, record, suspect(record, beats.get(record.worker, 0), now, budgets))
            for key, record in found
        ]

    def show(self, key: Key | str) -> dict[str, Any]:
        """The job whole: its record, what was submitted or carried along with it, the refused events."""
        listed = self.listed(key)
        spec = self.view.spec(listed.key)
        name = "extras" if listed.record.kind == REPORTED else "payload"
        refusals = [refusal.to_json() for refusal in self.view.refusals(listed.key)]
        return listed.to_json() | {name: spec, "refused": refusals}

    def why(self, key: Key | str) -> Why:
        """What decided the job's state, what was refused and by which rule, what would change it."""
        return explain(self, self._key(key))

    def result(self, key: Key | str) -> Any:
        """What the job returned.

        Raises JobFailed with the whole error where it ended otherwise, Refused("not_terminal") where it has not
        ended, NotFound where the job, or its result after `result_ttl`, is gone.
        """
        key = self._key(key)
        record = self.get(key)
        if not record.ended:
            raise Refused("not_terminal", f"{key} has not ended: it is {record.state}")
        result = self.view.result(key)
        if record.state != COMPLETED:
            # Of a reported job its text is kept as it is, of one of ours what its worker says of it.
            whole = result.get("error") if isinstance(result, dict) else result
            raise JobFailed(
                f"{key} {record.state}: {whole or record.error or record.reason or 'no reason was told'}"
            )
        if result is None and not self.view.has_result(key):
            raise NotFound(f"the result of {key} is gone")
        return result

    def output(self, key: Key | str, after: str = "0-0") -> list[Chunk]:
        """Progress and output of the job after an entry's id: a lossy lane of at most 1,000 entries."""
        return output.read(self.store, self._key(key), after)

    def wait(self, key: Key | str, timeout: float | None = None) -> Record | None:
        """Block until the job ends; its record then, None where it was removed before. A guess is not an end.

        Rides out a Redis that is away for less than a minute, and whatever happens to the log. Raises NotFound where
        the job is not known at the start, or was lost or replaced by another of its name meanwhile; TimedOut after
        `timeout` seconds; Unavailable where Redis is away at the start, at the deadline, or for a minute.
        """
        return wait_for_end(self.store, self.view, self._key(key), timeout)

    def watch(self, origins: list[str] | None = None) -> Watcher:
        """A watcher: `snapshot()`, then `changes(wait_ms)`; close it, or use it as a context manager."""
        return Watcher(self.store, origins)

    def readers(
        self,
        origins: list[str] | None = None,
        *,
        told: Callable[[Change, Record | None], None] | None = None,
    ) -> Readers:
        """For many readers in one process: they share one connection and one list. Close it, or use it with `with`.

        `told` is called with each change and the record before it: see `Readers`.
        """
        return Readers(self.store, origins, told=told)

    def log(self, origin: str) -> Log:
        """The log of one origin."""
        return Log(self.store, check_name("origin", origin))

    def replay(self, origin: str, until: str | None = None) -> dict[Key, Record]:
        """The list as the log alone tells it, at entry `until` or at its end."""
        return fold(origin, self.log(origin).entries(until))

    def origins(self) -> list[str]:
        """Every origin that has ever been heard of."""
        return self.view.origins()

    def nodes(self) -> list[NodeSeen]:
        """The nodes that were heard of, each with its newest beat and flag."""
        return self.fleet.nodes(self.store.clock.now())

    def workers(self) -> list[WorkerSeen]:
        """The workers that were heard of: each is one slot of its engine on its node."""
        return self.fleet.workers(self.store.clock.now())

    def groups(self) -> list[GroupSeen]:
        """The groups that subscribed, at each origin where they have begun: who reads, and how far behind."""
        return Groups(self.store).seen(self.store.clock.now())

    def parked(self, group: str) -> list[Parked]:
        """The entries that a group's handler failed for good, by origin, oldest first. Raises NotFound."""
        return parked_by(self, group)

    def audit(self) -> AuditSeen:
        """What the auditor's newest whole round found: its gauges read 0 in a healthy fleet."""
        return Audited(self.store).seen()

    def repairs(self, count: int = 100) -> list[Repair]:
        """What the auditor mended, newest first: `count` at most, of the 1,000 that are kept."""
        return Audited(self.store).repairs(count)

    def _key(self, key: Key | str) -> Key:
        return self.find(key) if isinstance(key, str) else key


def _last_part(text: str) -> str:
    """The id that a suffix of a key ends with; raises Invalid."""
    parts = text.split("/")
    if len(parts) > 4 or not parts[-1]:
        raise Invalid(f"{text!r} is not a key of the form origin/engine/run/id, nor the end of one")
    return check_part("id", decode(parts[-1]), ID_BYTES_MAX)
