"""A holder's beat: one call that says it lives and hears how it stands."""

from __future__ import annotations

from typing import NamedTuple

from broker.rules.key import Key
from broker.store.store import Store


class Beat(NamedTuple):
    """What a holder hears."""

    valid: bool  #: the attempt is still its own; if not: stop, and clean up
    desired: str  #: what the user wants: run, cancel or remove; empty where the job is gone
    guessed: bool  #: a guess stands against it: reassert


def beat(store: Store, key: Key, attempt: int, holder: str) -> Beat:
    """Move the job's last_seen if `holder` holds this attempt. Raises Unavailable, Damaged."""
    args = (store.clock.now(), attempt, holder)
    valid, desired, guessed = store.scripts.run("beat", [store.keys.of_job(key).job], args)
    return Beat(valid == b"1", desired.decode(), guessed == b"1")
