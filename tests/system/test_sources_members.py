"""What the source document on the trust store says of its members: who a node is, who vouches for it, who removes it.

Cases I and A (identity, and its epochs), R (endorsements), D (proofs of removals). Hostile certificates and records:
tests/rules/test_certificate.py and test_signed.py.

Not here, for they come with joining: A4-A7, R8, D11, S, L, P, and with mutual TLS: M. Not here at all: R9 and R10 (a
peer is a name, not an address), A2 and D5 (records of earlier versions), I3 (a node is called what its operator calls
it), D13 (no proof needs to be replayed: it is the peer's file).
"""

from __future__ import annotations

import itertools
import shutil
from dataclasses import replace

import pytest

from broker.errors import Misconfigured, NotFound, Refused, Untrusted, Unwritable
from broker.rules.trust import Card
from broker.store.identity import Identity
from tests.nodes import NOW, Node
from tests.store.trusting import ANN, BOB, CLEO, failing, files, is_killed, opened, same_on_disk


class TestIdentity:
    def test_I1_who_was_made_is_found_again(self, tmp_path):
        made = Identity.create(tmp_path / "id", "me", NOW)
        for found in (Identity.load(tmp_path / "id", NOW), Identity.create(tmp_path / "id", "me", NOW)):  # fmt: skip
            assert (found.node, found.certificate.fingerprint) == ("me", made.certificate.fingerprint)  # fmt: skip

    @pytest.mark.parametrize("name", ["node.key", "node.crt"])
    @pytest.mark.parametrize("how", ["missing", "corrupt"])
    def test_I2_a_lost_key_is_an_error_and_never_a_new_one(self, tmp_path, name, how):
        Identity.create(tmp_path / "id", "me", NOW)
        path = tmp_path / "id" / name
        if how == "missing":
            path.unlink()
        else:
            path.write_text("spoiled")
        before = files(tmp_path / "id")
        for find in (Identity.load, lambda *at: Identity.create(at[0], "me", at[1])):
            with pytest.raises(Misconfigured, match=name):
                find(tmp_path / "id", NOW)
        assert files(tmp_path / "id") == before

    def test_I2_where_nothing_is_nothing_is_made_by_looking(self, tmp_path):
        with pytest.raises(NotFound):
            Identity.load(tmp_path / "id", NOW)
        assert files(tmp_path) == {}

    def test_A1_an_epoch_outlives_a_restart_and_only_climbs(self, tmp_path):
        identity = Identity.create(tmp_path / "id", "me", NOW)
        first = identity.epoch
        assert Identity.load(tmp_path / "id", NOW).epoch == first
        identity.raise_epoch(first + 1)
        assert Identity.load(tmp_path / "id", NOW).epoch == first + 1
        with pytest.raises(Refused, match="climbs"):
            identity.raise_epoch(first)

    @pytest.mark.parametrize("epoch", [0, -1, None, "1", 1.0, True, 2**53])
    def test_A3_a_card_without_an_epoch_is_refused(self, epoch):
        with pytest.raises(Untrusted):
            Card.from_json(ANN.card().to_json() | {"epoch": epoch})
        said = ANN.card().to_json()
        del said["epoch"]
        with pytest.raises(Untrusted):
            Card.from_json(said)


@pytest.fixture
def of_ann(trust, heard):
    """Only Ann is pinned, and nothing was heard yet."""
    trust.pin(ANN.card())
    heard.clear()
    return trust


class TestEndorsements:
    def test_R1_whom_a_trusted_member_vouches_for_is_pinned(self, of_ann, heard):
        of_ann.admit([CLEO.card(ANN)])
        assert of_ann.get("cleo").fingerprint == CLEO.certificate.fingerprint
        assert heard.changes == [("pinned", "cleo")]
        assert set(opened(of_ann.folder).pins) == {"ann", "cleo"}

    @pytest.mark.parametrize("names", ["pqrs", "srqp"])
    def test_R2_and_whom_that_one_vouches_for_in_one_go_whatever_their_order(
        self, of_ann, heard, names
    ):
        chain = [ANN, *map(Node, names)]
        cards = [one.card(voucher) for voucher, one in itertools.pairwise(chain)]
        of_ann.admit(reversed(cards))
        assert set(of_ann.pins) == {"ann", *names}
        assert sorted(heard.changes) == [("pinned", name) for name in sorted(names)]

    def test_R3_a_strangers_word_changes_nothing(self, of_ann, heard):
        found = of_ann.admit([CLEO.card(BOB)])
        assert list(found.refused.values()) == ["unvouched"]
        assert (set(of_ann.pins), heard) == ({"ann"}, [])

    def test_R4_a_word_for_one_certificate_is_none_for_another(self, of_ann, heard):
        other = Node("cleo")
        words = CLEO.card(ANN).endorsements
        with pytest.raises(Untrusted) as refused:
            Card.from_json(replace(other.card(), endorsements=words).to_json())
        assert refused.value.rule == "wrong_subject"
        card = replace(other.card(), endorsements=words)
        forged = replace(words[0], fingerprint=other.certificate.fingerprint)
        for one in (card, replace(card, endorsements=(forged,))):
            assert not of_ann.admit([one]).pins
        assert heard == []

    def test_R5_a_word_given_in_an_epoch_that_is_over_does_not_count(self, of_ann):
        of_ann.pin(ANN.at(2).card())
        assert not of_ann.admit([CLEO.card(ANN)]).pins
        assert of_ann.admit([CLEO.card(ANN.at(2))]).pins

    @pytest.mark.parametrize("is_direct", [True, False], ids=["direct", "by one more"])
    def test_R6_a_newer_epoch_of_the_voucher_in_the_same_list_makes_its_word_count(
        self, trust, is_direct
    ):
        for one in (ANN, BOB):
            trust.pin(one.card())
        newer, zoe = ANN.at(2), Node("zoe")
        if is_direct:
            trust.admit([CLEO.card(newer), newer.card(BOB)])
        else:
            trust.admit([CLEO.card(newer), newer.card(zoe), zoe.card(BOB)])
        assert trust.get("ann").epoch == 2
        assert "cleo" in trust.pins

    @pytest.mark.parametrize("epoch, change", [(1, "endorsed"), (2, "pinned")])
    def test_R7_a_third_party_does_not_rename_a_peer(self, trusting, heard, epoch, change):
        trusting.rename("cleo", "Cleo's desk")
        heard.clear()
        trusting.admit([replace(CLEO.at(epoch).card(ANN), name="stale")])
        assert trusting.get("cleo").name == "Cleo's desk"
        assert heard.changes == [(change, "cleo")]


class TestRemovals:
    def test_D1_a_proof_counts_for_its_epoch_and_not_after_a_new_admission(self, trusting, heard):
        proof = ANN.against(CLEO)
        assert trusting.remove("cleo", proof)
        assert trusting.get("cleo") is None
        trusting.pin(CLEO.at(2).card())
        heard.clear()
        with pytest.raises(Untrusted) as refused:
            trusting.remove("cleo", proof)
        assert refused.value.rule == "other_epoch"
        assert (trusting.get("cleo").epoch, heard) == (2, [])

    def test_D2_who_is_only_known_through_a_relay_is_first_admitted_by_its_word(self, of_ann):
        of_ann.pin(CLEO.card())
        proof = BOB.against(CLEO)
        with pytest.raises(Untrusted) as refused:
            of_ann.remove("cleo", proof)
        assert refused.value.rule == "unknown_endorser"
        of_ann.admit([BOB.card(ANN)])
        assert of_ann.remove("cleo", proof)

    def test_D3_a_proof_stands_when_it_is_old_and_its_giver_gone(self, trusting, trust_folder):
        trusting.remove("cleo", ANN.against(CLEO))
        trusting.remove("ann")
        later = opened(trust_folder, clock=lambda: NOW + 48 * 3_600_000)
        assert later.removal("cleo") == ANN.against(CLEO)
        with pytest.raises(Refused) as refused:
            later.pin(CLEO.card())
        assert refused.value.rule == "removed"

    def test_D4_killed_at_any_step_of_a_removal_a_peer_is_pinned_or_proven_removed(
        self, trusting, tmp_path
    ):
        proof = ANN.against(CLEO)
        seen = []
        for step in itertools.count(1):
            copy = shutil.copytree(trusting.folder, tmp_path / f"copy-{step}")
            if not is_killed(lambda copy=copy: opened(copy).remove("cleo", proof), step):
                break
            fresh = opened(copy)
            is_gone = fresh.get("cleo") is None
            assert fresh.removal("cleo") == (proof if is_gone else None)
            assert [told.change for told in fresh.pending()][3:] == ["removed"] * is_gone
            seen.append(is_gone)
        assert seen == sorted(seen)
        assert set(seen) == {False, True}

    @pytest.mark.parametrize("name", ["node", "epoch", "by", "by_epoch", "removed_at", "sig"])
    def test_D6_a_proof_that_was_tampered_with_is_refused(self, trusting, heard, name):
        trusting.pin(CLEO.at(2).card())
        trusting.pin(BOB.at(2).card())
        heard.clear()
        proof = ANN.against(CLEO.at(2))
        tampered = {
            "node": "bob", "epoch": 1, "by": "bob", "by_epoch": 2, "removed_at": NOW + 1,
            "sig": BOB.against(CLEO.at(2)).sig,
        }  # fmt: skip
        wrong = replace(proof, **{name: tampered[name]})
        with pytest.raises(Untrusted):
            trusting.remove(wrong.node, wrong)
        assert (set(trusting.pins), heard) == ({"ann", "bob", "cleo"}, [])
        assert trusting.remove("cleo", proof)

    def test_D7_a_newer_epoch_ends_the_proof_and_what_is_stale_does_not_bring_it_back(
        self, trusting, trust_folder
    ):
        trusting.remove("cleo", ANN.against(CLEO))
        trusting.admit([CLEO.at(2).card(ANN)])
        assert trusting.removal("cleo") is None
        assert not trusting.admit([CLEO.card(ANN)]).pins
        assert opened(trust_folder).get("cleo").epoch == 2
        assert opened(trust_folder).removal("cleo") is None

    def test_D8_a_proof_for_an_invented_epoch_is_not_kept_and_bars_nobody(self, trusting):
        highest = 2**53 - 1
        with pytest.raises(Untrusted) as refused:
            trusting.remove("cleo", ANN.against(CLEO.at(highest)))
        assert refused.value.rule == "other_epoch"
        assert trusting.removal("cleo") is None
        assert trusting.pin(CLEO.at(2).card())

    def test_D9_a_proof_that_cannot_be_written_leaves_the_pin(self, trusting, heard):
        with failing(lambda _, step: step.startswith("replace")), pytest.raises(Unwritable):
            trusting.remove("cleo", ANN.against(CLEO))
        assert trusting.get("cleo") is not None
        assert trusting.removal("cleo") is None
        assert heard == []
        assert same_on_disk(trusting)

    def test_D10_who_was_admitted_anew_while_a_removal_was_on_its_way_survives(self, trusting):
        proof = ANN.against(CLEO)
        trusting.pin(CLEO.at(2).card())
        trusting.pin(Node("dora").card())
        with pytest.raises(Untrusted):
            trusting.remove("cleo", proof)
        assert trusting.get("cleo").epoch == 2
        assert trusting.remove("bob", ANN.against(BOB))  # whatever else came in between

    @pytest.mark.parametrize("epoch", [1, 2])
    def test_D12_who_was_removed_is_admitted_only_in_a_newer_epoch(self, trusting, epoch):
        trusting.pin(CLEO.at(2).card())
        trusting.remove("cleo", ANN.against(CLEO.at(2)))
        stale = CLEO.at(epoch)
        with pytest.raises(Refused) as refused:
            trusting.pin(stale.card())
        assert refused.value.rule == "removed"
        assert not trusting.admit([stale.card(ANN)]).pins
        assert trusting.admit([CLEO.at(3).card(ANN)]).pins
