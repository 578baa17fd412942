"""Removal by proof: for one exact epoch, kept without a term, superseded by a newer admission alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.errors import Refused, Untrusted, Unwritable
from broker.rules.strict import EPOCH_MAX
from tests.nodes import NOW, Node
from tests.store.trusting import (
    ANN,
    BOB,
    CLEO,
    ME,
    Heard,
    failing,
    files,
    is_killed,
    opened,
    same_on_disk,
    state,
    steps_of,
)

HOUR_MS = 3_600_000


@pytest.fixture
def heard():
    return Heard()


@pytest.fixture
def trust(tmp_path, heard):
    trust = opened(tmp_path / "trust", on_change=heard)
    trust.pin(ANN.card())
    trust.pin(BOB.card())
    heard.clear()
    return trust


def refusal(call) -> str:
    with pytest.raises((Untrusted, Refused)) as refused:
        call()
    return refused.value.rule


def test_D1_a_proof_counts_for_its_epoch_and_not_after_a_new_admission(trust, heard):
    proof = BOB.against(ANN)
    assert trust.remove("ann", proof)
    assert trust.get("ann") is None
    assert trust.removal("ann") == proof
    assert heard.changes == [("removed", "ann")]
    assert refusal(lambda: trust.pin(ANN.card())) == "removed"
    assert trust.pin(ANN.at(2).card())
    assert refusal(lambda: trust.remove("ann", proof)) == "other_epoch"
    assert trust.get("ann").epoch == 2
    assert heard.changes == [("removed", "ann"), ("pinned", "ann")]
    assert same_on_disk(trust)


def test_the_same_proof_again_or_another_for_that_epoch_is_silent(trust, heard):
    trust.remove("ann", BOB.against(ANN))
    before = files(trust.folder)
    assert not trust.remove("ann", BOB.against(ANN))
    assert not trust.remove("ann", ME.against(ANN, NOW + 1))
    assert not trust.remove("ann")
    assert files(trust.folder) == before
    assert len(heard) == 1


def test_D3_a_proof_holds_two_days_later_after_a_restart_and_without_its_signer(trust):
    proof = BOB.against(ANN)
    trust.remove("ann", proof)
    trust.remove("bob", ME.against(BOB))
    later = opened(trust.folder, clock=lambda: NOW + 48 * HOUR_MS)
    assert later.removal("ann") == proof
    assert refusal(lambda: later.pin(ANN.card())) == "removed"
    assert later.pin(ANN.at(2).card())


def test_D4_there_is_no_moment_between_the_proof_and_the_end_of_the_pin(tmp_path):
    """Both are one file: killed at any step, the peer is pinned, or it is not and its proof stands."""
    step, proof = 1, BOB.against(ANN)
    outcomes = set()
    while True:
        trust = opened(tmp_path / str(step))
        trust.pin(ANN.card())
        trust.pin(BOB.card())
        if not is_killed(lambda trust=trust: trust.remove("ann", proof), step):
            break
        restarted = opened(trust.folder)
        outcomes.add(("ann" in restarted.pins, restarted.removal("ann")))
        step += 1
    assert outcomes == {(True, None), (False, proof)}
    one_write = steps_of(lambda: trust.remove("bob", ME.against(BOB)))
    assert [step for step in one_write if step.startswith(("replace", "unlink"))] == [
        "replace outbox.json.tmp",
        "replace bob.json.tmp",
    ]


@pytest.mark.parametrize(
    "field, value, rule",
    [
        ("node", "bob", "wrong_subject"),
        ("epoch", 2, "other_epoch"),
        ("by", "me", "bad_signature"),
        ("by", "cleo", "unknown_endorser"),
        ("by_epoch", 2, "stale_epoch"),
        ("removed_at", NOW + 1, "bad_signature"),
        pytest.param("sig", ME.against(ANN).sig, "bad_signature", id="sig-of-another"),
        pytest.param("sig", ANN.of(BOB).sig, "bad_signature", id="sig-of-another-type"),
    ],
)
def test_D6_a_proof_with_any_part_changed_is_refused(trust, heard, field, value, rule):
    before = files(trust.folder)
    forged = replace(BOB.against(ANN), **{field: value})
    assert refusal(lambda: trust.remove("ann", forged)) == rule
    assert trust.get("ann")
    assert files(trust.folder) == before
    assert heard == []
    assert trust.remove("ann", BOB.against(ANN))


def test_D6_a_proof_by_another_key_of_the_same_name_is_refused(trust):
    assert refusal(lambda: trust.remove("ann", Node("bob").against(ANN))) == "bad_signature"


def test_D7_a_newer_admission_ends_the_proof_and_older_gossip_does_not_bring_it_down(trust, heard):
    trust.remove("ann", BOB.against(ANN))
    found = trust.admit([ANN.at(2).card(BOB)])
    assert [pin.epoch for pin in found.pins] == [2]
    assert trust.removal("ann") is None
    heard.clear()
    before = files(trust.folder)
    assert not trust.pin(ANN.card())
    trust.admit([ANN.card(BOB)])
    assert refusal(lambda: trust.remove("ann", BOB.against(ANN))) == "other_epoch"
    assert files(trust.folder) == before
    assert heard == []
    assert same_on_disk(trust)


def test_a_removed_epoch_is_not_admitted_whoever_vouches(trust, heard):
    trust.remove("ann", ME.against(ANN))
    heard.clear()
    found = trust.admit([ANN.card(BOB)])
    assert found.pins == ()
    assert list(found.refused.values()) == ["removed"]
    assert heard == []


def test_D8_a_proof_for_an_invented_epoch_is_not_kept_and_the_real_admission_works(trust, heard):
    before = files(trust.folder)
    invented = BOB.against(ANN.at(EPOCH_MAX))
    assert refusal(lambda: trust.remove("ann", invented)) == "other_epoch"
    assert refusal(lambda: trust.remove("cleo", BOB.against(CLEO.at(EPOCH_MAX)))) == "not_pinned"
    assert files(trust.folder) == before
    assert heard == []
    assert trust.pin(ANN.at(2).card())
    assert trust.pin(CLEO.card())


def test_D9_a_proof_that_cannot_be_written_leaves_the_pin_as_it_was(trust, heard):
    before = state(trust)
    for step in ("write ann.json.tmp", "fsync ann.json.tmp", "replace ann.json.tmp", "fsync peers"):
        with failing(lambda _, what, step=step: what == step), pytest.raises(Unwritable):
            trust.remove("ann", BOB.against(ANN))
        assert state(trust) == before
        assert trust.match("ann", ANN.certificate.der)
        assert same_on_disk(trust)
    assert heard == []
    assert trust.remove("ann", BOB.against(ANN))
    assert heard.changes == [("removed", "ann")]


def test_D10_a_removal_for_an_epoch_that_was_passed_meanwhile_leaves_the_new_admission(trust):
    proof = BOB.against(ANN)
    opened(trust.folder).pin(ANN.at(2).card())  # another process of this node
    assert refusal(lambda: trust.remove("ann", proof)) == "other_epoch"
    trust.pin(CLEO.card())
    assert trust.remove("ann", BOB.against(ANN.at(2)))


def test_a_node_may_remove_itself(trust):
    assert trust.remove("ann", ANN.against(ANN))
    assert trust.removal("ann").by == "ann"


def test_a_removal_without_a_proof_leaves_nothing_and_bars_nothing(trust, heard):
    assert trust.remove("ann")
    assert trust.removal("ann") is None
    assert not (trust.folder / "peers/ann.json").exists()
    assert trust.pin(ANN.card())
    assert heard.changes == [("removed", "ann"), ("pinned", "ann")]


def test_a_word_of_one_who_was_removed_counts_no_more(trust):
    trust.remove("bob", ME.against(BOB))
    assert refusal(lambda: trust.endorse("ann", [BOB.of(ANN)])) == "unknown_endorser"
    trust.pin(BOB.at(2).card())
    assert refusal(lambda: trust.endorse("ann", [BOB.of(ANN)])) == "stale_epoch"
    assert trust.endorse("ann", [BOB.at(2).of(ANN)])
