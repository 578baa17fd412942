"""Broker: the way in for programs. Every call is one sentence of the rules, said to the store.

A call raises `Invalid`, `NotFound`, `Refused`, `Unavailable` (see `broker.errors`); where an event may rightly be
refused, as in `report` and `cancel`, the call returns an `Outcome` instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from broker.errors import Gone, JobFailed, Refused
from broker.jobs import wishes
from broker.jobs.catalog import Catalog
from broker.jobs.outcome import Outcome, Retried
from broker.jobs.reporting import Reporter, name_of, report_many, stamped
from broker.jobs.submission import JobOptions, Options, make_submit, new_event_id
from broker.rules.event import RemovePair, Submit
from broker.rules.key import ID_BYTES_MAX, Key, check_name, check_part
from broker.rules.record import Record
from broker.rules.wire import Reported, parse_event
from broker.store.nodes import WorkerInfo
from broker.store.output import Chunk
from broker.store.parked import Parked
from broker.subscriptions.groups import remove_group, replay_parked
from broker.subscriptions.handler import Handler
from broker.subscriptions.member import TRIES_MAX, Member
from broker.subscriptions.subscription import Subscription

#: Why a job that was handed in was not accepted.
_NOT_ACCEPTED = {
    "conflict": "is known already with another payload, or as a reported job (conflict)",
    "tombstoned": "was removed: it is not accepted again (tombstoned)",
}


class Broker(Catalog):
    """A client of one namespace on one Redis: a catalog that may also write. Thread-safe; a context manager."""

    # --- submitting and reporting ----------------------------------------------------------------

    def submit(
        self,
        engine: str,
        payload: Any = None,
        *,
        origin: str | None = None,
        id: str | None = None,
        run: str = "",
        **options: Unpack[JobOptions],
    ) -> Job:
        """Accept a job for our workers: `payload` is any JSON of at most 1 MiB.

        Options are those of `JobOptions`: priority, attempts, timeout and delay (seconds), at_most_once, model,
        requester. The id is the idempotency: the same id with the same payload is the same job, with another
        payload `Refused("conflict")`.
        """
        [(key, _)] = self._submit(engine, [(id, payload)], origin, run, Options(**options))
        return Job(self, key)

    def hand_in(
        self,
        engine: str,
        payload: Any = None,
        *,
        origin: str | None = None,
        id: str | None = None,
        run: str = "",
        **options: Unpack[JobOptions],
    ) -> Outcome:
        """`submit`, told as its outcome: `applied` where the job is new, `duplicate` where it was known."""
        [(_, told)] = self._submit(engine, [(id, payload)], origin, run, Options(**options))
        return told

    def submit_many(
        self,
        engine: str,
        payloads: Iterable[Any],
        *,
        origin: str | None = None,
        run: str = "",
        **options: Unpack[JobOptions],
    ) -> list[Job]:
        """`submit` for each payload, a batch a call; options are shared.

        Where it raises Unavailable some batches may be in already, under ids that nobody was told: to be able to
        repeat the whole, give ids yourself, one `submit` each.
        """
        wanted = [(None, payload) for payload in payloads]
        told = self._submit(engine, wanted, origin, run, Options(**options))
        return [Job(self, key) for key, _ in told]

    def _submit(
        self,
        engine: str,
        wanted: Sequence[tuple[str | None, Any]],
        origin: str | None,
        run: str,
        options: Options,
    ) -> list[tuple[Key, Outcome]]:
        now = self.store.clock.now()
        origin = self.config.node if origin is None else origin
        events = [
            make_submit(
                Key.of(origin, engine, run, wishes.new_id(now) if id is None else id),
                payload,
                options,
                now=now,
                by="user",
            )
            for id, payload in wanted
        ]
        return self._accept(events)

    def _accept(self, events: list[Submit]) -> list[tuple[Key, Outcome]]:
        answers = zip(events, self.view.apply(events), strict=True)
        told = [(event.key, Outcome.of(event.key, answer)) for event, answer in answers]
        for _, one in told:
            if not one.ok:
                why = _NOT_ACCEPTED.get(one.rule, f"was not accepted: {one.rule}")
                raise Refused(one.rule, f"{one.key} {why}")
        return told

    def report(self, event: Mapping[str, Any] | Reported) -> Outcome:
        """Tell one event of a job that somebody else runs, as native JSON or as an event. Raises Invalid."""
        made = stamped(parse_event(event) if isinstance(event, Mapping) else event)
        [answer] = self.view.apply([made])
        return Outcome.of(name_of(made), answer)

    def report_many(
        self, events: Iterable[Mapping[str, Any] | Reported | Outcome]
    ) -> Iterator[Outcome]:
        """The outcome of each event, in order, in bounded memory; an event out of bounds is refused `invalid`."""
        return report_many(self.view, events)

    def reporter(self) -> Reporter:
        """For a stream of events whose pauses matter: add, and flush when it is full or quiet."""
        return Reporter(self.view)

    # --- reading everything ----------------------------------------------------------------------

    def subscribe(
        self,
        name: str,
        handler: Handler,
        *,
        origins: Sequence[str] | None = None,
        tries: int = TRIES_MAX,
        on_gone: Callable[[Gone], object] | None = None,
    ) -> Subscription:
        """Have `handler` called with each event of `origins` (None: of all), in the order of each origin's log.

        The group `name` remembers where it stands, across restarts; its members, wherever they run, share the origins.
        An event counts as handled when the handler returned, so it may be told again after a crash. One on which it
        raised is tried again with backoff, its origin waiting meanwhile, and parked after `tries` tries. `on_gone` is
        told where events were lost unread, which is else logged. Raises Invalid.
        """
        return Subscription(
            Member(
                self.store,
                self.config,
                name,
                handler,
                origins=origins,
                tries=tries,
                on_gone=on_gone,
            )
        )

    # --- wishes ----------------------------------------------------------------------------------

    def cancel(self, key: Key | str, *, force: bool = False) -> Outcome:
        """Wish that the job ends. A running one is asked to stop; `force` ends it at once and fences its worker."""
        return self.cancel_many([key], force=force)[0]

    def remove(self, key: Key | str, *, force: bool = False) -> Outcome:
        """Remove exactly this job; a running one is first asked to end, unless `force`."""
        return self.remove_many([key], force=force)[0]

    def remove_pair(self, origin: str, id: str, *, force: bool = False) -> Outcome:
        """Remove every engine and run that shares (origin, id), seen or not yet seen."""
        check_name("origin", origin)
        check_part("id", id, ID_BYTES_MAX)
        event = RemovePair(origin=origin, id=id, force=force, event_id=new_event_id(), by="user")
        [answer] = self.view.apply([event])
        return Outcome.of(name_of(event), answer)

    def cancel_many(self, keys: Iterable[Key | str], *, force: bool = False) -> list[Outcome]:
        """`cancel` each job, many of an origin a call: the outcomes in the order of `keys`.

        Where it raises Unavailable some may have been told already: to say it again does no harm.
        """
        return wishes.say(self.view, wishes.intend(self._keys(keys), force=force))

    def remove_many(self, keys: Iterable[Key | str], *, force: bool = False) -> list[Outcome]:
        """`remove` each job, as `cancel_many` cancels."""
        return wishes.say(self.view, wishes.removals(self._keys(keys), force=force))

    def retry_many(self, keys: Iterable[Key | str]) -> list[Retried]:
        """`retry` each job: the outcomes in the order of `keys`, each naming the new job, or why there is none.

        Where it raises Unavailable some may have been handed in already; another call would do so again.
        """
        return list(wishes.retry(self.store, self.view, self._keys(keys)))

    def retry(self, key: Key | str) -> Job:
        """Submit an ended job anew: a new id, the same payload and options, `retry_of` naming the old one.

        Raises Refused: `not_ours`, `not_terminal`, or `expired` where its payload is gone.
        """
        key = self._key(key)
        record = self.get(key)
        [told] = self.retry_many([key])
        if not told.ok:
            why = wishes.REFUSALS.get(told.rule, "{} was not handed in again")
            raise Refused(told.rule, why.format(key, record.state))
        return Job(self, Key.parse(told.new_key))

    # --- the fleet -------------------------------------------------------------------------------

    def flag_node(self, node: str, flag: str | None) -> None:
        """Mark a node `drained` (nothing new) or `dead`, or clear its flag."""
        self.fleet.set_flag(check_name("node", node), flag)

    def tell_node(self, node: str, *, pressure: int = 0, models: Iterable[str] = ()) -> None:
        """Say what a node carries beside our jobs, and which models it has: placement minds both, for 24 h.

        A node that tells no models takes jobs for any.
        """
        self.fleet.tell(node, pressure=pressure, models=models)

    def remove_node(self, node: str) -> None:
        """Forget a node."""
        self.fleet.remove(check_name("node", node))

    def beat(self, worker: WorkerInfo) -> None:
        """Say that a worker lives."""
        self.fleet.beat(worker)

    def leave(self, worker: str) -> None:
        """Say that a worker ends."""
        self.fleet.leave(worker)

    # --- groups ----------------------------------------------------------------------------------

    def replay_parked(self, group: str, id: str | None = None) -> list[Parked]:
        """Have a group handle a parked entry again, or all it has parked; which those are. Raises NotFound.

        An id that stands at several origins is told apart as `ORIGIN/ID`.
        """
        return replay_parked(self, group, id)

    def remove_group(self, group: str, *, force: bool = False) -> None:
        """Forget a group, its places and what it has parked.

        Raises NotFound, and Refused("held") while a member lives, unless `force`: it goes on where it stands.
        """
        remove_group(self, group, force=force)

    # --- inside ----------------------------------------------------------------------------------

    def _keys(self, keys: Iterable[Key | str]) -> list[Key]:
        return [self._key(key) for key in keys]


@dataclass(frozen=True)
class Job:
    """A submitted job, as its submitter holds it."""

    broker: Broker
    key: Key

    def record(self) -> Record:
        """What is known of it now; raises NotFound."""
        return self.broker.get(self.key)

    def wait(self, timeout: float | None = None) -> Record | None:
        """Block until it ends; see `Broker.wait`."""
        return self.broker.wait(self.key, timeout)

    def result(self, timeout: float | None = None) -> Any:
        """Wait, then give what it returned; see `Broker.result`."""
        if self.wait(timeout) is None:
            raise JobFailed(f"{self.key} was removed")
        return self.broker.result(self.key)

    def cancel(self, *, force: bool = False) -> Outcome:
        """Wish that it ends; see `Broker.cancel`."""
        return self.broker.cancel(self.key, force=force)

    def output(self, after: str = "0-0") -> list[Chunk]:
        """Its progress and output; see `Broker.output`."""
        return self.broker.output(self.key, after)

    @property
    def id(self) -> str:
        """The id part of its key."""
        return self.key.id
