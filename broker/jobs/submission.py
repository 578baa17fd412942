"""From what a caller asks for to a submit event: bounds, the id, the spec and its digest."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import threading
from dataclasses import dataclass
from typing import Any, TypedDict

from broker.errors import Invalid
from broker.rules.event import NUMBER_MAX, Submit
from broker.rules.index import PRIORITY_MAX
from broker.rules.key import Key, check_part
from broker.rules.record import clip

#: A payload, and a result, as JSON text.
JSON_BYTES_MAX = 1024 * 1024
#: A model's or a requester's name, in bytes: kept whole, since the engine is told it.
NAME_BYTES_MAX = 256
ATTEMPTS = 3
ATTEMPTS_MAX = 1_000
#: Delays and timeouts, in seconds: a year.
SECONDS_MAX = 365 * 86_400

#: How much is told of where in a payload something is wrong.
PLACE_CHARS_MAX = 200
_HALF = re.compile(r"[\ud800-\udfff]")
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


class JobOptions(TypedDict, total=False):
    """The keyword options of `submit`: how a job is to be run; `timeout` and `delay` in seconds."""

    priority: int
    attempts: int | None
    timeout: float | None
    delay: float
    at_most_once: bool
    model: str
    requester: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The same, with the defaults: three attempts of a job, one where it may run at most once."""

    priority: int = 0
    attempts: int | None = None
    timeout: float | None = None
    delay: float = 0
    at_most_once: bool = False
    model: str = ""
    requester: str = ""

    @property
    def tries(self) -> int:
        """How often it may start."""
        if self.attempts is None:
            return 1 if self.at_most_once else ATTEMPTS
        return self.attempts

    def check(self) -> None:
        """Raise Invalid for the first option outside its bounds."""
        if not -PRIORITY_MAX <= self.priority <= PRIORITY_MAX:
            raise Invalid(
                f"priority must be -{PRIORITY_MAX} to {PRIORITY_MAX}, not {self.priority}"
            )
        if not 1 <= self.tries <= ATTEMPTS_MAX:
            raise Invalid(f"attempts must be 1 to {ATTEMPTS_MAX}, not {self.attempts}")
        if self.at_most_once and self.tries > 1:
            raise Invalid("at_most_once allows one attempt only: say attempts=1")
        if self.timeout is not None and not 0 < self.timeout <= SECONDS_MAX:
            raise Invalid(f"timeout must be above 0 and at most {SECONDS_MAX} seconds")
        check_part("model", self.model, NAME_BYTES_MAX, empty=True)
        check_part("requester", self.requester, NAME_BYTES_MAX, empty=True)
        if not 0 <= self.delay <= SECONDS_MAX:
            raise Invalid(f"delay must be 0 to {SECONDS_MAX} seconds")


def make_submit(
    key: Key, payload: Any, options: Options, *, now: int, by: str, retry_of: str = ""
) -> Submit:
    """The submit event of one job; `now` is Redis's time in ms. Raises Invalid."""
    options.check()
    spec = encode_json("payload", payload)
    return Submit(
        key=key,
        created_at=now,
        digest=hashlib.sha256(spec.encode()).hexdigest()[:32],
        attempts=options.tries,
        priority=options.priority,
        timeout=max(1, round((options.timeout or 0) * 1000)) if options.timeout else 0,
        at_most_once=options.at_most_once,
        due=min(NUMBER_MAX, now + round(options.delay * 1000)) if options.delay else 0,
        model=options.model,
        requester=options.requester,
        retry_of=retry_of,
        spec=spec,
        event_id=new_event_id(),
        by=clip(by),
    )


def encode_json(what: str, value: Any) -> str:
    """The value as canonical JSON text (so that equal payloads have equal digests); raises Invalid."""
    try:
        text = json.dumps(
            value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        )
        size = len(text.encode())
    except UnicodeEncodeError as wrong:
        half = ascii(wrong.object[wrong.start])[1:-1]
        place = _place_of_half(what, value)
        said = f"{place} is not valid Unicode text: half a character, {half}, stands there"
        raise Invalid(said, field=place) from None
    except (TypeError, ValueError, RecursionError) as wrong:
        raise Invalid(f"{what} is not JSON: {wrong}") from None
    if size > JSON_BYTES_MAX:
        raise Invalid(f"{what} has {size} bytes as JSON; at most {JSON_BYTES_MAX} are taken")
    return text


def _place_of_half(what: str, value: Any) -> str:
    """The first place in a value whose text, or a name there, holds half a character."""
    try:
        path = _path_to_half(value) or []
    except RecursionError:
        path = []
    return ".".join([what, *path])[:PLACE_CHARS_MAX]


def _path_to_half(value: Any) -> list[str] | None:
    if isinstance(value, str):
        return [] if _HALF.search(value) else None
    if isinstance(value, dict):
        if any(isinstance(name, str) and _HALF.search(name) for name in value):
            return []
        members = iter(value.items())
    elif isinstance(value, list | tuple):
        members = enumerate(value)
    else:
        return None
    for name, inner in members:
        if (path := _path_to_half(inner)) is not None:
            return [str(name), *path]
    return None


def new_event_id() -> str:
    """A nonce that makes our own re-sends answerable: bound to its job, so 64 random bits are plenty."""
    return secrets.token_hex(8)


class NewIds:
    """Job ids of 12 characters that sort by time: 9 of milliseconds, 3 of chance, rising within a process."""

    def __init__(self) -> None:
        self._last = 0
        self._lock = threading.Lock()

    def next(self, now: int) -> str:
        """An id for a job of this moment (epoch ms)."""
        with self._lock:
            self._last = max(self._last + 1, (now << 15) | secrets.randbits(15))
            number = self._last
        return "".join(_ALPHABET[(number >> shift) & 31] for shift in range(55, -1, -5))
