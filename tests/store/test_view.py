"""The view: calls of bounded size, broad removals among others' reports, listings that lose nobody."""

from __future__ import annotations

import pytest

from broker.errors import Damaged, Invalid, Unavailable
from broker.rules.event import Remove, Report
from broker.rules.key import Key
from broker.store import view as view_module
from broker.store.view import View
from tests.store.story import CREATED
from tests.store.twins import ORIGIN, key, pair


@pytest.fixture
def view(store):
    return View(store)


@pytest.fixture
def calls(store, monkeypatch):
    """The number of events of each call of merge.lua."""
    sizes = []
    run = store.scripts.run

    def counted(name, keys, args):
        answer = run(name, keys, args)
        sizes.append(len(answer) // 3)
        return answer

    monkeypatch.setattr(store.scripts, "run", counted)
    return sizes


def report(id="7", **more):
    return Report(**({"key": key(id), "created_at": CREATED, "state": "running"} | more))


def test_no_events_is_no_call(view, calls):
    assert view.apply([]) == []
    assert calls == []


def test_a_call_takes_a_hundred(view, calls):
    answers = view.apply([report(str(number)) for number in range(250)])
    assert [answer.rule for answer in answers] == ["first_sighting"] * 250
    assert calls == [100, 100, 50]


def test_a_broad_removal_goes_alone_and_the_order_stays(view, calls):
    answers = view.apply([report(), report("8"), pair(), report(), report("9")])
    assert [answer.rule for answer in answers] == [
        "first_sighting", "first_sighting", "removed", "tombstoned", "first_sighting",
    ]  # fmt: skip
    assert calls == [2, 1, 2]


def test_large_blobs_are_split_too(view, calls):
    view.apply([report(str(number), extras='"' + "x" * 600_000 + '"') for number in range(3)])
    assert calls == [1, 1, 1]


def test_a_call_speaks_of_one_origin(view):
    with pytest.raises(Invalid, match="desk, lab"):
        view.apply([report(), Remove(key=Key("lab", "ollama", "", "7"))])


def test_a_broad_removal_reads_again_when_a_sibling_came_meanwhile(view, calls, monkeypatch):
    view.apply([report()])
    shared = view.shared
    newcomers = iter([key(run="r1"), key(run="r2")])

    def late(origin, id):
        found = shared(origin, id)
        for newcomer in newcomers:
            view.apply([report(key=newcomer)])
            break
        return found

    monkeypatch.setattr(view, "shared", late)
    [answer] = view.apply([pair()])
    assert (answer.outcome, answer.rule) == ("applied", "removed")
    assert shared(ORIGIN, "7") == []
    assert calls == [1, 1, 1, 1, 1, 1]  # three reports; the removal: again, again, done


def test_a_broad_removal_that_never_catches_up_says_so(view, monkeypatch):
    view.apply([report()])
    monkeypatch.setattr(view, "shared", lambda origin, id: [])
    with pytest.raises(Unavailable, match="keep changing"):
        view.apply([pair()])


def test_listings_page_by_member(view, monkeypatch):
    monkeypatch.setattr(view_module, "PAGE", 7)
    expected = [key("7", run=f"{number:02}") for number in range(30)]
    view.apply([report(key=one) for one in reversed(expected)])
    assert view.shared(ORIGIN, "7") == expected
    assert [record.state for record in view.get_many(expected)] == ["running"] * 30
    assert view.get_many([key("no")]) == [None]


def test_shared_finds_the_pair_and_nobody_else(view):
    shared = [key("a b", run="r"), key("a b"), key("a b", engine="lm/studio")]
    view.apply([report(key=one) for one in (*shared, key("a"), key("a b/"), key("a c"))])
    assert sorted(view.shared(ORIGIN, "a b")) == sorted(shared)


def test_tombstone_tells_the_generation(view):
    assert view.tombstone(key()) == 0
    view.apply([Remove(key=key(), removed_at=CREATED), pair(removed_at=CREATED + 2)])
    assert view.tombstone(key()) == CREATED + 2
    assert view.tombstone(key(run="r9")) == CREATED + 2


def test_a_spec_that_is_no_json_is_damage(view, store):
    view.apply([report(extras="{}")])
    store.client.set(store.keys.of_job(key()).spec, "{")
    with pytest.raises(Damaged, match="no JSON"):
        view.spec(key())


def test_blobs_that_never_were_are_none(view):
    assert (view.spec(key()), view.result(key()), view.has_spec(key())) == (None, None, False)


def test_refusals_tell_themselves(view):
    view.apply([report(seq=5), report(state="queued", seq=4, by="me")])
    [refusal] = view.refusals(key())
    told = refusal.to_json()
    assert told.pop("at") > CREATED
    assert told == {
        "rule": "stale_seq", "event": "report", "state": "queued", "node": "", "seq": 4, "attempt": 0, "by": "me",
        "count": 1,
    }  # fmt: skip
