"""A disk that fails: at each single step, for good, when it is full, and while somebody must be forgotten at once."""

from __future__ import annotations

import errno
import os

import pytest

from broker.errors import Unwritable
from broker.store import outbox
from tests.store.trusting import (
    ANN,
    BOB,
    CHANGES,
    ME,
    Heard,
    at_its_beginning,
    failing,
    file_size_max,
    opened,
    same_on_disk,
    state,
    steps_of,
    unfinished,
)


@pytest.fixture(params=CHANGES)
def change(request):
    return CHANGES[request.param]


def test_every_change_that_is_persisted_is_tried_here():
    assert {change.change for change in CHANGES.values()} == {*outbox.CHANGES} - {outbox.FORGOTTEN}


def test_a_failure_at_any_step_is_an_error_silent_and_tried_again_announced_once(tmp_path, change):
    trust, _ = at_its_beginning(tmp_path / "counted", change)
    steps = steps_of(lambda: change.work(trust))
    assert {step.split()[0] for step in steps} >= {"open", "write", "fsync", "close"}
    for at, step in enumerate(steps, 1):
        trust, heard = at_its_beginning(tmp_path / str(at), change)
        before, waiting = state(trust), trust.pending()
        if step == "close lock":  # all is done by then
            with failing(lambda count, _, at=at: count == at):
                assert change.work(trust)
            assert heard.changes == [(change.change, "ann")]
            continue
        with failing(lambda count, _, at=at: count == at), pytest.raises(Unwritable):
            change.work(trust)
        assert heard == [], step
        assert state(trust) == before, step
        assert trust.pending() == waiting, step
        assert same_on_disk(trust), step
        assert unfinished(trust.folder) == [], step
        assert change.work(trust) is True
        assert heard.changes == [(change.change, "ann")]
        assert trust.pending() == (*waiting, *heard)
        assert same_on_disk(trust)
        assert change.work(trust) is False
        assert len(heard) == 1


def test_a_failure_at_any_step_after_which_nobody_tries_again_is_silent_for_ever(tmp_path, change):
    trust, _ = at_its_beginning(tmp_path / "counted", change)
    steps = steps_of(lambda: change.work(trust))
    for at in range(1, len(steps)):
        trust, heard = at_its_beginning(tmp_path / str(at), change)
        waiting = trust.pending()
        with failing(lambda count, _, at=at: count == at), pytest.raises(Unwritable):
            change.work(trust)
        # The next change of another peer settles what had begun.
        trust.rename("bob", "Bob")
        assert heard.changes == [("renamed", "bob")]
        assert trust.pending() == (*waiting, *heard)
        assert same_on_disk(trust)


def test_a_disk_that_stays_broken_never_parts_memory_from_disk(tmp_path, change):
    """What the disk holds in the end is in memory as well, and is announced if, and only if, it is a change."""
    trust, _ = at_its_beginning(tmp_path / "counted", change)
    before = state(trust)
    steps = steps_of(lambda: change.work(trust))
    after = state(trust)
    stood = 0
    for at in range(1, len(steps)):
        trust, heard = at_its_beginning(tmp_path / str(at), change)
        waiting = trust.pending()
        with failing(lambda count, _, at=at: count >= at), pytest.raises(Unwritable):
            change.work(trust)
        assert heard == []
        assert same_on_disk(trust)
        now = state(trust)
        assert now in (before, after)
        told = [told.change for told in trust.pending()[len(waiting) :]]
        assert told == ([change.change] if now == after else [])
        stood += now == after
        assert change.work(trust) is (now == before)
        assert [told.change for told in trust.pending()[len(waiting) :]] == [change.change]
    assert stood, "no step fell between the change and its last failure"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_full_disk_is_one_clear_error_and_nothing_is_lost(tmp_path, change, code):
    trust, heard = at_its_beginning(tmp_path / "trust", change)
    before = state(trust)
    with failing(lambda _, step: step.startswith("write"), code):
        with pytest.raises(Unwritable) as failed:
            change.work(trust)
        assert str(failed.value) == f"cannot write {trust.folder}/outbox.json: {os.strerror(code)}"
        assert state(trust) == before
    assert heard == []
    assert same_on_disk(trust)
    assert unfinished(trust.folder) == []
    assert change.work(trust)
    assert heard.changes == [(change.change, "ann")]


def test_a_write_that_the_kernel_itself_cuts_off_loses_nothing(tmp_path):
    trust, heard = at_its_beginning(tmp_path / "trust", CHANGES["endorse"])
    before = state(trust)
    # The outbox still fits, the peer's file does not.
    assert (trust.folder / "outbox.json").stat().st_size < 500 < len(ANN.certificate.pem)
    with file_size_max(500), pytest.raises(Unwritable, match=r"ann\.json: File too large"):
        trust.endorse("ann", [ME.of(ANN)])
    assert heard == []
    assert state(trust) == before
    assert same_on_disk(trust)
    assert unfinished(trust.folder) == []
    assert trust.endorse("ann", [ME.of(ANN)])
    assert heard.changes == [("endorsed", "ann")]


# --- forget: memory alone -------------------------------------------------------------------------


def test_forgetting_changes_memory_alone_and_says_so(tmp_path):
    trust, heard = at_its_beginning(tmp_path / "trust", CHANGES["rename"])
    assert trust.forget("ann")
    assert trust.get("ann") is None
    assert not trust.match("ann", ANN.certificate.der)
    assert [(told.change, told.persisted) for told in heard] == [("forgotten", False)]
    assert opened(trust.folder).get("ann")
    assert not trust.forget("ann")
    trust.reload()
    trust.rename("bob", "Bob")
    assert trust.get("ann") is None
    assert [told.change for told in heard] == ["forgotten", "renamed"]
    assert trust.pending()[-2:] == tuple(heard)
    assert opened(trust.folder).pending() == trust.pending()


def test_a_peer_is_forgotten_although_the_disk_takes_nothing(tmp_path):
    trust, heard = at_its_beginning(tmp_path / "trust", CHANGES["rename"])
    with failing(lambda *_: True):
        with pytest.raises(Unwritable):
            trust.remove("ann")
        assert trust.get("ann")
        assert trust.forget("ann")
        assert trust.get("ann") is None
        assert heard.changes == [("forgotten", "ann")]
        # It waits to be told although it is written nowhere.
        assert trust.pending()[-1] == heard[-1]
        assert trust.forget("bob")
        assert trust.pending()[-2:] == tuple(heard)
    trust.reload()
    assert trust.pending()[-2:] == tuple(heard)
    # Once the disk is mended, the next change takes it along, in order, and the removal can be made good.
    assert trust.remove("ann")
    assert heard.changes == [("forgotten", "ann"), ("forgotten", "bob"), ("removed", "ann")]
    assert trust.pending()[-3:] == tuple(heard)
    assert [told.gen for told in trust.pending()] == sorted({told.gen for told in trust.pending()})
    fresh = opened(trust.folder)
    assert fresh.pending() == trust.pending()
    assert set(fresh.pins) == {"bob"}
    assert set(trust.pins) == set()


def test_what_was_forgotten_can_be_removed_with_a_proof(tmp_path):
    trust, heard = at_its_beginning(tmp_path / "trust", CHANGES["rename"])
    trust.forget("ann")
    assert trust.remove("ann", ME.against(ANN))
    assert trust.removal("ann") == ME.against(ANN)
    assert heard.changes == [("forgotten", "ann"), ("removed", "ann")]
    assert same_on_disk(trust)


def test_what_was_forgotten_can_be_pinned_anew(tmp_path):
    trust, heard = at_its_beginning(tmp_path / "trust", CHANGES["rename"])
    trust.forget("ann")
    assert trust.pin(ANN.card())
    assert trust.match("ann", ANN.certificate.der)
    assert heard.changes == [("forgotten", "ann"), ("pinned", "ann")]
    assert same_on_disk(trust)


# --- the outbox itself ----------------------------------------------------------------------------

BAD_OUTBOXES = {
    "lost": None,
    "nothing": b"",
    "half": b'{"gen":7,"waiting":[',
    "no text": b"\xff\xfe\x00",
    "a list": b"[]",
    "no number": b'{"gen":"7","waiting":[]}',
    "a number below": (
        b'{"gen":1,"waiting":[{"gen":2,"change":"pinned","node":"x","at":1,"persisted":true}]}'
    ),
    "an unknown change": (
        b'{"gen":9,"waiting":[{"gen":2,"change":"eaten","node":"x","at":1,"persisted":true}]}'
    ),
    "an unsafe name": (
        b'{"gen":9,"waiting":[{"gen":2,"change":"pinned","node":"../x","at":1,"persisted":true}]}'
    ),
    "an unknown field": (
        b'{"gen":9,"waiting":[{"gen":2,"change":"pinned","node":"x","at":1,"persisted":true,"z":1}]}'
    ),
    "no entry": b'{"gen":9,"waiting":[7]}',
    "more than is read": b" " * (16 * 1024 * 1024 + 1),
}


@pytest.mark.parametrize("kind", BAD_OUTBOXES)
def test_an_outbox_that_is_lost_or_broken_holds_no_pin_up(tmp_path, caplog, kind):
    trust = opened(tmp_path)
    for card in (ANN.card(), BOB.card()):
        trust.pin(card)
    trust.rename("ann", "Ann")
    held, gen = state(trust), trust.pending()[-1].gen
    path = tmp_path / "outbox.json"
    data = BAD_OUTBOXES[kind]
    path.unlink()
    if data is not None:
        path.write_bytes(data)
    heard = Heard()
    fresh = opened(tmp_path, on_change=heard)
    assert state(fresh) == held
    assert fresh.pending() == ()
    assert any("outbox.json" in message for message in caplog.messages) is (data is not None)
    assert fresh.rename("bob", "Bob")
    # The numbers go on above those that the peers' files carry.
    assert heard[0].gen > gen
    assert same_on_disk(fresh)


def test_an_outbox_that_cannot_be_read_for_now_is_not_taken_for_lost(tmp_path):
    trust = opened(tmp_path)
    trust.pin(ANN.card())
    waiting = trust.pending()
    with failing(lambda _, step: step == "open outbox.json"):
        fresh = opened(tmp_path)
        assert fresh.match("ann", ANN.certificate.der)
        with pytest.raises(Unwritable, match=r"cannot read .*outbox\.json"):
            fresh.rename("ann", "Ann")
    assert fresh.pending() == waiting
    assert fresh.rename("ann", "Ann")
    assert [told.change for told in opened(tmp_path).pending()] == ["pinned", "renamed"]


def test_an_outbox_that_was_set_back_gives_no_number_twice(tmp_path):
    trust = opened(tmp_path)
    trust.pin(ANN.card())
    old = (tmp_path / "outbox.json").read_bytes()
    trust.pin(BOB.card())
    trust.rename("bob", "Bob")
    used = trust.pending()[-1].gen
    (tmp_path / "outbox.json").write_bytes(old)
    fresh = opened(tmp_path)
    fresh.rename("ann", "Ann")
    assert fresh.pending()[-1].gen > used
