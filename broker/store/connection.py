"""The way to Redis: the client, Redis's clock, and its errors in our words."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis
from redis.backoff import ExponentialWithJitterBackoff, NoBackoff
from redis.retry import Retry

from broker.errors import BrokerError, Damaged, Misconfigured, Unanswered, Unavailable

#: redis-py re-sends in silence; every event of ours carries a mark or a number, so that a re-send never applies twice.
RETRIES = 2
CONNECT_SECONDS_MAX = 1.0
#: Two re-sends end within 10 s, inside the answers' memory.
ANSWER_SECONDS_MAX = 3.0

#: The oldest server whose commands we use.
VERSION_MIN = (7, 0)

_RETRYABLE = (redis.ConnectionError, redis.TimeoutError)
#: What redis-py has a class for loses its first word; what it has none for, or what a script met, keeps it.
_NOT_NOW_CLASSES = (
    redis.exceptions.OutOfMemoryError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.NoPermissionError,
    redis.exceptions.TryAgainError,
    redis.exceptions.ClusterDownError,
)
#: Answers after which nothing was written, and which may be otherwise in a moment.
_NOT_NOW = (
    "OOM", "READONLY", "LOADING", "BUSY", "MASTERDOWN", "MISCONF", "NOREPLICAS", "NOPERM",
    "CLUSTERDOWN", "TRYAGAIN", "UNKILLABLE",
)  # fmt: skip

#: How Redis begins its answer where a key is of a wrong type, and what then happens.
WRONG_TYPE = "WRONGTYPE"
SET_ASIDE_SOON = f"({WRONG_TYPE}); the auditor sets such a key aside within seconds"
#: How redis-py names a pipeline's command before the answer; our client names a single one alike.
_COMMANDED = re.compile(
    r"Command (?:# \d+ )?\((.*)\) (?:of pipeline )?caused error: (.*)", re.DOTALL
)


class _Client(redis.Redis):
    """One whose errors name the command that met a key of a wrong type: Redis's answer does not name the key."""

    def execute_command(self, *args: Any, **options: Any) -> Any:
        try:
            return super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
        except redis.ResponseError as answer:
            if str(answer).startswith(WRONG_TYPE):
                command = " ".join(_word(word) for word in args)
                answer.args = (f"Command ({command:.100}) caused error: {answer}",)
            raise


def _word(part: object) -> str:
    return part.decode(errors="replace") if isinstance(part, bytes) else str(part)


def connect(url: str) -> redis.Redis:
    """A client. Does not talk to the server yet; raises Misconfigured for a bad url."""
    try:
        return _Client.from_url(
            url,
            decode_responses=False,
            socket_connect_timeout=CONNECT_SECONDS_MAX,
            socket_timeout=ANSWER_SECONDS_MAX,
            retry=Retry(ExponentialWithJitterBackoff(base=0.05, cap=0.5), RETRIES),
        )
    except ValueError as wrong:
        raise Misconfigured(f"Redis url {_without_password(url)!r}: {wrong}") from None


def _without_password(url: str) -> str:
    head, at, tail = url.rpartition("@")
    return f"{head.partition('://')[0]}://...{at}{tail}" if at else url


@contextmanager
def redis_errors() -> Iterator[None]:
    """Turn redis-py's errors into ours: the one place that knows both."""
    try:
        yield
    except BrokerError:
        raise
    except _RETRYABLE as lost:
        raise Unanswered(f"Redis does not answer: {_line(lost)}") from lost
    except redis.AuthenticationError as denied:
        raise Unavailable(f"Redis refuses the login: {_line(denied)}") from denied
    except _NOT_NOW_CLASSES as answer:
        raise Unavailable(f"Redis does not take the call: {_line(answer)}") from answer
    except redis.ResponseError as answer:
        command, text = _parted(_line(answer))
        if text.startswith(_NOT_NOW) or any(f"-{word}" in text for word in _NOT_NOW):
            raise Unavailable(f"Redis does not take the call: {text}") from answer
        if command and text.startswith(WRONG_TYPE):
            raise Damaged(f"{command} met a key of a wrong type {SET_ASIDE_SOON}") from answer
        raise Damaged(f"Redis answered{command and f' to {command}'}: {text}") from answer
    except redis.RedisError as other:
        raise Unavailable(f"Redis: {_line(other)}") from other


def _parted(text: str) -> tuple[str, str]:
    """The command, if it is known, and what Redis answered to it."""
    found = _COMMANDED.match(text)
    return (found[1], found[2]) if found else ("", text)


def _line(error: Exception) -> str:
    # Whatever follows our sentence, a full stop of redis-py does not stand before it.
    return " ".join(str(error).split()).removesuffix(".")[:300]


def check_version(client: redis.Redis) -> str:
    """Return the server's version as text; raise Misconfigured, naming it, below 7.0.

    Asked once, without our retries: it comes first, and whoever waits for it shall soon hear that Redis is away.
    """
    retry = client.get_retry()
    client.set_retry(Retry(NoBackoff(), 0))
    try:
        with redis_errors():
            info = client.info("server")
    finally:
        if retry is not None:
            client.set_retry(retry)
    version = str(info.get("valkey_version") or info.get("redis_version", "0"))
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers < VERSION_MIN:
        raise Misconfigured(
            f"Redis {version} is too old: fleet-broker needs Redis 7.0 or later, or Valkey"
        )
    return version


def run_id(client: redis.Redis) -> str:
    """Which incarnation of the server answers: another one after each restart or failover. Raises Unavailable."""
    with redis_errors():
        return str(client.info("server").get("run_id", ""))


class Clock:
    """Redis's time, epoch ms: read once in a while, carried on by the local monotonic clock in between.

    A step of the local wall clock therefore changes nothing. It is never ahead of Redis's, however long an answer took,
    and goes back only where that one did: what a process does later is never older.
    """

    #: How long one reading is carried on, in seconds.
    READING_SECONDS_MAX = 5.0
    #: One that took longer may lag by as much: it is made anew the next time.
    PROMPT_SECONDS_MAX = 0.5

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._read_at = -self.READING_SECONDS_MAX
        self._ahead_ms = -math.inf  # of Redis's clock before the monotonic one, at least

    def now(self) -> int:
        """Redis's time in epoch milliseconds."""
        here = time.monotonic()
        if here - self._read_at >= self.READING_SECONDS_MAX:
            with redis_errors():
                seconds, micros = self._client.time()
            arrived = time.monotonic()
            # Redis read it somewhere in between. What was known before stands where that does not contradict it.
            told = seconds * 1000 + micros / 1000
            least, most = told - arrived * 1000, told - here * 1000
            self._ahead_ms = min(max(self._ahead_ms, least), most)
            prompt = arrived - here <= self.PROMPT_SECONDS_MAX
            self._read_at = arrived if prompt else -self.READING_SECONDS_MAX
            here = arrived
        return int(self._ahead_ms + here * 1000)
