"""What only the script has: ids, epochs, damaged keys, numbers as text, refusals as `why` reads them."""

from __future__ import annotations

import fakeredis
import pytest

from broker.errors import Damaged
from broker.rules.event import Remove, Report, Submit
from broker.store.refusal import Refusal
from broker.store.store import Store
from broker.store.view import View
from tests.store.story import CREATED
from tests.store.twins import NOW, ORIGIN, RedisTwin, SetClock, key


@pytest.fixture(params=["redis", "fakeredis"])
def twin(request):
    if request.param == "fakeredis":
        return RedisTwin(Store(fakeredis.FakeRedis()))
    return RedisTwin(request.getfixturevalue("store"))


def report(id="7", state="running", **more):
    return Report(**({"key": key(id), "created_at": CREATED, "state": state} | more))


def meta(twin):
    return {
        name.decode(): value.decode()
        for name, value in twin.store.client.hgetall(twin.keys.meta).items()
    }


def last_id(twin):
    return twin.store.client.xrevrange(twin.keys.log, count=1)[0][0].decode()


# --- the log's ids --------------------------------------------------------------------------------


def test_a_first_entry_begins_an_epoch(twin):
    twin.apply([report()])
    found = meta(twin)
    assert (found["floor"], found["rev"]) == ("0-0", last_id(twin))
    assert found["epoch"]


def test_an_epoch_lasts_as_long_as_its_log(twin):
    twin.apply([report()])
    epoch = meta(twin)["epoch"]
    twin.apply([report("8"), report("9")])
    twin.store.client.xtrim(twin.keys.log, maxlen=0)
    twin.apply([report("10")])
    assert meta(twin)["epoch"] == epoch


def test_a_lost_log_gets_a_new_epoch_and_the_last_rev_as_floor(twin):
    twin.apply([report()])
    first = meta(twin)
    twin.store.client.delete(twin.keys.log)
    twin.apply([report("8")])
    assert meta(twin)["epoch"] != first["epoch"]
    assert meta(twin)["floor"] == first["rev"]


def test_no_id_is_ever_below_the_last_rev_known(twin):
    """Not after the log was lost, and not when the clock stepped back meanwhile."""
    twin.apply([report()])
    ahead = f"{NOW + 10**12}-7"
    twin.store.client.hset(twin.keys.meta, "rev", ahead)
    twin.store.client.delete(twin.keys.log)
    twin.apply([report("8")])
    assert last_id(twin) == f"{NOW + 10**12 + 1}-0"
    twin.apply([report("9")])
    assert int(last_id(twin).split("-")[0]) >= NOW + 10**12 + 1


def test_lost_meta_is_made_anew_of_the_log(twin):
    twin.apply([report()])
    rev = last_id(twin)
    twin.store.client.delete(twin.keys.meta)
    twin.apply([report("7")])  # no change: nothing is logged
    assert meta(twin) == {"rev": rev}
    twin.apply([report("8")])
    assert meta(twin)["floor"] == rev
    assert meta(twin)["epoch"]


def test_every_entry_has_the_same_fields_in_the_same_order(twin):
    twin.apply([report(), Submit(key=key("8"), created_at=CREATED, digest="d")])
    twin.apply([Remove(key=key("7")), Remove(key=key("8"))])
    raw = twin.store.client.xrange(twin.keys.log)
    assert len({tuple(told) for _, told in raw}) == 1


# --- one event's own keys -------------------------------------------------------------------------


def test_a_damaged_record_is_an_error_of_its_event_alone(twin):
    twin.store.client.set(twin.keys.of_job(key("50").job).job, "no hash")
    answers = twin.apply([report(str(id)) for id in range(100)])
    assert answers[50].outcome == "error"
    assert answers[50].rule
    assert {answer.outcome for answer in answers[:50] + answers[51:]} == {"applied"}
    assert len(twin.store.client.xrange(twin.keys.log)) == 99


def test_an_unreadable_number_is_an_error_and_writes_nothing(twin):
    twin.apply([report(seq=3)])
    twin.store.client.hset(twin.keys.of_job(key().job).job, "seq", "many")
    before = twin.store.client.hgetall(twin.keys.of_job(key().job).job)
    [answer] = twin.apply([report(state="completed", seq=4)])
    assert answer.outcome == "error"
    assert twin.store.client.hgetall(twin.keys.of_job(key().job).job) == before
    with pytest.raises(Damaged, match="desk/ollama//7"):
        twin.view.get(key())


def test_a_damaged_list_of_refusals_is_an_error_before_any_write(twin):
    twin.apply([report(seq=3)])
    twin.store.client.set(twin.keys.of_job(key().job).refused, "no list")
    twin.clock.time += 5
    [answer] = twin.apply([report(state="completed", seq=2)])
    assert answer.outcome == "error"
    assert twin.record(key()).last_seen == NOW


@pytest.mark.parametrize(
    "text", ["1.5", "0x10", "1e3", "-5", "nan", " 7 ", "", "9007199254740993", "7\n", "٣"]
)
@pytest.mark.parametrize("field", ["seq", "created_at", "started_at", "completed_at"])
def test_numbers_are_decimal_digits_fifteen_at_most(twin, text, field):
    [answer] = twin.apply([report(**{field: text})])
    assert answer[:2] == ("refused", "invalid")
    [answer] = twin.apply([Remove(key=key(), removed_at=text)])
    assert answer[:2] == ("refused", "invalid")
    assert twin.books().log == []


# --- refusals -------------------------------------------------------------------------------------


def test_the_same_refusal_again_counts_up_and_keeps_the_newest(twin):
    twin.apply([report(seq=5)])
    twin.apply([report(state="completed", node="node-a", seq=3, by="a peer", event_id="1")])
    twin.clock.time += 9
    twin.apply([report(state="completed", node="node-b", seq=4, by="50% {of} it", event_id="2")])
    told = {"rule": "stale_seq", "event": "report", "state": "completed"}
    assert twin.view.refusals(key()) == [
        Refusal(**told, node="node-b", seq=4, by="50% {of} it", at=NOW + 9, count=2)
    ]


def test_the_newest_eight_refusals_stay_newest_first(twin):
    twin.apply([report(seq=99)])
    job = twin.keys.of_job(key().job)
    for state in ("queued", "completed", "failed", "cancelled"):
        twin.apply([report(state=state, seq=1)])
        twin.apply([report(state=state, created_at=CREATED - 1)])
    twin.apply([report(created_at=CREATED - 1)])
    twin.apply([report(state="completed", seq=2)])
    found = twin.view.refusals(key())
    assert len(found) == twin.store.client.llen(job.refused) == 8
    assert (found[0].state, found[0].count, found[0].seq) == ("completed", 2, 2)
    assert (found[1].rule, found[1].state) == ("older_generation", "running")


def test_an_invalid_event_leaves_no_refusal(twin):
    twin.apply([report(), report(state="lost"), report(seq=-1)])
    assert twin.view.refusals(key()) == []


def test_refusals_stay_with_the_record_else_an_hour(twin):
    refused = twin.keys.of_job(key().job).refused
    twin.apply([Remove(key=key(), removed_at=CREATED)])
    twin.apply([report()])
    assert 0 < twin.store.client.ttl(refused) <= 3600
    twin.apply([report(created_at=CREATED + 5), report(created_at=CREATED + 1)])
    assert twin.store.client.ttl(refused) == -1
    twin.apply([Remove(key=key())])
    assert 0 < twin.store.client.ttl(refused) <= 3600


def test_origins_are_made_known_once(store):
    store.clock = SetClock()
    view = View(store)
    view.apply([report()])
    assert store.client.hgetall(store.keys.origins) == {ORIGIN.encode(): str(NOW).encode()}
    store.clock.time += 5
    View(store).apply([report("8")])
    assert view.origins() == [ORIGIN]
    assert store.client.hget(store.keys.origins, ORIGIN) == str(NOW).encode()
