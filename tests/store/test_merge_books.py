"""What only the script has: ids, epochs, damaged keys, numbers as text, refusals as `why` reads them."""

from __future__ import annotations

import pytest

from broker.errors import Damaged
from broker.rules.event import Intent, Remove, Report, Submit, Unplace
from broker.store.refusal import Refusal
from broker.store.view import View
from tests.store.story import CREATED, Story
from tests.store.twins import NOW, ORIGIN, SetClock, key, pair


def report(id="7", state="running", **more):
    return Report(**({"key": key(id), "created_at": CREATED, "state": state} | more))


def meta(script):
    return {
        name.decode(): value.decode()
        for name, value in script.store.client.hgetall(script.keys.meta).items()
    }


def last_id(script):
    return script.store.client.xrevrange(script.keys.log, count=1)[0][0].decode()


# --- the log's ids --------------------------------------------------------------------------------


def test_a_first_entry_begins_an_epoch(script):
    script.apply([report()])
    found = meta(script)
    assert (found["floor"], found["rev"]) == ("0-0", last_id(script))
    assert found["epoch"]


def test_an_epoch_lasts_as_long_as_its_log(script):
    script.apply([report()])
    epoch = meta(script)["epoch"]
    script.apply([report("8"), report("9")])
    script.store.client.xtrim(script.keys.log, maxlen=0)
    script.apply([report("10")])
    assert meta(script)["epoch"] == epoch


def test_a_lost_log_gets_a_new_epoch_and_the_last_rev_as_floor(script):
    script.apply([report()])
    first = meta(script)
    script.store.client.delete(script.keys.log)
    script.apply([report("8")])
    assert meta(script)["epoch"] != first["epoch"]
    assert meta(script)["floor"] == first["rev"]


def test_no_id_is_ever_below_the_last_rev_known(script):
    """Not after the log was lost, and not when the clock stepped back meanwhile."""
    script.apply([report()])
    ahead = f"{NOW + 10**12}-7"
    script.store.client.hset(script.keys.meta, "rev", ahead)
    script.store.client.delete(script.keys.log)
    script.apply([report("8")])
    assert last_id(script) == f"{NOW + 10**12 + 1}-0"
    script.apply([report("9")])
    assert int(last_id(script).split("-")[0]) >= NOW + 10**12 + 1


def test_lost_meta_is_made_anew_of_the_log(script):
    script.apply([report()])
    rev = last_id(script)
    script.store.client.delete(script.keys.meta)
    script.apply([report("7")])  # no change: nothing is logged
    assert meta(script) == {"rev": rev, "n:duplicate:no_change": "1"}
    script.apply([report("8")])
    assert meta(script)["floor"] == rev
    assert meta(script)["epoch"]


def test_every_entry_has_the_same_fields_in_the_same_order(script):
    script.apply([report(), Submit(key=key("8"), created_at=CREATED, digest="d")])
    script.apply([Remove(key=key("7")), Remove(key=key("8"))])
    raw = script.store.client.xrange(script.keys.log)
    assert len({tuple(told) for _, told in raw}) == 1


def test_an_entry_tells_nothing_of_the_one_before_it(script):
    """In one call, whose entries are made in one place."""
    submit = Submit(key=key("8"), created_at=CREATED, digest="d", attempts=5, priority=7)
    script.apply([submit, report(), Remove(key=key("8"), force=True), Remove(key=key())])
    told = [dict(zip(map(bytes.decode, fields), map(bytes.decode, fields.values()), strict=True))
            for _, fields in script.store.client.xrange(script.keys.log)]  # fmt: skip
    empty = {name for name, value in told[1].items() if value == ""}
    assert {"attempt", "attempts", "priority", "digest"} <= empty
    assert {name for name, value in told[-1].items() if value} == {
        "event", "job", "created_at", "rule",
    }  # fmt: skip


# --- one event's own keys -------------------------------------------------------------------------


def test_a_damaged_record_is_an_error_of_its_event_alone(script):
    script.store.client.set(script.keys.of_job(key("50").job).job, "no hash")
    answers = script.apply([report(str(id)) for id in range(100)])
    assert answers[50].outcome == "error"
    assert answers[50].rule
    assert {answer.outcome for answer in answers[:50] + answers[51:]} == {"applied"}
    assert len(script.store.client.xrange(script.keys.log)) == 99


def test_an_unreadable_number_is_an_error_and_writes_nothing(script):
    script.apply([report(seq=3)])
    script.store.client.hset(script.keys.of_job(key().job).job, "seq", "many")
    before = script.store.client.hgetall(script.keys.of_job(key().job).job)
    [answer] = script.apply([report(state="completed", seq=4)])
    assert answer.outcome == "error"
    assert script.store.client.hgetall(script.keys.of_job(key().job).job) == before
    with pytest.raises(Damaged, match="desk/ollama//7"):
        script.view.get(key())


@pytest.mark.parametrize(
    "field, verb",
    [
        ("due", "cancel"),
        ("seq", "cancel"),
        ("attempt", "remove"),
        ("due", "unplace"),
        ("priority", "unplace"),
        ("created_at", "unplace"),
    ],
)
def test_an_unreadable_number_leaves_no_half_of_a_step(script, field, verb):
    """Those that only an index is made of included."""
    story = Story(script)
    story.submit(due=NOW - 5)
    if verb == "unplace":
        story.place()
    job = script.keys.of_job(key().job).job
    rev = story.record().rev
    script.store.client.hset(job, field, "many")
    before = raw_books(script)
    event = {
        "cancel": Intent(key=key()),
        "remove": Remove(key=key()),
        "unplace": Unplace(key=key(), rev=rev, term=1),
    }[verb]
    assert script.apply([event])[0].outcome == "error"
    assert raw_books(script) == before


@pytest.mark.parametrize("damage", ["no hash", "no number"])
def test_a_damaged_sibling_leaves_no_half_of_a_broad_removal(script, damage):
    script.apply([report(), report(key=key(run="r2"))])
    job = script.keys.of_job(key(run="r2").job).job
    if damage == "no hash":
        script.store.client.delete(job)
        script.store.client.set(job, "no hash")
    else:
        script.store.client.hset(job, "created_at", "many")
    before = raw_books(script)
    assert script.apply([pair()])[0].outcome == "error"
    assert raw_books(script) == before


def raw_books(script):
    """What the books list, as it lies there."""
    client, keys = script.store.client, script.keys
    zsets = (keys.live, keys.done, keys.ready, keys.delayed, keys.ids, keys.gone)
    return [client.zrange(name, 0, -1, withscores=True) for name in zsets] + [
        client.xlen(keys.log),
        client.hgetall(keys.of_job(key().job).job),
        client.hgetall(keys.seen),
    ]


def test_a_damaged_list_of_refusals_is_an_error_before_any_write(script):
    script.apply([report(seq=3)])
    script.store.client.set(script.keys.of_job(key().job).refused, "no list")
    script.clock.time += 5
    [answer] = script.apply([report(state="completed", seq=2)])
    assert answer.outcome == "error"
    assert script.record(key()).last_seen == NOW


@pytest.mark.parametrize(
    "text", ["1.5", "0x10", "1e3", "-5", "nan", " 7 ", "", "9007199254740993", "7\n", "٣"]
)
@pytest.mark.parametrize("field", ["seq", "created_at", "started_at", "completed_at"])
def test_numbers_are_decimal_digits_fifteen_at_most(script, text, field):
    [answer] = script.apply([report(**{field: text})])
    assert answer[:2] == ("refused", "invalid")
    [answer] = script.apply([Remove(key=key(), removed_at=text)])
    assert answer[:2] == ("refused", "invalid")
    assert script.books().log == []


# --- refusals -------------------------------------------------------------------------------------


def test_the_same_refusal_again_counts_up_and_keeps_the_newest(script):
    script.apply([report(seq=5)])
    script.apply([report(state="completed", node="node-a", seq=3, by="a peer", event_id="1")])
    script.clock.time += 9
    script.apply([report(state="completed", node="node-b", seq=4, by="50% {of} it", event_id="2")])
    told = {"rule": "stale_seq", "event": "report", "state": "completed"}
    assert script.view.refusals(key()) == [
        Refusal(**told, node="node-b", seq=4, by="50% {of} it", at=NOW + 9, count=2)
    ]


def test_a_refusal_is_not_older_than_the_entry_that_it_is_due_to(script):
    script.clock.time = CREATED  # as whoever called late after a look at the clock
    script.apply([report(seq=3), report(seq=5)])  # the first entry of a log is dated by the caller
    script.apply([report(seq=4)])
    [refusal] = script.view.refusals(key())
    assert refusal.at == int(script.view.get(key()).rev.partition("-")[0]) > CREATED


def test_the_newest_eight_refusals_stay_newest_first(script):
    script.apply([report(seq=99)])
    job = script.keys.of_job(key().job)
    for state in ("queued", "completed", "failed", "cancelled"):
        script.apply([report(state=state, seq=1)])
        script.apply([report(state=state, created_at=CREATED - 1)])
    script.apply([report(created_at=CREATED - 1)])
    script.apply([report(state="completed", seq=2)])
    found = script.view.refusals(key())
    assert len(found) == script.store.client.llen(job.refused) == 8
    assert (found[0].state, found[0].count, found[0].seq) == ("completed", 2, 2)
    assert (found[1].rule, found[1].state) == ("older_generation", "running")


def test_an_invalid_event_leaves_no_refusal(script):
    script.apply([report(), report(state="lost"), report(seq=-1)])
    assert script.view.refusals(key()) == []


def test_refusals_stay_with_the_record_else_an_hour(script):
    refused = script.keys.of_job(key().job).refused
    script.apply([Remove(key=key(), removed_at=CREATED)])
    script.apply([report()])
    assert 0 < script.store.client.ttl(refused) <= 3600
    script.apply([report(created_at=CREATED + 5), report(created_at=CREATED + 1)])
    assert script.store.client.ttl(refused) == -1
    script.apply([Remove(key=key())])
    assert 0 < script.store.client.ttl(refused) <= 3600


def test_an_origin_is_made_known_again_by_its_first_event_after_a_flush(store):
    store.clock = SetClock()
    view = View(store)
    view.apply([report()])
    store.client.delete(*store.client.keys(f"{store.keys.namespace}:*"))
    view.apply([report("8")])
    assert view.origins() == [ORIGIN]


def test_an_origin_whose_listing_alone_was_lost_is_made_known_again_within_a_second(store):
    store.clock = SetClock()
    view = View(store)
    view.apply([report()])
    store.client.delete(store.keys.origins)
    store.clock.time += 1_000
    view.apply([report("8")])
    assert view.origins() == [ORIGIN]


def test_origins_are_made_known_once(store):
    store.clock = SetClock()
    view = View(store)
    view.apply([report()])
    assert store.client.hgetall(store.keys.origins) == {ORIGIN.encode(): str(NOW).encode()}
    store.clock.time += 5
    View(store).apply([report("8")])
    assert view.origins() == [ORIGIN]
    assert store.client.hget(store.keys.origins, ORIGIN) == str(NOW).encode()
