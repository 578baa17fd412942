"""What the janitor lets go of, and what it keeps: step by step on a real Redis, where the test is the clock."""

from __future__ import annotations

import pytest

from broker.errors import Gone
from broker.rules.event import Guess, Intent, Remove, Report
from broker.rules.key import Key
from broker.rules.replay import rev_order
from broker.store.log import Log
from broker.store.watch import Watcher
from tests.roles.fleet import ORIGIN, settle
from tests.store.members import Owner
from tests.store.readers import ORIGIN as READ

DAY_MS = 86_400_000
WEEK_MS = 7 * DAY_MS


def log_length(fleet, origin=ORIGIN):
    return fleet.store.client.xlen(fleet.store.keys.of(origin).log)


def listed(fleet, keys):
    return [key for key in keys if fleet.view.get(key) is not None]


def looked(fleet, group, ago_ms=0):
    fleet.store.client.hset(fleet.store.keys.groups, group, fleet.clock.now() - ago_ms)


def stand(fleet, group, index):
    """The group has acked the entry of this index, and nothing after it."""
    rev = Log(fleet.store, ORIGIN).read()[index].rev
    epoch = Log(fleet.store, ORIGIN).position().epoch
    sub = fleet.store.keys.of(ORIGIN).sub(group)
    fleet.store.client.hset(sub, mapping={"acked": rev, "epoch": epoch})


# --- the log ----------------------------------------------------------------------------------------------------


def test_a_log_is_cut_to_its_count_in_every_origin(fleet):
    for origin in ("a", "b", "c"):
        fleet.report_many(range(12), origin=origin)
    assert settle(fleet.janitor(log_max=5)) == 21
    assert [log_length(fleet, origin) for origin in ("a", "b", "c")] == [5, 5, 5]


def test_entries_older_than_the_age_go_whatever_the_count(fleet):
    fleet.report_many(range(3))
    janitor = fleet.janitor(log_ms_max=DAY_MS)
    assert settle(janitor) == 0
    fleet.clock.ahead_ms += DAY_MS + 10_000
    assert settle(janitor) == 3
    assert log_length(fleet) == 0


def test_a_live_group_keeps_its_unread_tail_and_no_more_than_the_hard_cap(fleet):
    fleet.report_many(range(12))
    looked(fleet, "mail")
    stand(fleet, "mail", 3)

    janitor = fleet.janitor(log_max=2, log_hard_max=10)
    assert settle(janitor) == 3
    assert log_length(fleet) == 9
    fleet.report_many(range(12, 16))
    assert settle(janitor) == 3
    assert log_length(fleet) == 10


def test_a_slow_reader_gets_every_entry_while_the_log_is_cut_behind_it(fleet):
    fleet.report("first", origin=READ)
    owner = Owner(fleet.store)
    janitor = fleet.janitor(log_max=3)
    told, read = [], []
    for turn in range(30):
        told += fleet.report_many(range(turn * 5, turn * 5 + 5), origin=READ)
        owner.group.look([READ])
        settle(janitor)
        revs = owner.fetch(4)
        read += revs
        owner.ack(revs[-1])
    assert log_length(fleet, READ) > 30
    while revs := owner.fetch(40):
        read += revs
        owner.ack(revs[-1])
        settle(janitor)
    assert len(read) == len(set(read)) == 1 + len(told)
    assert sorted(read, key=rev_order) == read
    assert log_length(fleet, READ) == 3

    fleet.report_many(range(1_000, 1_010), origin=READ)
    fleet.janitors.pop().close()
    settle(fleet.janitor(log_max=3, log_hard_max=6))
    with pytest.raises(Gone):
        owner.fetch()


def test_a_group_that_nobody_reads_as_for_a_week_is_forgotten_and_keeps_nothing(fleet):
    fleet.report_many(range(12))
    for group in ("dead", "mail"):
        stand(fleet, group, 5)
        fleet.store.client.xgroup_create(fleet.store.keys.of(ORIGIN).log, group, "0")
        fleet.store.client.xadd(fleet.store.keys.of(ORIGIN).parked(group), {"reason": "broken"})
    looked(fleet, "dead", WEEK_MS + 1)
    looked(fleet, "mail", WEEK_MS - 1)

    janitor = fleet.janitor(log_max=2)
    assert settle(janitor) == 5 + 1
    assert fleet.store.client.hkeys(fleet.store.keys.groups) == [b"mail"]
    keys = fleet.store.keys.of(ORIGIN)
    assert fleet.store.client.exists(keys.sub("dead"), keys.parked("dead")) == 0
    assert fleet.store.client.exists(keys.sub("mail"), keys.parked("mail")) == 2
    assert [group["name"] for group in fleet.store.client.xinfo_groups(keys.log)] == [b"mail"]

    fleet.clock.ahead_ms += 2
    assert settle(janitor) == 5 + 1
    assert log_length(fleet) == 2


def test_dead_groups_are_forgotten_also_where_there_is_no_origin(fleet):
    for group in ("dead", "dying", "mail"):
        looked(fleet, group, 0 if group == "mail" else WEEK_MS + 1)
    janitor = fleet.janitor()
    for _ in range(2):
        assert janitor.step() == 1
    assert janitor.step() == 0
    assert fleet.store.client.hkeys(fleet.store.keys.groups) == [b"mail"]


def test_a_group_that_looks_again_just_before_it_is_forgotten_stays(fleet, monkeypatch):
    fleet.report("7")
    stand(fleet, "mail", 0)
    looked(fleet, "mail", WEEK_MS + 1)
    janitor = fleet.janitor()
    is_live = janitor._groups.is_live

    def looked_meanwhile(*args):
        looked(fleet, "mail")
        return is_live(*args)

    monkeypatch.setattr(janitor._groups, "is_live", looked_meanwhile)
    assert settle(janitor) == 0
    assert fleet.store.client.exists(fleet.store.keys.of(ORIGIN).sub("mail"))


# --- ended jobs -------------------------------------------------------------------------------------------------


def test_of_the_ended_jobs_the_newest_stay(fleet):
    now = fleet.clock.now()
    ended = [fleet.report(n, "completed", completed_at=now - 100 + n) for n in range(8)]
    live = fleet.report_many(range(8, 12))

    assert settle(fleet.janitor(done_max=3)) == 5
    assert listed(fleet, ended) == ended[5:]
    assert listed(fleet, live) == live


def test_jobs_that_ended_long_ago_go_whatever_the_count(fleet):
    old = fleet.report("old", "failed")
    fleet.clock.ahead_ms += WEEK_MS
    new = fleet.report("new", "failed")

    assert settle(fleet.janitor(log_ms_max=10 * WEEK_MS)) == 1
    assert listed(fleet, [old, new]) == [new]


def test_the_age_counts_by_redis_s_clock_not_by_the_one_that_the_producer_tells(fleet):
    """A device whose clock begins at 1970: its jobs must not vanish as soon as they end. More of them than a page."""
    late = [
        fleet.report(f"late-{n:03}", "completed", created_at=n + 1, completed_at=n + 2)
        for n in range(150)
    ]
    janitor = fleet.janitor(log_ms_max=10 * WEEK_MS)
    fleet.clock.ahead_ms += WEEK_MS - 1
    assert [janitor.step() for _ in range(5)] == [0] * 5
    assert listed(fleet, late) == late

    newer = fleet.report("newer", "completed", created_at=500, completed_at=501)
    fleet.clock.ahead_ms += 1
    assert sum(janitor.step() for _ in range(5)) == 150
    assert listed(fleet, [newer]) == [newer]


def test_a_job_that_waited_for_long_and_then_ended_stays_as_long_as_any_other(fleet):
    """Nobody beats for a job that waits: what was seen of it last is its submission."""
    key = fleet.submit("7")
    janitor = fleet.janitor()
    fleet.clock.ahead_ms += 10 * WEEK_MS
    fleet.say(Intent(key=key))
    settle(janitor)
    assert fleet.view.get(key).state == "cancelled"
    fleet.clock.ahead_ms += WEEK_MS
    settle(janitor)
    assert fleet.view.get(key) is None


def test_of_such_jobs_too_the_newest_stay(fleet):
    keys = [fleet.report(n, "completed", created_at=1, completed_at=n + 2) for n in range(8)]
    assert settle(fleet.janitor(done_max=3)) == 5
    assert listed(fleet, keys) == keys[5:]


def test_a_job_of_our_own_workers_goes_with_all_it_left(fleet):
    fleet.workers_of("node-a")
    key = fleet.submit("7", spec='{"payload":1}')
    settle(fleet.dispatcher())
    fleet.start(key)
    fleet.finish(key, result="[1]")
    fleet.store.client.xadd(fleet.store.keys.of_job(key).out, {"chunk": "x"})
    fleet.clock.ahead_ms += WEEK_MS

    settle(fleet.janitor())
    assert fleet.store.client.exists(*fleet.store.keys.of_job(key).all) == 0


def test_what_was_pruned_leaves_a_tombstone_and_an_entry_and_does_not_come_back(fleet):
    key = fleet.report("7", "completed")
    created_at = fleet.view.get(key).created_at
    fleet.report("8", "completed", completed_at=fleet.clock.now() + 1)
    settle(fleet.janitor(done_max=1))

    assert fleet.log()[-1] == "pruned"
    assert fleet.view.tombstone(key) == created_at
    late = Report(key=key, created_at=created_at, state="running", seq=99)
    assert fleet.view.apply([late])[0].rule == "tombstoned"


def test_every_cache_shrinks_with_the_list(fleet):
    keys = fleet.report_many(range(5), "completed")
    with Watcher(fleet.store) as watcher:
        listed_before = [change.key for change in watcher.changes(0)]
        assert sorted(listed_before) == sorted(keys)
        settle(fleet.janitor(done_max=2))
        gone = [change.key for change in watcher.changes(0) if change.record is None]
    assert gone == keys[:3]


def test_a_job_that_was_heard_of_after_it_was_read_stays(fleet, monkeypatch):
    """A new generation under the same name: the one that was read is not there any more."""
    keys = fleet.report_many(range(3), "completed")
    janitor = fleet.janitor(done_max=1)
    apply = janitor._view.apply

    def heard_of_just_before(events):
        monkeypatch.setattr(janitor._view, "apply", apply)
        fleet.report("0", "running", created_at=fleet.clock.now() + 1)
        return apply(events)

    monkeypatch.setattr(janitor._view, "apply", heard_of_just_before)
    assert settle(janitor) == 1
    assert listed(fleet, keys) == [keys[0], keys[2]]
    assert [refusal.rule for refusal in fleet.view.refusals(keys[0])] == ["guess_outdated"]


def test_a_thousand_old_jobs_go_a_page_a_step(fleet):
    fleet.view.apply(
        [
            Report(key=Key(ORIGIN, "e", "", str(n)), created_at=fleet.clock.now(), state="failed")
            for n in range(1_000)
        ]
    )
    janitor = fleet.janitor(done_max=350)
    assert [janitor.step() for _ in range(8)] == [100] * 6 + [50, 0]


# --- reported jobs that nobody speaks of --------------------------------------------------------------------------


def test_a_live_reported_job_goes_when_nobody_spoke_of_it_for_a_week(fleet):
    silent, spoken_of = fleet.report("silent"), fleet.report("spoken of", node="n")
    janitor = fleet.janitor(log_ms_max=10 * WEEK_MS)
    fleet.clock.ahead_ms += WEEK_MS - 1
    assert settle(janitor) == 0

    created_at = fleet.view.get(spoken_of).created_at
    fleet.report("spoken of", node="n", created_at=created_at)  # a heartbeat: no change
    fleet.clock.ahead_ms += 1
    assert settle(janitor) == 1
    assert listed(fleet, [silent, spoken_of]) == [spoken_of]


@pytest.mark.parametrize("ahead_ms", [0, DAY_MS])
def test_the_silence_counts_from_the_last_sighting_not_from_the_job_s_own_clock(fleet, ahead_ms):
    fleet.report("7", created_at=fleet.clock.now() + ahead_ms)
    janitor = fleet.janitor(silence_ms_max=1_000)
    fleet.clock.ahead_ms += 999
    assert settle(janitor) == 0
    fleet.clock.ahead_ms += 1
    assert settle(janitor) == 1


def test_a_job_of_our_own_is_never_pruned_before_its_end(fleet):
    fleet.workers_of("node-a")
    running, waiting = fleet.submit_many(range(2))
    settle(fleet.dispatcher())
    fleet.start(running)
    fleet.clock.ahead_ms += 10 * WEEK_MS

    settle(fleet.janitor())
    assert listed(fleet, [running, waiting]) == [running, waiting]
    assert fleet.view.refusals(running) == fleet.view.refusals(waiting) == []  # not even asked


def test_a_guess_is_given_the_same_silence_as_the_word_that_it_replaced(fleet):
    """A sweep that was wrong must find the job still there when its origin speaks again."""
    key = fleet.report("7")
    record = fleet.view.get(key)
    fleet.say(Guess(key=key, rev=record.rev, last_seen=record.last_seen, term=1))
    janitor = fleet.janitor()
    fleet.clock.ahead_ms += WEEK_MS - 1
    settle(janitor)
    assert fleet.view.get(key).inferred

    fleet.clock.ahead_ms += 1
    settle(janitor)
    assert fleet.view.get(key) is None


def test_silent_jobs_are_found_among_many_in_a_bounded_look(fleet):
    now = fleet.clock.now()
    old = [Key(ORIGIN, "e", "", f"old-{n}") for n in range(20)]
    many = [Key(ORIGIN, "e", "", str(n)) for n in range(1_500)]
    fleet.view.apply([Report(key=key, created_at=now, state="running") for key in old])
    fleet.clock.ahead_ms += WEEK_MS
    fleet.view.apply([Report(key=key, created_at=now + 1, state="running") for key in many])

    janitor = fleet.janitor(log_ms_max=10 * WEEK_MS)
    pruned = [janitor.step() for _ in range(40)]
    assert sum(pruned) == 20
    assert listed(fleet, old) == []
    assert max(pruned) < 20


# --- origins that fell silent -------------------------------------------------------------------------------------


def books_kept(fleet, origin=ORIGIN):
    prefix = fleet.store.keys.of(origin).prefix
    return {
        name.decode()[len(prefix) + 1 :] for name in fleet.store.client.scan_iter(f"{prefix}:*")
    }


def test_an_origin_rests_when_its_records_and_entries_are_gone_and_then_costs_no_call(
    fleet, monkeypatch
):
    key = fleet.report("7", "completed")
    fleet.report("8", "running")
    fleet.say(Remove(key=key._replace(id="8")))
    fleet.report("9", origin="other")
    janitor = fleet.janitor()
    settle(janitor)
    fleet.clock.ahead_ms += WEEK_MS - 1
    fleet.report("9", "failed", origin="other")
    settle(janitor)
    assert books_kept(fleet) >= {"gone", "log", "meta", "seen"}

    fleet.clock.ahead_ms += 10_000
    assert settle(janitor) > 0
    assert books_kept(fleet) == {"log", "meta"}
    assert books_kept(fleet, "other") >= {"ids", "job:ollama//9", "log", "meta"}
    monkeypatch.delattr("broker.roles.janitor.rest")  # whoever calls it fails
    assert settle(janitor) == 0
    assert (
        fleet.view.apply([Report(key=key, created_at=1, state="running")])[0].rule == "tombstoned"
    )


def test_no_answer_is_forgotten_before_its_time_however_soon_the_log_is_cut(fleet):
    fleet.say(Remove(key=Key(ORIGIN, "e", "", "7"), event_id="x"))
    janitor = fleet.janitor(log_ms_max=1_000, answers_ms_min=60_000)
    fleet.clock.ahead_ms += 50_000
    settle(janitor)
    assert log_length(fleet) == 0
    assert books_kept(fleet) == {"log", "meta", "gone", "seen"}
    fleet.clock.ahead_ms += 20_000
    assert settle(janitor) == 1
    assert books_kept(fleet) == {"log", "meta"}


# --- the round ----------------------------------------------------------------------------------------------------


def test_a_step_looks_at_some_origins_and_a_round_at_all(fleet):
    for n in range(45):
        fleet.report_many(range(3), origin=f"o{n:02}")
    janitor = fleet.janitor(log_max=2)
    assert [janitor.step() for _ in range(3)] == [20, 20, 5]
    assert [janitor.step() for _ in range(3)] == [1, 1, 0]  # it says that a round is not over


def test_a_step_cuts_a_bounded_number_of_entries(fleet):
    fleet.view.apply(
        [
            Report(key=Key(ORIGIN, "e", "", str(n)), created_at=1, state="running")
            for n in range(2_500)
        ]
    )
    janitor = fleet.janitor(log_max=10)
    assert [janitor.step() for _ in range(4)] == [1_000, 1_000, 490, 0]


def test_where_much_is_left_the_next_round_comes_at_once_else_after_a_while(fleet):
    """Where something comes in all the time, there is always something to go: that must not keep it busy."""
    fleet.view.apply(
        [Report(key=Key("a", "e", "", str(n)), created_at=1, state="running") for n in range(2_500)]
    )
    fleet.view.apply(
        [Report(key=Key("b", "e", "", str(n)), created_at=1, state="failed") for n in range(250)]
    )
    for n in range(45):
        fleet.report("7", origin=f"o{n:02}")
    janitor = fleet.janitor(round_seconds=3_600, log_max=10, done_max=10)
    assert settle(janitor) >= 2_490 + 240
    assert log_length(fleet, "a") == 10
    assert fleet.store.client.zcard(fleet.store.keys.of("b").done) == 10

    fleet.report_many(range(5), origin="a")
    assert janitor.step() == 0
    assert log_length(fleet, "a") == 15
    janitor._round_due = 0.0  # an hour later
    settle(janitor)
    assert log_length(fleet, "a") == 10
