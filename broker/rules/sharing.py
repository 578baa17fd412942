"""How the members of a group share its origins: who takes which, who asks for one, who gives one back.

Nobody leads. Each member looks at the same owners and decides for itself; that two decide at once is harmless, since a
lease goes to one of them. It ends where no member owns two more than another, and then nothing moves any more.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

#: A member is asked only if it owns so many more: with less, an origin would move to and fro for ever.
UNEVEN_MIN = 2


class Stand(NamedTuple):
    """One origin as a member sees it: `owner` is empty where no lease stands, `asked` is who would like to have it."""

    owner: str = ""
    asked: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a member does now: leases to take, leases to give back, one origin to ask for, or empty."""

    take: list[str] = field(default_factory=list)
    give: list[str] = field(default_factory=list)
    ask: str = ""
    #: Whether its owner was asked, now or before, and may give it back at any moment.
    awaits: bool = False


def share(me: str, stands: Mapping[str, Stand], waited: Collection[str] = ()) -> Plan:
    """What `me` does. `waited`: free origins that were left long enough to the member that asked for them."""
    owned = Counter(stand.owner for stand in stands.values() if stand.owner)
    take, give = [], []
    for origin, stand in stands.items():
        if not stand.owner:
            # Who gave an origin back must not be the one to take it, only because it looks first.
            if stand.asked in ("", me) or origin in waited:
                take.append(origin)
        # With one more it is given, too: a wish that stands keeps others from asking.
        elif stand.owner == me and stand.asked not in ("", me) and owned[me] > owned[stand.asked]:
            give.append(origin)
            owned[me] -= 1
            owned[stand.asked] += 1
    owned[me] += len(take)
    richest = {
        owner for owner, count in owned.items() if owner != me and count >= owned[me] + UNEVEN_MIN
    }
    if any(stand.asked == me and stand.owner in richest for stand in stands.values()):
        return Plan(take, give, awaits=True)
    wanted = [
        origin for origin, stand in stands.items() if stand.owner in richest and not stand.asked
    ]
    # Of those with the most; each member begins elsewhere, so that several do not all want the same.
    ask = max(
        wanted, key=lambda origin: (owned[stands[origin].owner], _lot(me, origin)), default=""
    )
    return Plan(take, give, ask, bool(ask))


def _lot(me: str, origin: str) -> bytes:
    return hashlib.blake2s(f"{me} {origin}".encode(), digest_size=8).digest()
