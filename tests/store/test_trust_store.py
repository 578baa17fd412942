from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest

from broker.errors import Invalid, Refused, Untrusted, Unwritable
from broker.rules.trust import Card
from broker.rules.word import Endorsement
from tests.nodes import NOW, Node
from tests.store.trusting import (
    ANN,
    BOB,
    CLEO,
    ME,
    Heard,
    failing,
    files,
    member,
    opened,
    same_on_disk,
    state,
    steps_of,
)

UNSAFE = [
    "", ".", "..", "../x", "a/../../x", "..\\x", "/etc/x", "C:x", "\\\\host\\x", "a:b", "a\0b",
    "*", "a?", "[a]", "a\nb", "A", "-x", "x" * 64,
]  # fmt: skip


@pytest.fixture
def heard():
    return Heard()


@pytest.fixture
def trust(tmp_path, heard):
    return opened(tmp_path / "trust", on_change=heard)


def test_T1_pin_rename_remove_pin_and_forget_are_announced_once_each(trust, heard):
    assert trust.pin(ANN.card())
    assert trust.rename("ann", "Ann's desk")
    assert trust.remove("ann")
    assert trust.pin(ANN.card())
    assert trust.forget("ann")
    changes = ["pinned", "renamed", "removed", "pinned", "forgotten"]
    assert heard.changes == [(change, "ann") for change in changes]
    assert [told.persisted for told in heard] == [True] * 4 + [False]
    assert [told.gen for told in heard] == sorted({told.gen for told in heard})
    assert trust.pending() == tuple(heard)


def test_T2_a_batch_of_old_new_and_duplicate_endorsements_is_one_write_and_one_announcement(
    trust, heard
):
    first, second = ME.of(ANN), BOB.of(ANN)
    trust.pin(BOB.card())
    trust.pin(replace(ANN.card(), endorsements=(first,)))
    heard.clear()
    steps = steps_of(lambda: trust.endorse("ann", [first, second, second]))
    assert steps.count("replace ann.json.tmp") == 1
    assert steps.count("replace outbox.json.tmp") == 1
    assert heard.changes == [("endorsed", "ann")]
    assert trust.get("ann").endorsements == (first, second)
    before = files(trust.folder)
    assert not trust.endorse("ann", [first, second, second])
    assert not trust.endorse("ann", [])
    assert not trust.pin(replace(ANN.card(), endorsements=(second, first)))
    assert not trust.pin(ANN.card())
    assert files(trust.folder) == before
    assert len(heard) == 1


def test_T2_the_same_batch_with_a_pin_is_one_write_and_one_announcement(trust, heard):
    trust.pin(BOB.card())
    trust.pin(replace(ANN.card(), endorsements=(ME.of(ANN),)))
    heard.clear()
    again = ANN.card(ME, BOB, BOB)
    steps = steps_of(lambda: trust.pin(again))
    assert steps.count("replace ann.json.tmp") == 1
    assert heard.changes == [("endorsed", "ann")]
    assert [word.by for word in trust.get("ann").endorsements] == ["me", "bob"]


def test_an_endorsement_issued_anew_is_no_news(trust, heard):
    trust.pin(ANN.card(ME))
    before = files(trust.folder)
    assert not trust.endorse("ann", [ME.of(ANN, NOW + 1)])
    assert files(trust.folder) == before
    assert len(heard) == 1


def test_T3_the_listener_sees_the_change_live_and_in_a_store_opened_anew(tmp_path):
    seen = []

    def look(told) -> None:
        live = trust.get(told.node)
        fresh = opened(trust.folder).get(told.node)
        trust.reload()
        seen.append((told.change, live, fresh, trust.get(told.node)))

    trust = opened(tmp_path, on_change=look)
    trust.pin(ANN.card())
    pinned = trust.get("ann")
    trust.endorse("ann", [ME.of(ANN)])
    endorsed = trust.get("ann")
    trust.remove("ann")
    assert endorsed.endorsements
    assert not pinned.endorsements
    assert seen == [
        ("pinned", pinned, pinned, pinned),
        ("endorsed", endorsed, endorsed, endorsed),
        ("removed", None, None, None),
    ]


def test_T4_a_merge_whose_rename_fails_changes_nothing_and_is_announced_when_tried_again(
    trust, heard
):
    trust.pin(ANN.card())
    heard.clear()
    before = state(trust)
    with (
        failing(lambda _, step: step == "replace ann.json.tmp"),
        pytest.raises(Unwritable, match=r"ann\.json"),
    ):
        trust.endorse("ann", [ME.of(ANN)])
    assert heard == []
    assert state(trust) == before
    assert same_on_disk(trust)
    assert [path.name for path in (trust.folder / "peers").iterdir()] == ["ann.json"]
    assert trust.endorse("ann", [ME.of(ANN)])
    assert heard.changes == [("endorsed", "ann")]


def test_T6_an_unknown_peer_leaves_nothing_in_memory_or_on_disk(trust, heard):
    before = files(trust.folder)
    assert not trust.endorse("ann", [ME.of(ANN)])
    assert not trust.rename("ann", "Ann")
    assert not trust.remove("ann")
    assert not trust.forget("ann")
    assert heard == []
    assert trust.pending() == ()
    assert state(trust) == {"pins": {}, "removals": {}}
    assert files(trust.folder) == before


def test_T7_the_same_again_and_strangers_are_silent(trust, heard):
    trust.pin(ANN.card(ME))
    trust.rename("ann", "Ann")
    heard.clear()
    before = files(trust.folder)
    assert not trust.pin(ANN.card(ME))
    assert not trust.rename("ann", "Ann")
    assert not trust.remove("bob")
    assert not trust.forget("bob")
    assert heard == []
    assert files(trust.folder) == before


def test_T8_another_certificate_of_a_pinned_node_is_refused(trust, heard):
    trust.pin(ANN.card())
    impostor = Node("ann")
    for card in (impostor.card(), impostor.at(7).card()):
        with pytest.raises(Refused) as refused:
            trust.pin(card)
        assert refused.value.rule == "certificate_changed"
    assert trust.match("ann", ANN.certificate.der)
    assert not trust.match("ann", impostor.certificate.der)
    assert not trust.match("bob", ANN.certificate.der)
    assert len(heard) == 1


def test_T9_a_lower_epoch_is_silent_and_a_higher_one_replaces(trust, heard):
    trust.pin(ANN.at(2).card(ME))
    before = files(trust.folder)
    assert not trust.pin(ANN.at(1).card(ME))
    assert files(trust.folder) == before
    assert trust.pin(ANN.at(3).card())
    assert (trust.get("ann").epoch, trust.get("ann").endorsements) == (3, ())
    assert heard.changes == [("pinned", "ann"), ("pinned", "ann")]
    assert same_on_disk(trust)


@pytest.mark.parametrize("name", UNSAFE, ids=repr)
def test_T10_no_unsafe_name_reaches_the_disk(trust, heard, tmp_path, name):
    neighbour = tmp_path / "x.json"
    neighbour.write_text("{}")
    trust.pin(ANN.card())
    heard.clear()
    before = files(tmp_path)
    unsafe = Card(name, "Ann", 1, ANN.certificate.pem)
    with pytest.raises((Invalid, Untrusted)):
        trust.pin(unsafe)
    assert not trust.remove(name)
    assert not trust.forget(name)
    assert not trust.rename(name, "Ann")
    assert not trust.endorse(name, [ME.of(ANN)])
    assert trust.get(name) is None
    assert files(tmp_path) == before
    assert heard == []


def test_T11_an_ordinary_name_with_dots_and_dashes_goes_all_the_way(trust):
    peer = member("peer.name-1")
    trust.pin(peer.card())
    trust.reload()
    assert trust.get("peer.name-1")
    assert same_on_disk(trust)
    assert trust.remove("peer.name-1")
    assert not trust.remove("peer.name-1")
    assert same_on_disk(trust)


def test_T13_whoever_changes_what_it_got_changes_nothing(trust):
    card = ANN.card(ME)
    trust.pin(card)
    held = state(trust)
    pin = trust.get("ann")
    with pytest.raises(FrozenInstanceError):
        pin.name = "Mallory"
    with pytest.raises(FrozenInstanceError):
        pin.endorsements[0].by = "mallory"
    with pytest.raises(TypeError):
        trust.pins["mallory"] = pin
    with pytest.raises(TypeError):
        trust.removals["ann"] = None
    pin.to_json()["endorsements"].clear()
    words = [BOB.of(ANN)]
    trust.pin(BOB.card())
    trust.endorse("ann", words)
    words.clear()
    assert trust.get("ann") == replace(
        held["pins"]["ann"], endorsements=(*pin.endorsements, BOB.of(ANN))
    )
    assert same_on_disk(trust)


def test_T14_a_folder_that_is_gone_is_an_error_and_the_live_values_stand(trust, heard):
    trust.pin(ANN.card())
    heard.clear()
    before = state(trust)
    away = trust.folder.with_name("away")
    for folder in (trust.folder, trust.folder / "peers"):
        folder.rename(away)
        for change in (
            lambda: trust.rename("ann", "Ann"),
            lambda: trust.endorse("ann", [ME.of(ANN)]),
            lambda: trust.pin(BOB.card()),
            lambda: trust.remove("ann"),
            trust.reload,
        ):
            with pytest.raises(Unwritable):
                change()
            assert state(trust) == before
        away.rename(folder)
    assert heard == []
    assert same_on_disk(trust)
    assert trust.rename("ann", "Ann")
    assert heard.changes == [("renamed", "ann")]


def test_T15_a_card_with_a_path_for_a_name_is_not_admitted_and_the_identity_is_untouched(
    trust, heard
):
    trust.pin(BOB.card())
    identity = trust.folder / "identity.json"
    identity.write_text('{"node":"me"}')
    unsafe = replace(ANN.card(), node="../identity")
    unsafe = replace(unsafe, endorsements=(Endorsement.signed(BOB, unsafe, NOW),))
    with pytest.raises(Untrusted) as refused:
        Card.from_json(unsafe.to_json())
    assert refused.value.rule == "out_of_bounds"
    # Not even a program of ours that forgets to read it strictly gets it onto the disk.
    with pytest.raises(Invalid):
        trust.admit([unsafe])
    assert trust.get("../identity") is None
    assert identity.read_text() == '{"node":"me"}'
    assert set(trust.pins) == {"bob"}
    assert heard.changes == [("pinned", "bob")]


# --- admission -----------------------------------------------------------------------------------


def test_whom_a_trusted_member_vouches_for_is_admitted_to_a_fixpoint(trust, heard):
    trust.pin(ANN.card())
    heard.clear()
    found = trust.admit([CLEO.card(BOB), BOB.card(ANN), member("dan").card(member("eve"))])
    assert {pin.node for pin in found.pins} == {"bob", "cleo"}
    assert {card.node: rule for card, rule in found.refused.items()} == {"dan": "unvouched"}
    assert heard.changes == [("pinned", "bob"), ("pinned", "cleo")]
    assert same_on_disk(trust)
    assert trust.admit([CLEO.card(BOB), BOB.card(ANN)]).pins == ()
    assert len(heard) == 2


def test_a_peer_whose_admission_takes_several_steps_is_written_once(trust, heard):
    trust.pin(ANN.card())
    heard.clear()
    # Bob is admitted on Ann's word; Cleo's word for Bob counts once Cleo is admitted on Bob's.
    steps = steps_of(lambda: trust.admit([BOB.card(ANN, CLEO), CLEO.card(BOB)]))
    assert steps.count("replace bob.json.tmp") == 1
    assert heard.changes == [("pinned", "bob"), ("pinned", "cleo")]
    assert [word.by for word in trust.get("bob").endorsements] == ["ann", "cleo"]
    assert same_on_disk(trust)


def test_an_admission_that_fails_halfway_announces_what_stands(trust, heard):
    trust.pin(ANN.card())
    heard.clear()
    cards = [BOB.card(ANN), CLEO.card(ANN)]
    with failing(lambda _, step: step == "replace cleo.json.tmp"), pytest.raises(Unwritable):
        trust.admit(cards)
    assert heard.changes == [("pinned", "bob")]
    assert same_on_disk(trust)
    trust.admit(cards)
    assert heard.changes == [("pinned", "bob"), ("pinned", "cleo")]


# --- words are verified before they are kept ------------------------------------------------------


def test_a_word_that_does_not_count_is_refused_with_its_batch(trust, heard):
    trust.pin(ANN.card())
    trust.pin(BOB.card())
    heard.clear()
    forged = replace(BOB.of(ANN), sig=ME.of(ANN).sig)
    for word, rule in [
        (forged, "bad_signature"),
        (CLEO.of(ANN), "unknown_endorser"),
        (BOB.at(2).of(ANN), "stale_epoch"),
        (ANN.of(ANN), "self_endorsement"),
        (BOB.of(CLEO), "wrong_subject"),
        (BOB.of(ANN.at(2)), "wrong_subject"),
    ]:
        with pytest.raises(Untrusted) as refused:
            trust.endorse("ann", [ME.of(ANN), word])
        assert refused.value.rule == rule
    assert trust.get("ann").endorsements == ()
    assert heard == []
    assert same_on_disk(trust)
