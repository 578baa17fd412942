"""Statements of peers: strict JSON in, canonical bytes, and what a signature is made over.

A statement is read once, strictly, and signed in one form only: a tag that names its type, a NUL, and its canonical
JSON (keys in the order of their UTF-8, no spaces). So a signature for one type never verifies as another, and two
parsers cannot read two meanings out of one signed text. It may not know what the statements say.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from broker.errors import Untrusted

#: The largest integer that every JSON reader holds exactly.
INTEGER_MAX = 2**53 - 1
#: How deep objects and arrays may nest.
DEPTH_MAX = 8


def canonical(value: Any) -> bytes:
    """The one form of a statement that is signed; raise Untrusted, naming what a statement may not hold.

    It may hold objects, arrays, strings, booleans and integers below 2^53. Rules: `float`, `big_integer`, `null`,
    `lone_surrogate`, `too_deep`, and `malformed_json` for what is no JSON at all.
    """
    _check(value, DEPTH_MAX)
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def parse(text: str | bytes, bytes_max: int) -> dict[str, Any]:
    """Read one object of at most `bytes_max` bytes; raise Untrusted, naming what is wrong.

    Rules: those of `canonical`, `too_large`, `duplicate_key` and `malformed_json` (NaN too, and what is no object).
    """
    value = parse_value(text, bytes_max)
    if not isinstance(value, dict):
        raise Untrusted("malformed_json", "a JSON object is expected")
    return value


def parse_value(text: str | bytes, bytes_max: int) -> Any:
    """Read any one value as `parse` reads an object."""
    raw = _encoded(text) if isinstance(text, str) else text
    if len(raw) > bytes_max:
        raise Untrusted("too_large", f"{len(raw)} bytes of JSON where {bytes_max} are allowed")
    try:
        value = json.loads(
            raw.decode(),
            object_pairs_hook=_object,
            parse_float=_no_float,
            parse_int=_integer,
            parse_constant=_no_constant,
        )
    except RecursionError:
        raise Untrusted("too_deep", f"JSON nested deeper than {DEPTH_MAX} levels") from None
    except ValueError:
        # Of the text itself nothing is repeated: it is a stranger's.
        raise Untrusted("malformed_json", "this is not JSON in UTF-8") from None
    _check(value, DEPTH_MAX)
    return value


def message(tag: str, body: Mapping[str, Any]) -> bytes:
    """The bytes that a signature of the type `tag` is made over."""
    return tag.encode() + b"\0" + canonical(body)


def verify(public_key: bytes, tag: str, body: Mapping[str, Any], sig: str) -> bool:
    """Whether `sig` (see `to_text`) is the signature of that Ed25519 key under this statement."""
    try:
        return _holds(public_key, message(tag, body), sig)
    except Untrusted:
        return False


# Pure, and the same words are weighed again with every peer that comes in.
@lru_cache(maxsize=4096)
def _holds(public_key: bytes, said: bytes, sig: str) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(to_bytes(sig), said)
    except (InvalidSignature, Untrusted, ValueError):
        return False
    return True


def to_text(raw: bytes) -> str:
    """Bytes as base64url without padding."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def to_bytes(text: str) -> bytes:
    """Undo `to_text`; raise Untrusted("bad_encoding") for any other text, also for one that means the same bytes."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if not text or to_text(raw) != text:
        raise Untrusted("bad_encoding", "this is not base64url without padding")
    return raw


def _check(value: Any, depth: int) -> None:
    if isinstance(value, str):
        _encoded(value)
    elif isinstance(value, bool):
        return
    elif isinstance(value, int):
        if abs(value) > INTEGER_MAX:
            raise Untrusted("big_integer", "an integer of 2^53 or more")
    elif isinstance(value, Mapping | list | tuple):
        if depth == 0:
            raise Untrusted("too_deep", f"JSON nested deeper than {DEPTH_MAX} levels")
        if isinstance(value, Mapping):
            for name in value:
                if not isinstance(name, str):
                    raise Untrusted("malformed_json", "a name that is no text")
                _encoded(name)
            value = value.values()
        for inner in value:
            _check(inner, depth - 1)
    elif value is None:
        raise Untrusted("null", "null says nothing: leave the field out")
    else:
        rule = "float" if isinstance(value, float) else "malformed_json"
        raise Untrusted(rule, f"a value of type {type(value).__name__}")


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise Untrusted("lone_surrogate", "half a character, which is no Unicode text") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise Untrusted("duplicate_key", "an object that holds a name twice")
    return made


def _no_float(_: str) -> Any:
    raise Untrusted("float", "a number that is no integer")


def _no_constant(text: str) -> Any:
    raise Untrusted("malformed_json", f"{text} is not JSON")


def _integer(text: str) -> int:
    # A long text of digits is quadratic to read, and Python refuses it at 4,300.
    if len(text) > len(str(-INTEGER_MAX)):
        raise Untrusted("big_integer", "an integer of 2^53 or more")
    return int(text)
