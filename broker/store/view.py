"""The records: applies events through `merge.lua`, their only writer but for the beats, and reads what it left."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence
from typing import Any, cast

from broker.errors import Damaged, Invalid, Unavailable
from broker.rules.bounds import Bounds
from broker.rules.event import Event, Prune, Remove, RemovePair, Report, arguments, origin_of
from broker.rules.key import NAME, Key, encode
from broker.rules.record import Record
from broker.rules.verdict import Answer
from broker.store.connection import redis_errors
from broker.store.decode import flaw, read_keys, read_number, read_record, read_text
from broker.store.refusal import Refusal, read_refusal
from broker.store.store import Store

__all__ = ["Refusal", "View"]

#: Events a call: beyond, the gain is small while the call holds Redis up (about 40 us an event). One that takes a
#: record off every list costs more than twice as much, and counts for two.
EVENTS_MAX = 100
#: Spec, result and whole errors a call may carry, in characters: an event beyond goes alone.
BLOBS_MAX = 1_048_576
#: How long result, output and a completed job's spec outlive the end, in milliseconds.
RESULT_TTL_MS = 86_400_000
#: How often a broad removal reads its siblings anew when others keep adding to them.
AGAIN_MAX = 20
#: How many members of a listing are read at once.
PAGE = 1_000
#: An origin is made known again after this long, in milliseconds: Redis may have been flushed, and readers would look
#: past what is reported since.
KNOWN_MS_MAX = 1_000


class View:
    """What is known of the jobs of every origin. Threads may share one."""

    def __init__(
        self, store: Store, bounds: Bounds | None = None, *, result_ttl_ms: int = RESULT_TTL_MS
    ) -> None:
        self._store = store
        self._bounds = bounds or Bounds()
        self._result_ttl_ms = result_ttl_ms
        #: When each origin was listed last, and which log of it was written to.
        self._known: dict[str, int] = {}
        self._epochs: dict[str, str] = {}

    # --- writing -------------------------------------------------------------------------------

    def apply(self, events: Sequence[Event]) -> list[Answer]:
        """Decide events of one origin, in order, and give an answer for each.

        At most 100 are one atomic step, of which a removal counts for two; a longer list is several. A repeat of the
        whole call applies nothing twice where the events carry an event_id or a number. Raises Unavailable (nothing
        was lost; send it again), Damaged.
        """
        return [answer for answers in self.steps(events) for answer in answers]

    def steps(self, events: Sequence[Event]) -> Iterator[list[Answer]]:
        """`apply`, an atomic step at a time: where one raises, the answers of those before it were given."""
        origin = _origin(events)
        for batch in _batches(events):
            now = self._make_known(origin)
            first = batch[0]
            if isinstance(first, RemovePair):
                yield [self._remove_pair(first, now)]
            else:
                yield self._call(origin, batch, (), now)

    def _remove_pair(self, event: RemovePair, now: int) -> Answer:
        for _ in range(AGAIN_MAX):
            answer = self._call(event.origin, [event], self.shared(event.origin, event.id), now)[0]
            if answer.outcome != "again":
                return answer
        raise Unavailable(
            f"the jobs of {event.origin} that share the id {event.id!r} keep changing"
        )

    def _call(
        self, origin: str, batch: Sequence[Event], siblings: Sequence[Key], now: int
    ) -> list[Answer]:
        books = self._store.keys.of(origin)
        keys, args = books.books, self._settings(now)
        for event in batch:
            if isinstance(event, RemovePair):
                args += [event.kind, event.pair, *arguments(event), str(len(siblings))]
                for key in siblings:
                    keys += books.of_job(key.job).all
                    args.append(key.member)
            else:
                job = event.key.job
                keys += books.of_job(job).all[: 4 if isinstance(event, Report) else 5]
                args += [event.kind, job, *arguments(event)]
        *told, epoch = [text.decode() for text in self._store.scripts.run("merge", keys, args)]
        if self._epochs.setdefault(origin, epoch) != epoch:
            self._epochs[origin] = epoch
            self._list(origin, now)  # a flush took the listing, too
        return [Answer(*told[at : at + 3]) for at in range(0, len(told), 3)]

    def _settings(self, now: int) -> list[str]:
        bounds = self._bounds
        numbers = (
            bounds.tombstones_max,
            bounds.answers_max,
            bounds.answers_ms_min,
            bounds.silence_ms_max,
            self._result_ttl_ms,
        )
        return [str(now), secrets.token_hex(8), *map(str, numbers)]

    def _make_known(self, origin: str) -> int:
        """List the origin before its first event, so that no job is ever out of sight; gives Redis's time."""
        now = self._store.clock.now()
        if now - self._known.get(origin, -KNOWN_MS_MAX) >= KNOWN_MS_MAX:
            self._list(origin, now)
        return now

    def _list(self, origin: str, now: int) -> None:
        with redis_errors():
            self._store.client.hsetnx(self._store.keys.origins, origin, str(now))
        self._known[origin] = now

    # --- reading -------------------------------------------------------------------------------

    def get(self, key: Key) -> Record | None:
        """The record, None where there is none. Raises Damaged where it cannot be read."""
        return self.get_many([key])[0]

    def get_many(self, keys: Sequence[Key]) -> list[Record | None]:
        """Records in the order of `keys`, each as it is at its own moment."""
        found: list[Record | None] = []
        for at in range(0, len(keys), PAGE):
            page = keys[at : at + PAGE]
            with redis_errors(), self._store.client.pipeline(transaction=False) as pipe:
                for key in page:
                    pipe.hgetall(self._store.keys.of_job(key).job)
                found += [_record(key, raw) for key, raw in zip(page, pipe.execute(), strict=True)]
        return found

    def refusals(self, key: Key) -> list[Refusal]:
        """The newest refusals of this job, newest first."""
        with redis_errors():
            told = self._store.client.lrange(self._store.keys.of_job(key).refused, 0, -1)
        return [read_refusal(text.decode()) for text in cast("list[bytes]", told)]

    def spec(self, key: Key) -> Any:
        """Payload and extras as they were given, None where they are gone."""
        return self._json(self._store.keys.of_job(key).spec)

    def specs(self, keys: Sequence[Key]) -> list[tuple[Any] | None]:
        """The same of several, each wrapped (it may be null), None where it is gone. Each may have 1 MiB."""
        with redis_errors(), self._store.client.pipeline(transaction=False) as pipe:
            for key in keys:
                pipe.get(self._store.keys.of_job(key).spec)
            found = zip(keys, pipe.execute(), strict=True)
        return [
            None if raw is None else (_json(f"the payload of {key}", raw),) for key, raw in found
        ]

    def result(self, key: Key) -> Any:
        """The result, or the whole error of a failed job; None where there is none, or no more."""
        return self._json(self._store.keys.of_job(key).result)

    def has_spec(self, key: Key) -> bool:
        """Whether payload or extras are still kept."""
        return self._exists(self._store.keys.of_job(key).spec)

    def has_result(self, key: Key) -> bool:
        """Whether a result is still kept: it may be null."""
        return self._exists(self._store.keys.of_job(key).result)

    def _exists(self, name: str) -> bool:
        with redis_errors():
            return bool(self._store.client.exists(name))

    def tombstone(self, key: Key) -> int:
        """The generation up to which this identity, or its (origin, id) pair, was removed; 0 = it was not."""
        with redis_errors():
            scores = self._store.client.zmscore(
                self._store.keys.of(key.origin).gone, [key.job, key.pair]
            )
        return max(int(score or 0) for score in scores)

    def horizon(self, origin: str) -> int:
        """Up to which created_at no job is taken that is not known, since older tombstones went; 0 = all are."""
        with redis_errors():
            told = self._store.client.hget(self._store.keys.of(origin).meta, "horizon")
        return read_number(cast("bytes | None", told))

    def promises(self, origins: Sequence[str]) -> dict[str, int]:
        """Those of them that promised to speak of their live jobs: for how long they may be silent, 0 = not said."""
        with redis_errors(), self._store.client.pipeline(transaction=False) as pipe:
            for origin in origins:
                pipe.hget(self._store.keys.of(origin).meta, "stale_after")
            told = pipe.execute(raise_on_error=False)  # one that is none must not hide the others
        return {
            origin: read_number(word)
            for origin, word in zip(origins, told, strict=True)
            if isinstance(word, bytes)
        }

    def _json(self, name: str) -> Any:
        with redis_errors():
            raw = self._store.client.get(name)
        return None if raw is None else _json(name, raw)

    def shared(self, origin: str, id: str) -> list[Key]:
        """Every record that shares (origin, id), in the order of `ids`.

        Paged by the last member: unlike paging by rank, that loses none when others come and go.
        """
        ids, pair = self._store.keys.of(origin).ids, encode(id)
        low, high = f"[{pair}/", f"({pair}0"  # `0` follows `/`: all that begin with `id/`
        found: list[Key] = []
        while True:
            with redis_errors():
                page = cast("list[bytes]", self._store.client.zrangebylex(ids, low, high, 0, PAGE))
            found += read_keys(Key.of_member, origin, page)
            if len(page) < PAGE:
                return found
            low = f"({page[-1].decode()}"

    def origins(self) -> list[str]:
        """Every origin that was ever heard of, by name. What is none is passed over: it must not hide the others."""
        with redis_errors():
            found = cast("list[bytes]", self._store.client.hkeys(self._store.keys.origins))
        return sorted(filter(NAME.match, map(read_text, found)))


def _origin(events: Sequence[Event]) -> str:
    origins = {origin_of(event) for event in events}
    if len(origins) > 1:
        raise Invalid(f"one call speaks of one origin, not of {', '.join(sorted(origins))}")
    return origins.pop() if origins else ""


def _batches(events: Sequence[Event]) -> Iterator[list[Event]]:
    """Split where a call would grow too large, and around each broad removal."""
    batch: list[Event] = []
    size = count = 0
    for event in events:
        counts = 2 if isinstance(event, Remove | Prune) else 1
        weight = sum(len(getattr(event, name, "")) for name in ("spec", "extras", "full", "result"))
        alone = isinstance(event, RemovePair)
        if batch and (alone or count + counts > EVENTS_MAX or size + weight > BLOBS_MAX):
            yield batch
            batch, size, count = [], 0, 0
        if alone:
            yield [event]
        else:
            batch.append(event)
            size += weight
            count += counts
    if batch:
        yield batch


def _json(name: str, raw: bytes | str) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as wrong:
        raise Damaged(f"{name} holds no JSON: {wrong}") from None


def _record(key: Key, raw: dict[bytes, bytes]) -> Record | None:
    if not raw.get(b"kind"):
        return None
    try:
        return read_record(raw)
    except (ValueError, TypeError):
        raise Damaged(f"the record of {key} cannot be read: {flaw(raw)}") from None
