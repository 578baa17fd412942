"""What an auditor counts: the totals of all that it found, and the jobs of each list, by which it begins early."""

from __future__ import annotations

import pytest

from broker.rules.event import Remove
from broker.store.audited import Audited
from tests.roles.audits import go_round, rounds_until_well, step_until
from tests.roles.fleet import ORIGIN


def name_of(fleet, key):
    return fleet.store.keys.of_job(key).job


def looks_at_keys(auditor, count):
    """Steps until the auditor has looked so many times at all keys; how many rounds ended meanwhile."""
    looks, rounds = [], []
    look, tell = auditor._look_at_counts, auditor._audited.tell
    auditor._look_at_counts = lambda here: (look(here), looks.append(here))
    auditor._audited.tell = lambda seen: (tell(seen), rounds.append(seen))
    step_until(auditor, lambda: len(looks) >= count)
    auditor._look_at_counts, auditor._audited.tell = look, tell
    return len(rounds)


def lose(fleet, *keys):
    fleet.store.client.delete(*(name_of(fleet, key) for key in keys))


# --- totals -----------------------------------------------------------------------------------------------------------


def test_what_was_found_is_counted_up_over_rounds_and_leaders(fleet):
    """The gauges are 0 again with the next round: who looks once a minute would never see it."""
    lost, edited, _ = fleet.report_many("abc")
    first = fleet.auditor()
    lose(fleet, lost)
    rounds = [go_round(first)]
    fleet.store.client.hset(name_of(fleet, edited), "node", "elsewhere")
    first.close()
    heir = fleet.auditor()
    rounds += rounds_until_well(heir)
    seen = Audited(fleet.store).seen()
    assert (seen.missing, seen.drift, seen.repaired) == (0, 0, 0)
    totals = (seen.found_total, seen.missing_total, seen.drift_total, seen.repaired_total)
    assert totals == (2, 1, 1, 2)
    assert len(rounds) == 2


@pytest.mark.parametrize("count", ["x", str(2**63 - 1)])
def test_a_total_that_a_foreign_hand_wrote_begins_anew(fleet, count):
    lost, _ = fleet.report_many("ab")
    lose(fleet, lost)
    fleet.store.client.hset(fleet.store.keys.audit, "missing_total", count)
    go_round(fleet.auditor())
    assert Audited(fleet.store).seen().missing_total == 1


# --- lists that do not agree ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lists", [("ids",), ("live",), ("done",), ("ids", "live", "done")])
def test_lists_that_were_deleted_do_not_wait_for_the_next_round(fleet, lists):
    before = [*fleet.report_many("abc"), fleet.report("d", "completed")]
    auditor = fleet.auditor(round_seconds=3600)
    go_round(auditor)
    looks_at_keys(auditor, 2)
    books = fleet.store.keys.of(ORIGIN)
    fleet.store.client.delete(*(getattr(books, name) for name in lists))
    assert go_round(auditor).repaired in (1, 3, 4)
    assert fleet.store.client.zcard(books.ids) == len(before)


def test_lists_that_do_not_agree_at_one_look_alone_are_somebody_at_work(fleet):
    key, _ = fleet.report_many("ab")
    auditor = fleet.auditor(round_seconds=3600)
    go_round(auditor)
    books = fleet.store.keys.of(ORIGIN)
    looks_at_keys(auditor, 2)
    for _ in range(3):
        fleet.store.client.zrem(books.ids, key.member)
        assert looks_at_keys(auditor, 1) == 0
        fleet.store.client.zadd(books.ids, {key.member: 0})
        assert looks_at_keys(auditor, 3) == 0


def test_lists_that_no_repair_makes_agree_get_one_round_before_its_time_not_one_after_another(
    fleet,
):
    fleet.report("7")
    auditor = fleet.auditor(round_seconds=3600)
    go_round(auditor)
    fleet.store.client.zadd(fleet.store.keys.of(ORIGIN).live, {b"\xff": 5})
    assert go_round(auditor).ghosts == 1
    assert looks_at_keys(auditor, 20) == 0


def test_where_all_jobs_of_an_origin_were_removed_nothing_is_looked_for_again_and_again(fleet):
    key = fleet.report("7")
    auditor = fleet.auditor(round_seconds=3600)
    go_round(auditor)
    looks_at_keys(auditor, 2)
    fleet.say(Remove(key=key, force=True))
    assert looks_at_keys(auditor, 10) == 1  # ids is no more, and might have been lost
    auditor._early_due = 0.0
    assert looks_at_keys(auditor, 10) == 0
    assert Audited(fleet.store).seen().found_total == 0
