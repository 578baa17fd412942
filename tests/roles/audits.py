"""How the tests drive an auditor: whole rounds, by its own steps alone."""

from __future__ import annotations

from broker.store.audited import Audited

STEPS_MAX = 2_000


def go_round(auditor):
    """Steps up to the end of the round that is on, or of the next one; its gauges."""
    told, tell = [], auditor._audited.tell

    def listen(seen):
        tell(seen)
        told.append(seen)

    auditor._audited.tell = listen
    step_until(auditor, lambda: told)
    auditor._audited.tell = tell
    return told[0]


def step_until(auditor, condition):
    """Steps until the condition holds."""
    for _ in range(STEPS_MAX):
        auditor.step()
        if condition():
            return
    raise AssertionError("it never happens")


def rounds_until_well(auditor, rounds_max=6):
    """Whole rounds until one finds nothing; what all of them found, and how many they were."""
    found = []
    for _ in range(rounds_max):
        seen = go_round(auditor)
        if not (seen.ghosts or seen.missing or seen.stuck or seen.drift or seen.unread):
            return found
        found.append(seen)
    raise AssertionError(f"it never becomes well: {found}")


def told(auditor):
    """What was mended, oldest first, as (kind, repair, job's id or key's name)."""
    return [
        (told.kind, told.what, told.job)
        for told in reversed(Audited(auditor._store).repairs(1_000))
    ]
