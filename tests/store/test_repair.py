"""What an audit found is mended in one step; where the job moved meanwhile, or another auditor leads, nothing is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.errors import Damaged, Refused, Unavailable
from broker.rules.audit import (
    DISCARD,
    GHOST,
    MISSING,
    NOTHING,
    RELIST,
    REMOVE,
    RESTORE,
    UNLIST,
    Finding,
)  # fmt: skip
from broker.rules.bounds import Bounds
from broker.rules.event import Intent, Remove, RemovePair
from broker.store.keys import aside
from broker.store.repair import Mender
from broker.store.typed import ASIDE_MS_MAX
from tests.store.readers import ORIGIN, key
from tests.store.shop import HOUR_MS

TERM = 7
INDEXES = ("ids", "live", "done", "ready", "delayed")


@pytest.fixture
def mender(shop):
    return Mender(shop.store)


def kept(shop):
    """All that the origin keeps, but for what is told of a refusal: to `why`, and by number.

    An empty field is as good as none.
    """
    client = shop.client

    def fields(name):
        found = client.hgetall(name).items()
        return {field: said for field, said in found if said and not field.startswith(b"n:")}

    read = {
        b"hash": fields,
        b"zset": lambda name: client.zrange(name, 0, -1, withscores=True),
        b"stream": client.xrange,
        b"string": client.get,
    }
    names = client.scan_iter(f"{shop.keys.prefix}:*")
    return {name: read[client.type(name)](name) for name in names if b":refused:" not in name}


@pytest.fixture
def the_same(shop):
    """Whether all that the origin keeps is as it was at first, but for what the auditor's term leaves."""
    before = kept(shop)

    def check():
        shop.client.hdel(shop.keys.meta, "term:auditor")
        return kept(shop) == before

    return check


def lose_record(shop, id="running"):
    shop.client.delete(shop.name(id))


def edit_record(shop, id="live"):
    shop.client.hset(shop.name(id), mapping={"node": "n9", "state": "queued", "holder": "x"})


def lose_field(shop, id="running"):
    shop.client.hdel(shop.name(id), "holder", "attempt")


def take_off(shop, id, index):
    assert shop.client.zrem(
        getattr(shop.keys, index), key(id).member if index == "ids" else key(id).job
    )


def put_on(shop, id, index, score=5):
    shop.client.zadd(
        getattr(shop.keys, index), {key(id).member if index == "ids" else key(id).job: score}
    )


def came_back(shop, id="live"):
    """A record that was removed, and is there again."""
    old = shop.client.hgetall(shop.name(id))
    shop.say(Remove(key=key(id)))
    shop.client.hset(shop.name(id), mapping=old)
    put_on(shop, id, "ids", 0)
    put_on(shop, id, "live", int(old[b"created_at"]))


# --- what is mended ---------------------------------------------------------------------------------------------------

ALIVE = ["ready", "delayed", "placed", "running", "guess", "live"]
ENDED = ["done", "ended", "untimed"]


@pytest.mark.parametrize(
    "damage",
    [
        *[(edit_record, id) for id in ALIVE + ENDED],
        (lose_field, "running"),
        *[(take_off, id, "ids") for id in ALIVE + ENDED],
        *[(take_off, id, "live") for id in ALIVE],
        *[(take_off, id, "done") for id in ("done", "ended")],
        (take_off, "ready", "ready"),
        (take_off, "delayed", "delayed"),
        *[(put_on, id, "live") for id in ALIVE + ENDED],
        *[(put_on, id, "done") for id in [*ALIVE, "done", "ended"]],
        *[(put_on, id, index) for id in ALIVE + ENDED for index in ("ready", "delayed")],
        *[(put_on, id, index) for id in ("gone", "never heard of") for index in INDEXES],
    ],
    ids=lambda damage: " ".join(getattr(part, "__name__", part) for part in damage),
)
def test_what_was_damaged_is_as_it_was_before(shop, mender, the_same, damage):
    damage[0](shop, *damage[1:])
    assert not the_same()
    [finding] = shop.audit()
    assert mender.mend(finding, TERM)
    assert the_same()
    assert shop.found() == []


@pytest.mark.parametrize("id", ALIVE + ENDED)
def test_a_lost_record_is_written_as_the_log_tells_it(shop, mender, id):
    """When it was last heard of is lost: it counts from now, so that nobody is judged for a silence he did not keep."""
    before = shop.view.get(key(id))
    lose_record(shop, id)
    for index in INDEXES:
        shop.client.zrem(getattr(shop.keys, index), key(id).job, key(id).member)
    shop.clock.ahead_ms += 500
    [finding] = shop.audit()
    assert mender.mend(finding, TERM)
    assert shop.view.get(key(id)) == replace(before, last_seen=shop.clock.now())
    assert shop.found() == []


def test_an_ended_job_whose_end_nobody_told_keeps_the_time_it_was_listed_by(shop, mender):
    shop.client.zadd(shop.keys.done, {key("untimed").job: 77})
    take_off(shop, "untimed", "ids")
    [finding] = shop.audit()
    assert mender.mend(finding, TERM)
    assert shop.client.zscore(shop.keys.done, key("untimed").job) == 77


def test_a_job_that_fell_due_while_nobody_listed_it_is_ready(shop, mender):
    take_off(shop, "delayed", "delayed")
    shop.clock.ahead_ms += HOUR_MS + 1
    [finding] = [found for found in shop.audit() if found.job == key("delayed").job]
    assert mender.mend(finding, TERM)
    assert shop.client.zscore(shop.keys.ready, key("delayed").job) == shop.begun_at + HOUR_MS
    assert shop.client.zscore(shop.keys.delayed, key("delayed").job) is None


def test_what_the_log_does_not_tell_is_kept_where_it_can_be_read(shop, mender):
    kept = {"last_seen": "5", "sightings": "9", "submit_rev": "4-4"}
    edit_record(shop, "running")
    shop.client.hset(shop.name("running"), mapping=kept | {"foreign": "x"})
    [finding] = shop.audit()
    assert mender.mend(
        replace(
            finding, word=replace(finding.word, record=replace(finding.word.record, submit_rev=""))
        ),
        TERM,
    )
    left = shop.client.hgetall(shop.name("running"))
    assert kept | {"foreign": "x"} == {
        name: left[name.encode()].decode() for name in (*kept, "foreign")
    }


@pytest.mark.parametrize("field", ["last_seen", "sightings"])
def test_what_it_does_not_tell_and_nobody_can_read_begins_anew(shop, mender, field):
    shop.client.hset(shop.name("live"), field, "long ago")
    [finding] = shop.audit()
    assert mender.mend(finding, TERM)
    record = shop.view.get(key("live"))
    assert (record.last_seen, record.sightings) == (shop.clock.now(), 0)
    assert shop.found() == []


@pytest.mark.parametrize("wrong", ["attempt", "state", "rev", "type"])
def test_a_record_that_cannot_be_read_is_put_aside_and_written_anew(shop, mender, wrong):
    before = shop.view.get(key("running"))
    name = shop.name("running")
    if wrong == "type":
        shop.client.delete(name)
        shop.client.set(name, "of another type")
    else:
        shop.client.hset(name, wrong, "x y")
    held = shop.client.dump(name)
    [finding] = shop.audit()
    assert mender.mend(finding, TERM)
    assert replace(shop.view.get(key("running")), last_seen=before.last_seen) == before
    assert shop.client.dump(aside(name)) == held
    assert 0 < shop.client.pttl(aside(name)) <= ASIDE_MS_MAX
    assert shop.found() == []


def test_where_the_log_does_not_tell_of_it_it_is_listed_no_more(shop, mender):
    """Nobody knows its state. Its origin's next word makes it known again."""
    shop.cut()
    shop.client.hset(shop.name("live"), "state", "odd")
    [finding] = shop.audit()
    assert mender.mend(finding, TERM)
    assert shop.client.exists(aside(shop.name("live")))
    assert shop.view.get(key("live")) is None
    assert shop.found() == []
    shop.report("live")
    assert shop.view.get(key("live")).state == "running"


def test_a_record_that_came_back_goes_by_the_merge_and_is_told_in_the_log(shop, mender):
    came_back(shop)
    [finding] = shop.audit()
    assert mender.mend(finding, TERM)
    assert shop.view.get(key("live")) is None
    _, entry = shop.client.xrevrange(shop.keys.log, count=1)[0]
    assert (entry[b"event"], entry[b"job"], entry[b"by"]) == (
        b"remove",
        b"ollama//live",
        b"auditor",
    )
    assert shop.found() == []


def test_a_running_one_does_as_well(shop, mender):
    old = shop.client.hgetall(shop.name("running"))
    shop.say(Remove(key=key("running"), force=True))
    shop.client.hset(shop.name("running"), mapping=old)
    put_on(shop, "running", "ids", 0)
    [finding] = shop.audit()
    assert mender.mend(finding, TERM)
    assert shop.view.get(key("running")) is None
    assert shop.found() == []


def test_what_is_removed_leaves_no_more_tombstones_than_are_allowed(shop):
    for n in range(5):
        shop.say(Remove(key=key(f"old {n}"), removed_at=n + 1))
    came_back(shop)
    [finding] = shop.audit()
    assert Mender(shop.store, Bounds(tombstones_max=2)).mend(finding, TERM)
    assert shop.client.zcard(shop.keys.gone) == 2


def test_a_lost_origin_is_listed_again(shop, mender):
    shop.client.delete(shop.store.keys.origins)
    finding = Finding(kind=MISSING, origin=ORIGIN, job="", text="", what="enlist")
    assert mender.mend(finding, TERM)
    assert shop.view.origins() == [ORIGIN]
    assert not mender.mend(finding, TERM)


@pytest.mark.parametrize("what", [NOTHING, DISCARD])
def test_what_no_repair_of_the_store_mends_is_left(shop, mender, the_same, what):
    finding = Finding(kind=GHOST, origin=ORIGIN, job=key("live").job, text="", what=what)
    assert not mender.mend(finding, TERM)
    assert the_same()


# --- what lost the race -----------------------------------------------------------------------------------------------


def end_it(shop):
    shop.report("live", "completed")


def renew_it(shop):
    shop.report("live", created_at=shop.begun_at + 1)


def remove_it(shop):
    shop.say(Remove(key=key("live")))


def remove_its_pair(shop):
    shop.say(RemovePair(origin=ORIGIN, id="live"))


def wish_its_end(shop):
    shop.say(Intent(key=key("live")))


MOVES = [end_it, renew_it, remove_it, remove_its_pair, wish_its_end]


def findings_of(shop, damage):
    damage(shop)
    return [found for found in shop.audit() if found.job == key("live").job]


@pytest.mark.parametrize("move", MOVES, ids=lambda move: move.__name__)
@pytest.mark.parametrize(
    "what, damage",
    [
        (RELIST, lambda shop: take_off(shop, "live", "live")),
        (RELIST, lambda shop: put_on(shop, "live", "ready")),
        (RESTORE, lambda shop: edit_record(shop, "live")),
        (RESTORE, lambda shop: shop.client.hset(shop.name("live"), "last_seen", "?")),
        (REMOVE, came_back),
    ],
    ids=["unlisted", "listed", "edited", "unreadable", "ghost"],
)
def test_a_job_that_moved_since_it_was_found_is_left_alone(shop, mender, what, damage, move):
    [finding] = findings_of(shop, damage)
    assert finding.what == what
    try:
        move(shop)
    except AssertionError:
        # Nothing but a newer job moves a record that came back behind its tombstone, or one that nobody can read.
        assert what == REMOVE or finding.damaged
        shop.report("live", created_at=shop.clock.now() + 60_000)
    before = kept(shop)
    assert not mender.mend(finding, TERM)
    assert kept(shop) == before


@pytest.mark.parametrize("move", [end_it, renew_it, remove_it], ids=lambda move: move.__name__)
def test_nor_is_a_lost_record_written_whose_job_was_told_of_anew(shop, mender, move):
    [finding] = findings_of(shop, lambda shop: lose_record(shop, "live"))
    assert finding.what == RESTORE
    move(shop)
    before = kept(shop)
    assert not mender.mend(finding, TERM)
    assert kept(shop) == before


def test_nor_is_one_whose_whole_pair_was_removed_since(shop, mender):
    """The removal did not see it, for `ids` did not list it: so it has no entry of its own."""
    [finding] = findings_of(shop, lambda shop: take_off(shop, "live", "ids"))
    assert finding.what == RELIST
    remove_its_pair(shop)
    before = kept(shop)
    assert not mender.mend(finding, TERM)
    assert kept(shop) == before
    [finding] = shop.audit()
    assert finding.what == REMOVE
    assert mender.mend(finding, TERM)
    assert shop.found() == []


def test_nor_is_one_that_could_not_be_read_and_was_deleted_since(shop, mender):
    [finding] = findings_of(shop, lambda shop: shop.client.hset(shop.name("live"), "seq", "?"))
    assert finding.damaged
    lose_record(shop, "live")
    before = kept(shop)
    assert not mender.mend(finding, TERM)
    assert kept(shop) == before


def test_nor_is_a_job_unlisted_that_was_told_of_since(shop, mender):
    put_on(shop, "new", "live")
    [finding] = shop.audit()
    assert finding.what == UNLIST
    shop.report("new")
    before = kept(shop)
    assert not mender.mend(finding, TERM)
    assert kept(shop) == before


@pytest.mark.parametrize("what", [RELIST, RESTORE, REMOVE, UNLIST])
def test_what_was_mended_meanwhile_is_not_mended_again(shop, mender, what):
    damage = {
        RELIST: lambda: take_off(shop, "live", "live"),
        RESTORE: lambda: lose_record(shop, "live"),
        REMOVE: lambda: came_back(shop),
        UNLIST: lambda: put_on(shop, "gone", "ids"),
    }
    damage[what]()
    [finding] = shop.audit()
    assert finding.what == what
    assert mender.mend(finding, TERM)
    shop.client.hset(shop.name("live"), mapping={"rev": "9-9", "kind": "reported"})
    shop.client.hset(shop.name("gone"), mapping={"rev": "9-9", "kind": "reported"})
    before = kept(shop)
    assert not mender.mend(finding, TERM)
    assert kept(shop) == before


def test_a_record_is_not_written_from_an_entry_that_was_cut_meanwhile(shop, mender):
    lose_record(shop)
    [finding] = shop.audit()
    shop.cut()
    before = kept(shop)
    assert not mender.mend(finding, TERM)
    assert kept(shop) == before


def test_nor_after_a_flush(shop, mender):
    """The list of before is gone, and so is its log: nothing of it may come back."""
    lose_record(shop)
    [finding] = shop.audit()
    for name in list(shop.dump()):
        shop.client.delete(name)
    shop.report("new")
    before = kept(shop)
    assert not mender.mend(finding, TERM)
    assert kept(shop) == before


def test_a_beat_is_no_move(shop, mender):
    edit_record(shop, "live")
    [finding] = shop.audit()
    shop.client.hset(shop.name("live"), "last_seen", shop.clock.now() + 9)
    assert mender.mend(finding, TERM)
    assert shop.view.get(key("live")).last_seen == shop.clock.now() + 9


def test_another_job_of_the_log_is_no_move(shop, mender):
    edit_record(shop, "live")
    [finding] = shop.audit()
    shop.say(RemovePair(origin=ORIGIN, id="other"))
    shop.report("liv")
    shop.report("xlive")
    assert mender.mend(finding, TERM)


# --- the fence, damage and a full Redis -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damage",
    [
        lose_record,
        edit_record,
        lambda shop: put_on(shop, "gone", "ids"),
        lambda shop: take_off(shop, "live", "live"),
    ],
    ids=["lost", "edited", "ghost", "unlisted"],
)
def test_an_auditor_of_an_older_term_mends_nothing(shop, mender, damage):
    damage(shop)
    [finding] = shop.audit()
    shop.client.hset(shop.keys.meta, "term:auditor", TERM + 1)
    before = kept(shop)
    with pytest.raises(Refused) as refused:
        mender.mend(finding, TERM)
    assert refused.value.rule == "stale_term"
    assert kept(shop) == before
    assert mender.mend(finding, TERM + 2)
    assert shop.client.hget(shop.keys.meta, "term:auditor") == str(TERM + 2).encode()


@pytest.mark.parametrize("book", ["log", "meta", "live", "done", "ready", "delayed", "ids"])
def test_where_a_fixed_key_is_damaged_nothing_is_done(shop, mender, book):
    lose_record(shop)
    [finding] = shop.audit()
    shop.client.delete(getattr(shop.keys, book))
    shop.client.set(getattr(shop.keys, book), "of another type")
    before = kept(shop)
    with pytest.raises(Damaged):
        mender.mend(finding, TERM)
    assert kept(shop) == before


@pytest.mark.parametrize(
    "damage", [lose_record, edit_record, lose_field, came_back, lambda shop: put_on(shop, "gone", "ids"),
               lambda shop: shop.client.hset(shop.name("live"), "attempt", "x")],
    ids=["lost", "edited", "less", "ghost", "listed", "unreadable"],
)  # fmt: skip
def test_a_full_redis_leaves_all_as_it_is_and_lets_it_be_mended_later(shop, mender, damage):
    damage(shop)
    [finding] = shop.audit()
    before = kept(shop)
    shop.client.config_set("maxmemory", 1)
    try:
        with pytest.raises(Unavailable):
            mender.mend(finding, TERM)
        assert kept(shop) == before
    finally:
        shop.client.config_set("maxmemory", 0)
    assert mender.mend(finding, TERM)
    assert shop.found() == []
