"""After a damaged list was mended, every reader lists it anew, and no group loses its place."""

from __future__ import annotations

import pytest

from broker.errors import Damaged, Gone, Refused, Unavailable
from broker.store.audit import Audit
from broker.store.group import Group
from broker.store.log import Log
from broker.store.repair import Mender
from broker.store.watch import Watcher
from tests.store.readers import ORIGIN, Desk, key
from tests.store.shop import run

TERM = 7


@pytest.fixture
def mender(store):
    return Mender(store)


def settle(mender, term=TERM):
    mender.settle(ORIGIN, term)


def hide(desk, id):
    """The listing loses a job for a moment: what a reader lists then is not true."""
    desk.store.client.zrem(desk.keys.ids, key(id).member)


def show(desk, id):
    desk.store.client.zadd(desk.keys.ids, {key(id).member: 0})


def lose_log(desk):
    desk.store.client.delete(desk.keys.log)


def lose_meta(desk):
    desk.store.client.delete(desk.keys.meta)


def lose_both(desk):
    desk.store.client.delete(desk.keys.log, desk.keys.meta)


def lose_nothing(desk):
    pass


@pytest.mark.parametrize(
    "lose", [lose_nothing, lose_log, lose_meta, lose_both], ids=lambda lose: lose.__name__
)
@pytest.mark.parametrize("later", [False, True])
def test_a_watcher_that_listed_what_was_damaged_is_told_of_what_it_missed(
    desk, mender, lose, later
):
    desk.report("7")
    desk.report("8")
    lose(desk)
    hide(desk, "7")
    with Watcher(desk.store) as watcher:
        assert list(watcher.snapshot().records) == [key("8")]
        if later:
            desk.report("9")
            assert [change.key for change in watcher.changes(0)] == [key("9")]
        show(desk, "7")
        assert watcher.changes(0) == []
        settle(mender)
        told = watcher.changes(0)
        assert [(change.key, change.synthesized) for change in told] == [(key("7"), True)]
        desk.report("7", "completed")
        assert [change.rule for change in watcher.changes(0)] == ["higher_rank"]


def reader(desk):
    """A group that has read and acked the first of three entries."""
    group = Group(desk.store, "mail", "me", lease_ms=60_000, parked_max=9)
    group.look([ORIGIN])
    first = desk.report("1")
    term = group.claim(ORIGIN).term
    group.fetch(ORIGIN, term)
    group.ack(ORIGIN, term, first)
    rest = [desk.report(id) for id in ("2", "3")]
    return group, term, rest


def fetched(group, term):
    return [rev.decode() for rev, _ in group.fetch(ORIGIN, term).entries]


def test_a_group_reads_on_where_it_stood(desk, mender):
    group, term, rest = reader(desk)
    settle(mender)
    assert fetched(group, term) == rest
    assert Log(desk.store, ORIGIN).position().epoch != ""


def test_so_does_one_that_was_told_of_the_lost_log_before(desk, mender):
    group, term, _ = reader(desk)
    lose_log(desk)
    with pytest.raises(Gone):
        group.fetch(ORIGIN, term)
    group.skip(ORIGIN, term)
    settle(mender)
    assert fetched(group, term) == []
    later = desk.report("4")
    assert fetched(group, term) == [later]
    assert desk.store.client.hget(desk.keys.sub("mail"), "gaps") == b"1"


def test_one_that_stands_in_another_log_is_still_told_of_its_loss(desk, mender):
    group, term, _ = reader(desk)
    desk.store.client.hset(desk.keys.sub("mail"), "epoch", "of another log")
    settle(mender)
    with pytest.raises(Gone):
        group.fetch(ORIGIN, term)


def test_a_key_that_is_no_subscription_is_in_nobodys_way(desk, mender):
    desk.report("7")
    desk.store.client.hset(desk.store.keys.groups, mapping={"mail": 1, "post": 1})
    desk.store.client.set(desk.keys.sub("mail"), "of another type")
    before = Log(desk.store, ORIGIN).position()
    settle(mender)
    assert Log(desk.store, ORIGIN).position().epoch != before.epoch
    assert not desk.store.client.exists(desk.keys.sub("post"))


def test_the_log_stays_as_it_is(desk, mender):
    desk.report_many(range(5))
    Log(desk.store, ORIGIN).trim(3, 10**9)
    before = Log(desk.store, ORIGIN).position()
    entries = Log(desk.store, ORIGIN).read()
    settle(mender)
    after = Log(desk.store, ORIGIN).position()
    assert after._replace(epoch="") == before._replace(epoch="")
    assert Log(desk.store, ORIGIN).read() == entries
    assert desk.report("9") > before.rev


def test_the_next_entry_of_a_lost_log_stands_above_the_place_that_moved_on(desk, mender):
    desk.report("7")
    lose_log(desk)
    settle(mender)
    moved = Log(desk.store, ORIGIN).position().rev
    assert int(desk.report("8").split("-")[0]) > int(moved.split("-")[0])


def test_an_auditor_of_an_older_term_renews_nothing(desk, mender):
    desk.report("7")
    desk.store.client.hset(desk.keys.meta, "term:auditor", TERM + 1)
    before = Log(desk.store, ORIGIN).position()
    with pytest.raises(Refused):
        settle(mender)
    assert Log(desk.store, ORIGIN).position() == before
    settle(mender, TERM + 1)
    assert Log(desk.store, ORIGIN).position() != before


def test_it_is_settled_only_once_it_was(desk, mender):
    desk.report("7")
    mender.unsettled.add(ORIGIN)
    desk.store.client.config_set("maxmemory", 1)
    try:
        with pytest.raises(Unavailable):
            settle(mender)
    finally:
        desk.store.client.config_set("maxmemory", 0)
    assert mender.unsettled == {ORIGIN}
    settle(mender)
    assert mender.unsettled == set()


def test_a_damaged_log_is_said(desk, mender):
    desk.store.client.set(desk.keys.log, "of another type")
    with pytest.raises(Damaged):
        settle(mender)


def test_another_origin_notices_nothing(desk, mender):
    other = Desk(desk.store, "other")
    desk.report("7")
    other.report("7")
    before = Log(desk.store, "other").position()
    settle(mender)
    assert Log(desk.store, "other").position() == before


@pytest.mark.parametrize("wrong", [False, True])
def test_a_watcher_that_holds_what_got_lost_without_an_entry_lets_go_of_it(desk, mender, wrong):
    desk.report("7")
    desk.report("8")
    name = desk.keys.of_job(key("7").job).job
    with Watcher(desk.store) as watcher:
        watcher.snapshot()
        Log(desk.store, ORIGIN).trim(0, 10**9)
        desk.store.client.delete(name)
        if wrong:
            desk.store.client.set(name, "of another type")
        [finding] = run(Audit(desk.store, ORIGIN)).findings
        assert mender.mend(finding, TERM)
        assert mender.unsettled == {ORIGIN}
        settle(mender)
        assert [(change.key, change.record) for change in watcher.changes(0)] == [(key("7"), None)]


@pytest.mark.parametrize("index", ["live", "done", "ready"])
def test_nobody_lists_anew_what_readers_do_not_list_by(desk, mender, index):
    desk.report("7")
    member = {key("7").job: 5}
    desk.store.client.zadd(getattr(desk.keys, index), member)
    for finding in run(Audit(desk.store, ORIGIN)).findings:
        assert mender.mend(finding, TERM)
    assert mender.unsettled == set()


def test_it_works_on_fakeredis_as_well(desk_on_each):
    desk = desk_on_each
    desk.report("7")
    name = desk.keys.of_job(key("7").job).job
    desk.store.client.delete(name)
    desk.store.client.set(name, "of another type")
    [finding] = run(Audit(desk.store, ORIGIN)).findings
    mender = Mender(desk.store)
    assert mender.mend(finding, TERM)
    assert desk.view.get(key("7")).state == "running"
    mender.settle(ORIGIN, TERM)
