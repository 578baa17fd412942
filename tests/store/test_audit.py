"""Each kind of damage is found and named; what is no damage is not."""

from __future__ import annotations

import pytest

from broker.errors import Damaged
from broker.rules.audit import (
    DRIFT,
    GHOST,
    MISSING,
    NOTHING,
    RELIST,
    REMOVE,
    RESTORE,
    STUCK,
    UNLIST,
)
from broker.rules.event import Prune, Remove, RemovePair
from broker.store.audit import Audit
from broker.store.log import Log
from broker.store.queue import ready
from broker.store.scan import scan
from tests.store.readers import ORIGIN, key
from tests.store.shop import run


def test_an_origin_with_a_job_in_every_state_has_nothing_wrong_and_is_not_touched(shop):
    before = shop.dump()
    audit = run(Audit(shop.store, ORIGIN))
    assert audit.findings == []
    assert audit.looked == 9
    assert shop.dump() == before


def test_an_origin_that_nobody_knows_has_nothing_wrong(store):
    assert run(Audit(store, "nowhere")).findings == []


def test_a_deleted_record_is_missing(shop):
    shop.client.delete(shop.name("running"))
    rev = Log(shop.store, ORIGIN).position().rev
    [finding] = shop.audit()
    assert (finding.kind, finding.what, finding.job) == (MISSING, RESTORE, key("running").job)
    assert finding.seen == ""
    assert finding.word.record.state == "running"
    assert finding.word.record.holder == "h"
    assert finding.rev == rev
    assert finding.word.rev in finding.text


def test_a_record_deleted_with_all_its_listings_is_missing(shop):
    shop.client.delete(shop.name("live"))
    shop.client.zrem(shop.keys.ids, key("live").member)
    shop.client.zrem(shop.keys.live, key("live").job)
    [(id, kind, what, _)] = shop.found()
    assert (id, kind, what) == ("live", MISSING, RESTORE)


@pytest.mark.parametrize(
    "id, field, value",
    [
        ("live", "node", "n9"),
        ("running", "holder", "x"),
        ("done", "state", "failed"),
        ("guess", "guessed_from", "queued"),
        ("ready", "priority", "99"),
        ("placed", "attempt", "7"),
        ("live", "created_at", "5"),
        ("live", "rev", "1-1"),
    ],
)
def test_a_field_edited_by_hand_is_a_drift_that_names_it(shop, id, field, value):
    shop.client.hset(shop.name(id), field, value)
    [(found, kind, what, text)] = shop.found()
    assert (found, kind, what) == (id, DRIFT, RESTORE)
    assert field in text


def test_a_sighting_is_no_drift(shop):
    shop.client.hset(shop.name("live"), mapping={"last_seen": 5, "sightings": 99})
    assert shop.found() == []


@pytest.mark.parametrize(
    "id, index, kind",
    [
        ("live", "ids", MISSING),
        ("done", "ids", MISSING),
        ("live", "live", MISSING),
        ("guess", "live", MISSING),
        ("done", "done", MISSING),
        ("untimed", "done", MISSING),
        ("ready", "ready", STUCK),
        ("delayed", "delayed", STUCK),
    ],
)
def test_a_job_that_an_index_lost_is_found(shop, id, index, kind):
    member = key(id).member if index == "ids" else key(id).job
    assert shop.client.zrem(getattr(shop.keys, index), member)
    [(found, of_kind, what, text)] = shop.found()
    assert (found, of_kind, what) == (id, kind, RELIST)
    assert index in text


@pytest.mark.parametrize(
    "id, index",
    [
        ("done", "live"),
        ("live", "done"),
        ("live", "ready"),
        ("running", "ready"),
        ("delayed", "ready"),
        ("ready", "delayed"),
        ("placed", "delayed"),
    ],
)
def test_a_job_where_it_does_not_belong_is_a_drift(shop, id, index):
    shop.client.zadd(getattr(shop.keys, index), {key(id).job: 5})
    [(found, kind, what, text)] = shop.found()
    assert (found, kind, what) == (id, DRIFT, RELIST)
    assert index in text


@pytest.mark.parametrize("index", ["live", "done", "ready", "delayed"])
@pytest.mark.parametrize("score", [1, 1.5, "inf", "-inf"])
def test_a_wrong_score_is_a_drift(shop, index, score):
    id = {"done": "ended"}.get(index, index)
    shop.client.zadd(getattr(shop.keys, index), {key(id).job: score})
    [(found, kind, what, text)] = shop.found()
    assert (found, kind, what) == (id, DRIFT, RELIST)
    assert f"score in {index}" in text


def test_where_nobody_told_its_end_any_score_of_an_ended_job_is_right(shop):
    shop.client.zadd(shop.keys.done, {key("untimed").job: 77})
    assert shop.found() == []


@pytest.mark.parametrize("index", ["ids", "live", "done", "ready", "delayed"])
@pytest.mark.parametrize("id", ["gone", "never-heard-of"])
def test_what_is_listed_without_a_record_is_a_ghost(shop, index, id):
    member = key(id).member if index == "ids" else key(id).job
    shop.client.zadd(getattr(shop.keys, index), {member: 5})
    [(found, kind, what, text)] = shop.found()
    assert (found, kind, what) == (id, GHOST, UNLIST)
    assert f"listed in {index}" in text


@pytest.mark.parametrize("index", ["ids", "live", "done", "ready", "delayed"])
@pytest.mark.parametrize("member", ["", "odd", "a/b", "a/b/c/d"])
def test_a_listed_text_that_names_no_job_is_a_ghost(shop, index, member):
    shop.client.zadd(getattr(shop.keys, index), {member: 5})
    [finding] = shop.audit()
    assert (finding.kind, finding.what) == (GHOST, UNLIST)


def test_listed_bytes_that_are_no_text_are_a_ghost_and_hide_nothing(shop):
    shop.client.zadd(shop.keys.ids, {b"\xff": 0})
    shop.client.zadd(shop.keys.live, {b"\xfe/x": 0})
    shop.client.delete(shop.name("live"))
    *strange, missing = shop.audit()
    assert [(finding.kind, finding.what) for finding in strange] == [(GHOST, NOTHING)] * 2
    assert [finding.key for finding in strange] == [shop.keys.ids, shop.keys.live]
    assert missing.kind == MISSING


def back(shop, id, leave):
    """A record that came back: as it was before `leave` took it away, and listed."""
    name, job = shop.name(id), key(id)
    old = shop.client.hgetall(name)
    leave()
    assert shop.view.get(job) is None
    shop.client.hset(name, mapping=old)
    shop.client.zadd(shop.keys.ids, {job.member: 0})
    shop.client.zadd(shop.keys.live, {job.job: int(old[b"created_at"])})


@pytest.mark.parametrize(
    "removal",
    [Remove(key=key("live")), RemovePair(origin=ORIGIN, id="live")],
    ids=["exact", "pair"],
)
def test_a_record_that_came_back_after_its_removal_is_a_ghost(shop, removal):
    back(shop, "live", lambda: shop.say(removal))
    [(found, kind, what, text)] = shop.found()
    assert (found, kind, what) == ("live", GHOST, REMOVE)
    assert "gone" in text


@pytest.mark.parametrize("id", ["live", "ended"])
@pytest.mark.parametrize("pair", [False, True])
def test_it_is_one_as_well_where_only_its_tombstone_still_tells(shop, id, pair):
    shop.cut()  # the pair's own entry is written where `ids` has none of it
    job = key(id)

    def leave():
        if pair:
            shop.client.delete(shop.name(id))
            shop.client.zrem(shop.keys.ids, job.member)
            shop.client.zrem(shop.keys.live, job.job)
            shop.client.zrem(shop.keys.done, job.job)
            shop.say(RemovePair(origin=ORIGIN, id=id, removed_at=shop.begun_at))
        else:
            shop.say(Remove(key=job))

    back(shop, id, leave)
    shop.cut()
    [(found, kind, what, text)] = shop.found()
    assert (found, kind, what) == (id, GHOST, REMOVE)
    assert "tombstone" in text


def test_a_removed_pair_takes_a_record_that_ids_did_not_tell_of(shop):
    """The removal could not see it: its own word still bears it, the pair's says that it is gone."""
    shop.client.zrem(shop.keys.ids, key("live").member)
    shop.say(RemovePair(origin=ORIGIN, id="live"))
    [(found, kind, what, _)] = shop.found()
    assert (found, kind, what) == ("live", GHOST, REMOVE)


def test_a_running_job_outlives_the_removal_of_its_pair(shop):
    shop.say(RemovePair(origin=ORIGIN, id="running"))
    shop.say(RemovePair(origin=ORIGIN, id="running", removed_at=shop.begun_at + 5))
    assert shop.found() == []


def test_a_record_below_the_floor_is_the_truth(shop):
    shop.cut()
    shop.client.hset(shop.name("live"), "node", "n9")
    assert shop.found() == []


def test_below_the_floor_a_record_still_has_to_be_listed(shop):
    shop.cut()
    shop.client.zrem(shop.keys.live, key("live").job)
    assert [found[:3] for found in shop.found()] == [("live", MISSING, RELIST)]


def test_a_deleted_log_leaves_the_records_as_the_truth(shop):
    shop.client.delete(shop.keys.log)
    assert shop.found() == []
    shop.report("later")
    assert shop.found() == []
    assert shop.store.client.xlen(shop.keys.log) == 1


def test_a_log_whose_head_a_foreign_hand_cut_leaves_the_records_as_the_truth(shop):
    shop.client.xtrim(shop.keys.log, maxlen=1, approximate=False)
    assert shop.found() == []


def test_a_record_whose_entry_was_taken_out_of_the_log_is_a_ghost_that_nobody_removes(shop):
    """It may be the only evidence of an accepted job: a person decides."""
    rev = shop.view.get(key("ended")).rev
    shop.client.xdel(shop.keys.log, rev)
    [(found, kind, what, text)] = shop.found()
    assert (found, kind, what) == ("ended", GHOST, NOTHING)
    assert rev in text


def test_nor_does_a_record_go_back_to_an_older_entry_when_its_own_was_taken_out(shop):
    """A job that ended must not run again because a hand took its end out of the log."""
    rev = shop.view.get(key("done")).rev
    shop.client.xdel(shop.keys.log, rev)
    [(found, kind, what, text)] = shop.found()
    assert (found, kind, what) == ("done", DRIFT, NOTHING)
    assert rev in text


def test_nor_is_a_job_removed_that_came_after_an_older_removal(shop):
    shop.clock.ahead_ms += 1_000
    shop.report("gone", created_at=shop.clock.now())
    shop.client.xdel(shop.keys.log, shop.view.get(key("gone")).rev)
    [(found, kind, what, _)] = shop.found()
    assert (found, kind, what) == ("gone", GHOST, NOTHING)


@pytest.mark.parametrize("is_pair", [False, True])
def test_a_removal_that_was_taken_out_of_the_log_brings_nothing_back(shop, is_pair):
    removal = RemovePair(origin=ORIGIN, id="live") if is_pair else Remove(key=key("live"))
    rev = shop.say(removal).rev
    shop.client.xdel(shop.keys.log, rev)
    assert shop.found() == []
    shop.client.zadd(shop.keys.live, {key("live").job: 5})
    [(found, kind, what, text)] = shop.found()
    assert (found, kind, what) == ("live", GHOST, UNLIST)
    assert "tombstone" in text


@pytest.mark.parametrize(
    "field, value",
    [
        ("attempt", "many"),
        ("rev", "last"),
        ("kind", ""),
        ("state", "lost"),
        ("desired", "more"),
        ("node", b"\xff"),
    ],
)
def test_a_record_that_cannot_be_read_is_named(shop, field, value):
    shop.client.hset(shop.name("live"), field, value)
    [finding] = shop.audit()
    assert (finding.kind, finding.what, finding.damaged) == (DRIFT, RESTORE, True)
    assert finding.seen == ""
    shop.cut()
    [finding] = shop.audit()
    assert (finding.kind, finding.what, finding.damaged) == (DRIFT, UNLIST, True)


def test_a_record_that_nothing_tells_of_is_found_by_whoever_names_it(shop):
    shop.cut()
    for index in (shop.keys.ids, shop.keys.live):
        shop.client.delete(index)
    assert key("live").job not in [finding.job for finding in shop.audit()]
    audit = run(Audit(shop.store, ORIGIN, also=[key("live").job, key("nobody").job]))
    [finding] = [finding for finding in audit.findings if finding.job == key("live").job]
    assert (finding.kind, finding.what) == (MISSING, RELIST)
    assert key("nobody").job not in [finding.job for finding in audit.findings]


def test_a_key_of_a_wrong_type_in_the_place_of_a_record_is_named(shop):
    shop.client.delete(shop.name("live"))
    shop.client.set(shop.name("live"), "x")
    [finding] = shop.audit()
    assert (finding.kind, finding.what, finding.damaged) == (DRIFT, RESTORE, True)


@pytest.mark.parametrize("index", ["log", "ids", "live", "done", "ready", "delayed", "gone"])
def test_a_fixed_key_of_a_wrong_type_is_said(shop, index):
    shop.client.delete(getattr(shop.keys, index))
    shop.client.set(getattr(shop.keys, index), "x")
    with pytest.raises(Damaged):
        shop.audit()


def test_a_pruned_job_is_gone(shop):
    record = shop.view.get(key("ended"))
    shop.say(Prune(key=key("ended"), rev=record.rev, last_seen=record.last_seen, term=1))
    assert shop.found() == []
    shop.client.zadd(shop.keys.done, {key("ended").job: 5})
    assert [found[:3] for found in shop.found()] == [("ended", GHOST, UNLIST)]


@pytest.mark.parametrize("member", [b"odd", b"ready/odd", b"a/b/%FF", b"\xff/a/b"])
def test_what_an_index_lists_that_names_no_job_hides_no_other(shop, member):
    """Until an auditor takes it out: listings, the dispatcher's row and broad removals go on without it."""
    for index in (shop.keys.ids, shop.keys.ready):
        shop.client.zadd(index, {member: 0})
    listed = [key for page in scan(shop.store, ORIGIN) for key in page]
    assert len(listed) == 9
    assert ready(shop.store, ORIGIN, 10) == [key("ready")]
    assert shop.view.shared(ORIGIN, "ready") == [key("ready")]
