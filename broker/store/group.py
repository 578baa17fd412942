"""One member's hands in a group of subscribers: what it owns of which origin, and what it does with that.

The truth about a subscription is one hash for each group and origin. Its owner reads the log after `acked` and moves
`acked` on, entry by entry; each of its calls carries the term of its ownership, and the scripts refuse any other. So an
owner that was frozen past its lease, and replaced, can do nothing any more, whatever it believes. A Redis consumer
group of the same name follows the hash, so that XINFO GROUPS and XPENDING show where it stands.

When to look, claim, wait, retry or give up is not decided here.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import redis

from broker.errors import Gone, Refused
from broker.rules.key import check_name
from broker.rules.record import clip
from broker.store.connection import redis_errors
from broker.store.decode import read_number, read_text
from broker.store.log import Place, Raw
from broker.store.parked import Parked, read_parked
from broker.store.store import Store

#: The most entries that one call fetches.
FETCH_MAX = 100
#: How much of a reason is kept.
REASON_BYTES_MAX = 1_000


class Seen(NamedTuple):
    """What a member looks at in a subscription; empty where it is not known (yet)."""

    owner: str = ""  #: the holder; empty = free
    until: int = 0  #: epoch ms, Redis's time: when the lease lapses
    epoch: str = ""
    acked: str = ""  #: rev of the last entry that was handled or parked
    asked: str = ""  #: the member that would like this origin
    replay: str = ""  #: ids of the parked entries to handle again


class Claim(NamedTuple):
    """What an owner has: its term, who would like the origin in its stead (or empty), and where to go on."""

    origin: str
    term: int
    asked: str
    place: Place


class Fetched(NamedTuple):
    """Entries in order, undecoded, how often the first of them failed or was interrupted, and their log's epoch."""

    entries: list[Raw]
    tries: int
    epoch: str


class Group:
    """A member of group `name`. `holder` must be unique among all members, now and later.

    Methods that take a term raise Refused("stale_term") where the ownership of that term ended. All raise Unavailable,
    and Damaged where a key is of a wrong type; then nothing was done.
    """

    def __init__(
        self, store: Store, name: str, holder: str, *, lease_ms: int, parked_max: int
    ) -> None:
        self.name = check_name("group", name)
        self.holder = holder
        self._store = store
        self._lease_ms = lease_ms
        self._parked_max = parked_max

    def look(self, origins: Sequence[str]) -> dict[str, Seen]:
        """How each origin stands; and tell everybody that a member of this group lives.

        An origin whose hash cannot be read is seen as free: `claim` then says what is wrong with it.
        """
        with redis_errors():
            pipe = self._store.client.pipeline(transaction=False)
            for origin in origins:
                pipe.hmget(self._store.keys.of(origin).sub(self.name), list(Seen._fields))
            pipe.hset(self._store.keys.groups, self.name, str(self._store.clock.now()))
            *found, stamped = pipe.execute(raise_on_error=False)
            # A full Redis takes no stamp; that counts after days, and must not stop a reader now.
            if isinstance(stamped, redis.RedisError) and not isinstance(
                stamped, redis.exceptions.OutOfMemoryError
            ):
                raise stamped
        return {origin: _seen(reply) for origin, reply in zip(origins, found, strict=True)}

    def claim(self, origin: str, known: Place | None = None, term: int = 0) -> Claim | None:
        """Take the origin, or renew the lease of `term`; None while another member holds it.

        `known` is where this process stood last: it goes on there if the subscription was lost meanwhile. Without it a
        subscription that is not known begins at the oldest entry that is kept.
        """
        epoch, rev = known or ("", "")
        args = (self.holder, self._lease_ms, self._store.clock.now(), term, epoch, rev)
        found = self._run("claim", origin, args, self._store.keys.of(origin).meta)
        if not found:
            return None
        raw_term, *texts = found
        asked, epoch, acked = map(read_text, texts)
        return Claim(origin, int(raw_term), asked, Place(epoch, acked))

    def release(self, origin: str, term: int) -> bool:
        """Give the origin back: another member may take it at once. Whether it was held."""
        return bool(self._run("release", origin, [term]))

    def ask(self, origin: str) -> bool:
        """Ask the owner to give the origin back. Whether it will be told: one member is heard at a time."""
        return bool(self._run("ask", origin, [self.holder]))

    def fetch(self, origin: str, term: int, count: int = FETCH_MAX) -> Fetched:
        """The entries that follow the last one acknowledged, at most `count`: nothing new before what is pending.

        Raises Gone where the log no longer holds them: then `skip`.
        """
        meta = self._store.keys.of(origin).meta
        answer, *found = self._run("fetch", origin, [term, min(count, FETCH_MAX)], meta)
        if answer == b"gone":
            raise Gone(origin, found[0].decode())
        self._check(answer, origin, term)
        tries, epoch, entries = found
        return Fetched([(rev, flat) for rev, flat in entries], int(tries), epoch.decode())

    def ack(self, origin: str, term: int, rev: str) -> None:
        """The entry was handled, and all before it."""
        self._check(self._run("ack", origin, [term, rev]), origin, term)

    def fail(self, origin: str, term: int) -> int:
        """The first entry of the last fetch was tried in vain: how often by now."""
        answer = self._run("fail", origin, [term, secrets.token_hex(8)])
        self._check(answer, origin, term)
        return int(answer)

    def park(self, origin: str, term: int, rev: str, reason: str) -> int:
        """The entry failed for good: put it aside with the reason, and go on behind it.

        How many that were parked before it went for good, unhandled, since no more than `parked_max` are kept.
        """
        args = (term, rev, _clip(reason), self._parked_max, self._store.clock.now())
        answer = self._run("park", origin, args, self._parked(origin))
        self._check(answer, origin, term)
        return int(answer)

    def skip(self, origin: str, term: int, known: Place | None = None) -> None:
        """After Gone: stand where the log can be read on, and count the gap. Does nothing where the place fits.

        `known` is where this process stood. Where log and subscription fell back behind it, the gap is counted, too.
        """
        answer = self._run(
            "skip", origin, [term, *(known or ("", ""))], self._store.keys.of(origin).meta
        )
        self._check(answer, origin, term)

    def to_replay(self, origin: str, term: int) -> Parked | None:
        """The parked entry to handle again next, until it is `done` or failed `again`; None where none is asked for."""
        answer, *found = self._run("fetch_parked", origin, [term], self._parked(origin))
        self._check(answer, origin, term)
        return read_parked(origin, (found[0][0], found[0][1])) if found else None

    def done(self, origin: str, term: int, id: str) -> None:
        """The parked entry was handled: it is no longer parked."""
        self._check(self._run("unpark", origin, [term, id], self._parked(origin)), origin, term)

    def again(self, origin: str, term: int, id: str, reason: str) -> None:
        """The parked entry failed once more: it stays parked, under a new id, until somebody asks anew."""
        args = (term, id, _clip(reason), self._parked_max, self._store.clock.now())
        self._check(self._run("repark", origin, args, self._parked(origin)), origin, term)

    def _parked(self, origin: str) -> str:
        return self._store.keys.of(origin).parked(self.name)

    def _run(self, script: str, origin: str, args: Sequence[str | int], *more_keys: str) -> Any:
        keys = self._store.keys.of(origin)
        return self._store.scripts.run(
            script, [keys.log, keys.sub(self.name), *more_keys], [self.name, *args]
        )

    def _check(self, answer: bytes, origin: str, term: int) -> None:
        if answer == b"stale_term":
            raise Refused("stale_term", f"term {term} of group {self.name} over {origin} is over")


def _clip(reason: str) -> str:
    return clip(reason, REASON_BYTES_MAX).encode(errors="replace").decode()


def _seen(reply: object) -> Seen:
    if isinstance(reply, redis.ResponseError) and "WRONGTYPE" in str(reply):
        return Seen()
    if isinstance(reply, redis.RedisError):
        raise reply
    owner, until, *texts = cast("list[bytes | None]", reply)
    return Seen(read_text(owner), read_number(until), *map(read_text, texts))
