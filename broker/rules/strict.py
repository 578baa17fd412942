"""The records of trust as they come from outside: every field there, of its type, within its bounds.

A record that says more, less or otherwise is refused whole and by name: what is not understood must not be signed for,
kept or passed on. It may not know what the records mean together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from broker.errors import Invalid, Untrusted
from broker.rules.certificate import read_certificate
from broker.rules.key import check_name, check_part
from broker.rules.signed import INTEGER_MAX, to_bytes

#: Whatever keeps the other bounds fits.
RECORD_BYTES_MAX = 16 * 1024
NAME_BYTES_MAX = 128
EPOCH_MAX = INTEGER_MAX

_SIGNATURE_BYTES = 64
_FINGERPRINT = re.compile(r"sha256:[0-9a-f]{64}\Z")


def check_display(name: str) -> str:
    """Return `name` if it can be the display name of a peer, or empty for none; raise Invalid otherwise."""
    return check_part("name", name, NAME_BYTES_MAX, empty=True)


def check_epoch(epoch: int) -> int:
    """Return `epoch` if it is from 1 to EPOCH_MAX; raise Invalid otherwise."""
    if not 1 <= epoch <= EPOCH_MAX:
        raise Invalid(f"the epoch must be from 1 to {EPOCH_MAX}")
    return epoch


def fields(said: object, checks: Mapping[str, Callable[[Any], Any]]) -> dict[str, Any]:
    """The fields of a record, each checked; raise Untrusted.

    Rules: `malformed_record` (no object, a field missing, unknown or of the wrong type), `out_of_bounds`.
    """
    if not isinstance(said, dict) or said.keys() != checks.keys():
        raise Untrusted("malformed_record", f"a record of {', '.join(checks)} is expected")
    made = {}
    for name, check in checks.items():
        try:
            made[name] = check(said[name])
        except Invalid as wrong:
            raise Untrusted("out_of_bounds", str(wrong)) from None
        except TypeError:
            raise Untrusted("malformed_record", f"{name} is of another type") from None
    return made


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _integer(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError
    return value


def _node(value: object) -> str:
    text = _text(value)
    # Before `check_name`, which repeats the text in its complaint.
    return check_name("node", check_part("node", text, 63))


def _moment(value: object) -> int:
    moment = _integer(value)
    if not 0 <= moment <= INTEGER_MAX:
        raise Invalid("a time must be a number of ms from 0 to 2^53 - 1")
    return moment


def _signature(value: object) -> str:
    text = _text(value)
    if len(to_bytes(text)) != _SIGNATURE_BYTES:
        raise Invalid(f"a signature must have {_SIGNATURE_BYTES} bytes")
    return text


def _fingerprint(value: object) -> str:
    text = _text(value)
    if not _FINGERPRINT.match(text):
        raise Invalid("a fingerprint must be sha256: and 64 hexadecimal digits")
    return text


#: Field -> what reads it.
CHECKS: dict[str, Callable[[Any], Any]] = {
    "by": _node,
    "by_epoch": lambda value: check_epoch(_integer(value)),
    "node": _node,
    "epoch": lambda value: check_epoch(_integer(value)),
    "fingerprint": _fingerprint,
    "issued_at": _moment,
    "removed_at": _moment,
    "pinned_at": _moment,
    "created_at": _moment,
    "sig": _signature,
    "name": lambda value: check_display(_text(value)),
    "certificate": lambda value: read_certificate(_text(value)),
}
