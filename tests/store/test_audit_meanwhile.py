"""What an audit makes of time that passed, and of what others do while it looks."""

from __future__ import annotations

import pytest

from broker.errors import Gone, Unavailable
from broker.rules.audit import NOTHING, RELIST, STUCK
from broker.rules.event import Remove, RemovePair
from broker.store.audit import LOOKS_MAX, Audit
from broker.store.log import Log
from broker.store.queue import move_due
from tests.store.readers import ORIGIN, key
from tests.store.shop import BUDGETS, HOUR_MS, run


@pytest.mark.parametrize(
    "id, budget_ms, text",
    [
        ("placed", BUDGETS.start_ms, "placed on n1"),
        ("running", BUDGETS.guess_ms, "silent"),
        ("guess", BUDGETS.grace_ms + BUDGETS.guess_ms, "guess"),
    ],
)
def test_a_job_that_nobody_moved_for_far_too_long_is_stuck(shop, id, budget_ms, text):
    late_ms = 2 * budget_ms + BUDGETS.brake_ms
    shop.clock.ahead_ms = late_ms
    assert id not in [found[0] for found in shop.found()]
    shop.clock.ahead_ms = late_ms + 1
    found = {found[0]: found[1:] for found in shop.found()}
    assert found[id][:2] == (STUCK, NOTHING)
    assert text in found[id][2]
    assert f"{late_ms // 1000} s" in found[id][2]


def test_a_job_that_stays_delayed_long_after_it_was_due_is_stuck(shop):
    due_ms = HOUR_MS + 2 * BUDGETS.guess_ms + BUDGETS.brake_ms
    shop.clock.ahead_ms = due_ms
    assert "delayed" not in [found[0] for found in shop.found()]
    shop.clock.ahead_ms = due_ms + 1
    assert ("delayed", STUCK, RELIST) in [found[:3] for found in shop.found()]
    move_due(shop.store, ORIGIN, shop.clock.now())
    assert "delayed" not in [found[0] for found in shop.found()]


def test_a_beat_keeps_a_running_job_from_being_stuck(shop):
    shop.clock.ahead_ms = HOUR_MS
    shop.client.hset(shop.name("running"), "last_seen", shop.clock.now())
    assert "running" not in [found[0] for found in shop.found()]


def test_what_waits_for_a_place_or_is_reported_is_never_stuck(shop):
    shop.guess(key("live"))
    shop.clock.ahead_ms = 100 * HOUR_MS
    late = {found[0] for found in shop.found()}
    assert late == {"delayed", "placed", "running", "guess"}


# --- while others write --------------------------------------------------------------------------


def stepped(shop, steps):
    audit = Audit(shop.store, ORIGIN, BUDGETS)
    for _ in range(steps):
        audit.step()
    return audit


def whole(shop):
    """How many steps an audit takes."""
    audit, steps = Audit(shop.store, ORIGIN, BUDGETS), 1
    while not audit.step():
        steps += 1
    return steps


def test_what_was_spoken_of_meanwhile_is_no_finding_at_whatever_moment(shop):
    """What moves between any two steps is left for the next audit, be it damaged or not."""
    shop.client.hset(shop.name("live"), "node", "n9")
    assert [found[0] for found in shop.found()] == ["live"]
    for n in range(1, whole(shop)):
        shop.client.hset(shop.name("live"), "node", "n9")
        audit = stepped(shop, n)
        shop.report("live", seq=n, node=f"n{n}")
        shop.report(f"new{n}")
        shop.say(Remove(key=key(f"new{n}")))
        assert run(audit).findings == []


def test_what_was_damaged_between_the_looks_is_no_finding_yet(shop):
    """Both looks must agree: the second is the one that counts, and what only it saw waits for the next audit."""
    audit = stepped(shop, whole(shop) - 1)
    shop.client.hset(shop.name("live"), "node", "n9")
    assert run(audit).findings == []
    assert [found[0] for found in shop.found()] == ["live"]


def test_a_removal_of_its_pair_speaks_of_a_job_as_well(shop):
    """It finds no record, so it writes no entry of the job's own: what was missing must not be restored after it."""
    shop.client.delete(shop.name("live"))
    assert [found[0] for found in shop.found()] == ["live"]
    audit = stepped(shop, whole(shop) - 1)
    shop.say(RemovePair(origin=ORIGIN, id="live"))
    assert run(audit).findings == []


def test_what_was_mended_between_the_looks_is_no_finding(shop):
    shop.client.hset(shop.name("live"), "node", "n9")
    audit = stepped(shop, 2)
    shop.client.hset(shop.name("live"), "node", "n1")
    assert run(audit).findings == []


def test_a_log_that_is_replaced_under_it_makes_it_begin_anew(shop):
    for n in range(1, whole(shop)):
        audit = stepped(shop, n)
        shop.client.delete(shop.keys.log)
        shop.report(f"new{n}")
        assert run(audit).findings == []


def test_a_redis_that_loses_everything_under_it_makes_it_begin_anew(shop):
    for n in range(1, whole(shop)):
        audit = stepped(shop, n)
        shop.client.delete(*shop.client.keys(f"{shop.store.keys.namespace}:*"))
        if n % 2:
            shop.open()
        assert run(audit).findings == []
        assert audit.looked == (9 if n % 2 else 0)
        if not n % 2:
            shop.open()


def test_a_log_that_is_cut_under_it_makes_it_begin_anew(shop, monkeypatch):
    """What an unread entry said of a job that was read as living must not make it a missing one."""
    monkeypatch.setattr("broker.store.audit.CHUNK_MAX", 2)
    for n in range(1, 6):
        audit = stepped(shop, n)
        shop.report(f"new{n}")
        shop.say(Remove(key=key(f"new{n}")))
        shop.say(Remove(key=shop.report(f"other{n}")))
        shop.cut(1)
        assert run(audit).findings == []
        for more in range(8):
            shop.report(f"more{n}-{more}")


def test_a_log_that_is_always_cut_is_said_not_guessed_at(shop, monkeypatch):
    looks = []

    def gone(*args):
        looks.append(args)
        raise Gone(ORIGIN, "trimmed")

    monkeypatch.setattr(Log, "read_on", gone)
    with pytest.raises(Unavailable, match="cut faster"):
        shop.audit()
    assert len(looks) == LOOKS_MAX


def test_after_a_failure_it_begins_anew(shop, monkeypatch):
    """What a step could not read must not count as healthy."""
    shop.client.delete(shop.name("live"))
    for n in range(1, whole(shop)):
        audit = stepped(shop, n)
        with monkeypatch.context() as away:
            away.setattr(Log, "read_on", lost)
            with pytest.raises(Unavailable):
                run(audit)
        assert not audit.done
        assert [finding.job for finding in run(audit).findings] == [key("live").job]


def lost(*_args):
    raise Unavailable("Redis does not answer")


def test_a_full_redis_is_audited_all_the_same(shop):
    shop.client.delete(shop.name("live"))
    shop.client.config_set("maxmemory", 1)
    try:
        assert [found[0] for found in shop.found()] == ["live"]
    finally:
        shop.client.config_set("maxmemory", 0)
