"""An origin that fell silent: what is folded into its horizon, when, and that nothing old comes back by it."""

from __future__ import annotations

import pytest

from broker.errors import Damaged, Refused, Unavailable
from broker.rules.event import (
    Finish,
    Intent,
    Place,
    Prune,
    Remove,
    RemovePair,
    Report,
    Start,
    Submit,
)
from broker.store.log import Log
from broker.store.rest import rest, silent
from broker.store.store import Store
from tests.store.readers import ORIGIN, Desk, key, patient, report, revs

HOUR_MS = 3_600_000
#: What each job that fell silent was told as, and up to which generation it is gone.
REMOVED, PAIR, PRUNED = 2_000, 4_000, 5_000
BOOKS = ("log", "meta", "ids", "gone", "seen", "seen_old")


@pytest.fixture
def desk(desk_on_each):
    return desk_on_each


def fall_silent(desk):
    """A job was removed, one pruned, and one name removed broadly; the log was cut by age."""
    desk.report("removed", created_at=1_000)
    desk.remove("removed", removed_at=REMOVED)
    desk.remove_pair("pair", removed_at=PAIR)
    desk.report("pruned", "completed", created_at=PRUNED)
    prune(desk, "pruned")
    cut(desk)


def prune(desk, id):
    record = desk.view.get(key(id))
    event = Prune(key=key(id), rev=record.rev, last_seen=record.last_seen, term=1)
    assert desk.view.apply([event])[0].rule == "pruned"


def cut(desk):
    assert Log(desk.store, ORIGIN).trim(0, HOUR_MS, term=1)


def let_rest(desk, term=1, before=None):
    before = desk.store.clock.now() + 1_000 if before is None else before
    return rest(desk.store, ORIGIN, term, before)


def kept(desk):
    """All that the origin keeps, as it stands."""
    client = desk.store.client
    read = {
        b"hash": client.hgetall,
        b"zset": lambda name: client.zrange(name, 0, -1, withscores=True),
        b"stream": client.xrange,
        b"string": client.get,
    }
    names = sorted(client.scan_iter(f"{desk.keys.prefix}:*"))
    return {name.decode().split("}:")[1]: read[client.type(name)](name) for name in names}


def answer(desk, event):
    [found] = desk.view.apply([event])
    return f"{found.outcome} {found.rule}"


# --- what is folded, and when -----------------------------------------------------------------------------------------


def test_of_all_that_is_gone_one_number_stays_beside_meta_and_the_empty_log(desk):
    fall_silent(desk)
    before = kept(desk)
    assert set(before) == {"log", "meta", "gone", "seen"}
    assert silent(desk.store, [ORIGIN]) == [ORIGIN]

    assert let_rest(desk)
    after = kept(desk)
    assert set(after) == {"log", "meta"}
    assert after["meta"] == before["meta"] | {b"horizon": b"5000"}


def test_both_halves_of_the_answers_go(desk):
    fall_silent(desk)
    desk.store.client.hset(desk.keys.seen_old, "a mark", "an answer")
    assert let_rest(desk)
    assert set(kept(desk)) == {"log", "meta"}


def test_an_origin_that_rests_is_left_alone(desk):
    fall_silent(desk)
    let_rest(desk)
    before = kept(desk)
    assert silent(desk.store, [ORIGIN]) == []
    assert not let_rest(desk, term=9)
    assert kept(desk) == before


@pytest.mark.parametrize("horizon", [b"4999", b"5001"])
def test_the_horizon_never_falls(desk, horizon):
    fall_silent(desk)
    desk.store.client.hset(desk.keys.meta, "horizon", horizon)
    assert let_rest(desk)
    assert desk.store.client.hget(desk.keys.meta, "horizon") == max(horizon, b"5000")


def with_a_record(desk):
    desk.report("8", created_at=9_000)
    cut(desk)


def with_an_entry(desk):
    desk.remove("8", removed_at=3_000)


@pytest.mark.parametrize("awaken", [with_a_record, with_an_entry])
def test_an_origin_with_a_record_or_an_entry_is_not_silent(desk, awaken):
    fall_silent(desk)
    awaken(desk)
    before = kept(desk)
    assert silent(desk.store, [ORIGIN]) == []
    assert not let_rest(desk)
    assert kept(desk) == before


def test_nor_is_one_whose_last_event_is_too_young_to_forget_its_answer(desk):
    fall_silent(desk)
    before = kept(desk)
    last_ms = int(Log(desk.store, ORIGIN).position().rev.split("-")[0])
    assert not let_rest(desk, before=last_ms - 1)
    assert kept(desk) == before
    assert let_rest(desk, before=last_ms)


def test_a_tombstone_ahead_of_the_clock_is_not_folded_since_new_jobs_would_be_kept_out(desk):
    fall_silent(desk)
    ahead = desk.store.clock.now() + HOUR_MS
    desk.remove("ahead", removed_at=ahead)
    cut(desk)
    before = kept(desk)
    assert not let_rest(desk, before=ahead - 1)
    assert kept(desk) == before
    assert let_rest(desk, before=ahead)


def test_a_lower_term_is_refused_and_a_higher_one_kept(desk):
    fall_silent(desk)
    desk.store.client.hset(desk.keys.meta, "term:janitor", 7)
    before = kept(desk)
    with pytest.raises(Refused) as refused:
        let_rest(desk, term=6)
    assert refused.value.rule == "stale_term"
    assert kept(desk) == before
    assert let_rest(desk, term=8)
    assert desk.store.client.hget(desk.keys.meta, "term:janitor") == b"8"


def test_an_origin_that_nobody_wrote_to_is_none_that_fell_silent(desk):
    assert silent(desk.store, [ORIGIN]) == silent(desk.store, []) == []
    assert not let_rest(desk)
    assert kept(desk) == {}


def test_readers_notice_nothing(desk):
    fall_silent(desk)
    log = Log(desk.store, ORIGIN)
    desk.store.client.xgroup_create(desk.keys.log, "mail", "0")
    position = log.position()
    assert let_rest(desk)
    assert log.position() == position
    assert [group["name"] for group in desk.store.client.xinfo_groups(desk.keys.log)] == [b"mail"]
    new = desk.report("new", created_at=PRUNED + 1)
    assert revs(log.read_on(position.place).entries) == [new]


# --- what does not come back ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "late",
    [
        report("removed", created_at=1_000, seq=99),
        report("removed", created_at=REMOVED, seq=1),
        report("pruned", "failed", created_at=PRUNED, seq=99),
        report("pair", created_at=PAIR, engine="never seen"),
        report("pair", created_at=1, event_id="x"),
    ],
)
def test_what_was_removed_or_pruned_or_covered_broadly_stays_refused(desk, late):
    fall_silent(desk)
    assert answer(desk, late) == "refused tombstoned"
    assert let_rest(desk)
    assert answer(desk, late) == "refused tombstoned"
    assert desk.records() == {}


@pytest.mark.parametrize("id", ["removed", "pruned", "pair", "new"])
def test_what_is_newer_is_taken_and_its_forebears_are_still_refused(desk, id):
    fall_silent(desk)
    assert let_rest(desk)
    assert answer(desk, report(id, created_at=PRUNED + 1)) == "applied first_sighting"
    assert (
        answer(desk, report(id, "failed", created_at=1_000, seq=99)) == "refused older_generation"
    )


def story_of(job):
    """A submitted job from its beginning to its end, as it was told: each event under a name of its own."""
    yield Submit(key=job, created_at=1_000, digest="d", event_id="submitted")
    yield lambda record: Place(key=job, node="n", rev=record.rev, term=1, event_id="placed")
    attempt = {"key": job, "created_at": 1_000, "attempt": 1, "holder": "h"}
    yield Start(**attempt, node="n", worker="w", event_id="started")
    yield Finish(**attempt, state="completed", event_id="finished")


def test_no_event_applies_again_though_the_answer_to_it_is_forgotten(desk):
    """A job of each kind was told in full and is gone; a week later all of it is sent again, twice."""
    told = []
    reported, submitted = key("reported"), key("submitted")
    for step in [
        Report(key=reported, created_at=900, state="queued", event_id="one"),
        Report(key=reported, created_at=900, state="running", node="n"),
        Report(key=reported, created_at=900, state="failed", seq=7),
        *story_of(submitted),
        Remove(key=reported, removed_at=950, event_id="removed"),
        RemovePair(origin=ORIGIN, id="submitted", removed_at=1_500, event_id="removed"),
    ]:
        event = step(desk.view.get(submitted)) if callable(step) else step
        assert answer(desk, event).startswith("applied ")
        told.append(event)
    cut(desk)
    assert let_rest(desk)

    assert {answer(desk, event) for event in told[:-2]} == {"refused tombstoned", "refused unknown"}
    assert desk.records() == {}
    desk.report("reported", "running", created_at=2_000)
    again = Submit(key=submitted, created_at=2_000, digest="d")
    assert answer(desk, again) == "applied submitted"
    records = desk.records()
    for (
        event
    ) in told:  # a removal of that time is carried out anew: there is nothing left to remove
        answer(desk, event)
    assert desk.records() == records


@pytest.mark.parametrize("wish", [Intent(key=key("removed")), Remove(key=key("removed"))])
def test_a_wish_of_no_time_revives_nothing(desk, wish):
    fall_silent(desk)
    assert let_rest(desk)
    answer(desk, wish)
    assert desk.records() == {}
    assert answer(desk, report("removed", created_at=REMOVED)) == "refused tombstoned"


# --- damage, and a full Redis -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("book", BOOKS)
def test_a_key_of_a_wrong_type_is_told_and_nothing_is_changed(desk, book):
    fall_silent(desk)
    desk.store.client.delete(getattr(desk.keys, book))
    desk.store.client.set(getattr(desk.keys, book), "of another type")
    before = kept(desk)
    with pytest.raises(Damaged):
        let_rest(desk)
    assert kept(desk) == before


def test_a_horizon_that_is_no_number_is_told_and_nothing_is_changed(desk):
    fall_silent(desk)
    desk.store.client.hset(desk.keys.meta, "horizon", "x")
    before = kept(desk)
    with pytest.raises(Damaged, match="not a number"):
        let_rest(desk)
    assert kept(desk) == before


def test_one_damaged_origin_hides_no_other_that_fell_silent(desk):
    fall_silent(desk)
    for name in ("damaged", "empty"):
        Desk(desk.store, name).remove("7", removed_at=1)
    desk.store.client.delete(desk.store.keys.of("damaged").log)
    desk.store.client.set(desk.store.keys.of("damaged").log, "of another type")
    assert silent(desk.store, ["damaged", ORIGIN, "empty"]) == [ORIGIN]


def test_a_full_redis_lets_an_origin_rest(redis_url, namespace):
    store = Store.from_url(patient(redis_url), namespace)
    desk = Desk(store)
    fall_silent(desk)
    store.client.config_set("maxmemory", 1)
    try:
        with pytest.raises(Unavailable):
            desk.report("new", created_at=PRUNED + 1)
        assert let_rest(desk, term=9)
        assert set(kept(desk)) == {"log", "meta"}
        meta = store.client.hmget(desk.keys.meta, "horizon", "term:janitor")
        assert meta == [b"5000", b"9"]
    finally:
        store.client.config_set("maxmemory", 0)
        store.close()
