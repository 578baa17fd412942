"""One line of JSON, or one body, read strictly: what any reader could not read back, or only differently, is refused.

It knows nothing of events. Numbers stay exact or are refused (no NaN, nothing beyond a double or of thousands of
digits), text is Unicode, nesting is bounded far below where a reader would run out of stack. Of a name that occurs
twice in an object the last value counts, as most readers have it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn

from broker.errors import Invalid, Malformed

#: One line of JSONL, and one event's unknown fields.
LINE_BYTES_MAX = 1024 * 1024
DEPTH_MAX = 64

_SPACE = re.compile(r"[ \t\n\r]*")
#: A member without escapes whose value holds no others: most are.
_PLAIN = re.compile(
    r"""\s*"([^"\\]*)"\s*:\s*("[^"\\]*"|[-+.0-9eE]+|true|false|null)\s*(?:,\s*|(?=\}))"""
)
#: An escape that may stand for half of a character; the parsed text tells whether it does.
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def load(
    line: bytes | str, what: str = "the line", bytes_max: int = LINE_BYTES_MAX
) -> tuple[Any, str]:
    """The value of a line (or of `what` it is), and it as text. Raises Malformed, in one clear line."""
    text = _text(line, what, bytes_max)
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as wrong:
        complaint = wrong.msg.removesuffix(" at")
        row = f"line {wrong.lineno} " if wrong.lineno > 1 else ""
        raise Malformed(f"not JSON: {complaint} at {row}column {wrong.colno}") from None
    except Malformed:
        raise
    except RecursionError:
        raise _too_deep() from None
    except ValueError:
        raise Malformed("not JSON that can be read back: a number of thousands of digits") from None
    _check_depth(value, text)
    return value, text


def dump(what: str, value: Any) -> str:
    """The value as compact JSON text. Raises Invalid, naming `what`, where it has no such form."""
    try:
        text = _ENCODER.encode(value)
        size = len(text.encode())
    except RecursionError:
        raise _too_deep() from None
    except UnicodeEncodeError:
        raise Invalid(f"{what} is not valid Unicode text", field=what) from None
    except (TypeError, ValueError):
        raise Invalid(f"{what} has no JSON form", field=what) from None
    if size > LINE_BYTES_MAX:
        raise Invalid(f"{what} has more than {LINE_BYTES_MAX} bytes", field=what)
    _check_depth(value, text)
    return text


def members(text: str, path: Sequence[str], wanted: Iterable[str]) -> dict[str, str]:
    """The `wanted` members of the object at `path`, each value as the very text that stands in the line.

    The line was loaded before: it is valid JSON, and holds an object there. Raises Invalid for a value that is not
    valid Unicode text.
    """
    start = 0
    for name in path:
        start = _spans(text, start)[name][0]
    spans = _spans(text, start)
    found = {}
    for name in wanted:
        begin, end = spans[name]
        found[name] = text[begin:end]
        if _SURROGATE.search(text, begin, end):
            dump(ascii(name[:40]), {name: json.loads(found[name])})
    return found


def elements(text: str) -> Iterator[str]:
    """The elements of the array that a loaded text is, each as the very text that stands there."""
    at = _skip(text, _skip(text, 0) + 1)
    while text[at] != "]":
        begin = at
        _, at = _DECODER.raw_decode(text, begin)
        yield text[begin:at]
        at = _skip(text, at)
        if text[at] == ",":
            at = _skip(text, at + 1)


def _text(line: bytes | str, what: str, bytes_max: int) -> str:
    try:
        text = line.decode() if isinstance(line, bytes) else line
        size = len(line) if text.isascii() else len(text.encode())
    except UnicodeError:
        raise Malformed(f"{what} is not UTF-8 text") from None
    if size > bytes_max and size - len(text) + len(text.rstrip("\r\n")) > bytes_max:
        raise Malformed(f"{what} has more than {bytes_max} bytes")
    return text.removeprefix("\ufeff")


def _refuse_constant(name: str) -> NoReturn:
    raise Malformed(f"not JSON: {name} is no number")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise Malformed("not JSON that can be read back: a number beyond all bounds")
    return number


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _spans(text: str, start: int) -> dict[str, tuple[int, int]]:
    """Where the members' values stand, of the object that begins at `start`."""
    found = {}
    at = _skip(text, _skip(text, start) + 1)
    while text[at] != "}":
        if plain := _PLAIN.match(text, at):
            found[plain[1]] = plain.span(2)
            at = plain.end()
            continue
        name, at = _DECODER.raw_decode(text, at)
        begin = _skip(text, _skip(text, at) + 1)
        _, end = _DECODER.raw_decode(text, begin)
        found[name] = (begin, end)
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return found


def _skip(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]  # it matches nothing, too


def _check_depth(value: Any, text: str) -> None:
    if text.count("[") + text.count("{") <= DEPTH_MAX:
        return
    level = [value]
    for _ in range(DEPTH_MAX + 1):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return
    raise _too_deep()


def _inside(value: Any) -> Any:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


def _too_deep() -> Malformed:
    return Malformed(f"nested deeper than {DEPTH_MAX} levels")
