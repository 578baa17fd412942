"""Cards, pins, endorsements and removals: what is taken for one, and whose word counts."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from broker.errors import Invalid, Untrusted
from broker.rules.signed import INTEGER_MAX, canonical, parse, to_text
from broker.rules.strict import EPOCH_MAX, NAME_BYTES_MAX, RECORD_BYTES_MAX
from broker.rules.trust import ENDORSEMENTS_MAX, MEMBERS_MAX, Card, Pin, check_subject, read_cards
from broker.rules.vouch import check_endorsement, check_removal
from broker.rules.word import Endorsement, Removal
from tests.nodes import NOW, Node, anchors

A, B, C, ME = Node("a", 3), Node("b", 5), Node("c"), Node("me", 2)
WORD = A.of(B)
PROOF = A.against(B)
PIN = B.pin(WORD, name="Bob's box")


def refused(call, *args):
    with pytest.raises(Untrusted) as found:
        call(*args)
    assert str(found.value).isprintable()
    assert len(str(found.value)) < 200
    return found.value.rule


class TestRecords:
    @pytest.mark.parametrize(
        "record", [WORD, PROOF, PIN, PIN.card], ids=lambda it: type(it).__name__
    )
    def test_each_comes_back_from_its_text(self, record):
        raw = canonical(record.to_json())
        assert type(record).from_json(parse(raw, RECORD_BYTES_MAX)) == record

    def test_a_record_says_what_a_person_can_read(self):
        assert WORD.to_json() == {
            "by": "a", "by_epoch": 3, "node": "b", "epoch": 5, "fingerprint": B.certificate.fingerprint,
            "issued_at": NOW, "sig": WORD.sig,
        }  # fmt: skip
        assert PROOF.to_json() == {
            "node": "b", "epoch": 5, "by": "a", "by_epoch": 3, "removed_at": NOW, "sig": PROOF.sig,
        }  # fmt: skip
        assert PIN.to_json() == PIN.card.to_json() | {
            "fingerprint": B.certificate.fingerprint, "pinned_at": NOW,
        }  # fmt: skip
        assert PIN.card.to_json() == {
            "node": "b", "name": "Bob's box", "epoch": 5, "certificate": B.certificate.pem,
            "endorsements": [WORD.to_json()],
        }  # fmt: skip

    @pytest.mark.parametrize(
        "record", [WORD, PROOF, PIN, PIN.card], ids=lambda it: type(it).__name__
    )
    def test_a_field_too_many_too_few_or_of_another_type_is_refused(self, record):
        said = record.to_json()
        kind = type(record)
        assert refused(kind.from_json, said | {"more": 1}) == "malformed_record"
        for name in said:
            less = {other: said[other] for other in said if other != name}
            assert refused(kind.from_json, less) == "malformed_record"
            for wrong in (None, True, 1.0, {}, ["x"], "1" if isinstance(said[name], int) else 1):
                assert refused(kind.from_json, said | {name: wrong}) == "malformed_record", name

    @pytest.mark.parametrize("said", [None, 1, "a", [], [{}], {}, True])
    def test_what_is_no_object_is_no_record(self, said):
        for kind in (Card, Pin, Endorsement, Removal):
            assert refused(kind.from_json, said) == "malformed_record"

    @pytest.mark.parametrize(
        "field,wrong",
        [
            *(
                ("by", name)
                for name in ("", "..", "../b", "a/b", "a*", "A", "a\n", "a\0", "a" * 64)
            ),
            *(("node", name) for name in ("", ".", "x:y", "x\\y", "\ud800")),
            *(("by_epoch", epoch) for epoch in (0, -1, 2**53, 2**64 - 1)),
            *(("epoch", epoch) for epoch in (0, -1, 2**53, 2**64 - 1)),
            *(("issued_at", moment) for moment in (-1, 2**53)),
            *(("fingerprint", text) for text in ("", "sha256:", "sha256:" + "A" * 64, "0" * 64)),
            pytest.param("fingerprint", B.certificate.fingerprint + "\n", id="fingerprint-newline"),
            ("sig", to_text(bytes(63))),
            ("sig", to_text(bytes(65))),
        ],
    )
    def test_what_is_outside_its_bounds_is_refused(self, field, wrong):
        assert refused(Endorsement.from_json, WORD.to_json() | {field: wrong}) == "out_of_bounds"

    @pytest.mark.parametrize(
        "sig",
        ["", WORD.sig + "=", WORD.sig[:-1] + "_", "+" * 86],
        ids=["none", "padded", "slack", "alphabet"],
    )
    def test_a_signature_has_one_text(self, sig):
        assert refused(Endorsement.from_json, WORD.to_json() | {"sig": sig}) == "bad_encoding"

    @pytest.mark.parametrize("epoch", [1, EPOCH_MAX])
    def test_the_first_and_the_last_epoch_are_epochs(self, epoch):
        assert EPOCH_MAX == 2**53 - 1
        assert Card.from_json(C.at(epoch).card().to_json()).epoch == epoch

    def test_a_display_name_has_at_most_its_bytes(self):
        card = PIN.card.to_json()
        assert Card.from_json(card | {"name": "\u00e9" * 64}).name == "\u00e9" * 64
        assert refused(Card.from_json, card | {"name": "\u00e9" * 65}) == "out_of_bounds"
        with pytest.raises(Invalid):
            Card.of(B.certificate, 1, name="x" * (NAME_BYTES_MAX + 1))

    def test_without_a_display_name_the_node_is_shown(self):
        assert Card.from_json(PIN.card.to_json() | {"name": ""}).name == "b"
        assert Card.of(B.certificate, 1).name == "b"

    @pytest.mark.parametrize("epoch", [0, -1, 2**53])
    def test_no_card_is_made_for_what_is_no_epoch(self, epoch):
        with pytest.raises(Invalid):
            Card.of(B.certificate, epoch)

    def test_a_certificate_must_be_that_of_the_node(self):
        said = PIN.card.to_json() | {"certificate": C.certificate.pem, "endorsements": []}
        assert refused(Card.from_json, said) == "name_mismatch"
        swapped = PIN.to_json() | {"certificate": Node("b").certificate.pem, "endorsements": []}
        assert refused(Pin.from_json, swapped) == "fingerprint_mismatch"

    def test_a_certificate_that_is_none_is_refused_as_that(self):
        said = PIN.card.to_json() | {"certificate": "hello"}
        assert refused(Card.from_json, said) == "malformed_certificate"

    @pytest.mark.parametrize(
        "foreign",
        [A.of(C), A.of(B.at(4)), A.of(Node("b", 5))],
        ids=["another node", "another epoch", "another certificate"],
    )
    def test_every_endorsement_on_a_card_is_for_its_subject(self, foreign):
        said = PIN.to_json() | {"endorsements": [WORD.to_json(), foreign.to_json()]}
        assert refused(Pin.from_json, said) == "wrong_subject"
        assert refused(check_subject, foreign, PIN) == "wrong_subject"

    def test_an_array_of_cards_is_read_whole_or_not_at_all(self):
        cards = (PIN.card, C.card())
        text = json.dumps([card.to_json() for card in cards])
        assert read_cards(text) == cards
        assert read_cards(json.dumps(PIN.card.to_json())) == cards[:1]
        assert read_cards("[]") == ()
        assert refused(read_cards, text[:-1] + ",1]") == "malformed_record"
        assert refused(read_cards, "[" + "1," * MEMBERS_MAX + "1]") == "too_large"
        assert refused(read_cards, '"x"') == "malformed_record"


class TestBounds:
    def test_the_largest_record_that_keeps_every_bound_fits(self):
        """So that what was taken can be written, and read again."""
        longest = replace(
            WORD, by="e" * 63, by_epoch=EPOCH_MAX, node="n" * 63, epoch=EPOCH_MAX, issued_at=INTEGER_MAX
        )  # fmt: skip
        pin = Pin(
            "n" * 63, "\0" * NAME_BYTES_MAX, EPOCH_MAX, "x" * 4096, WORD.fingerprint, INTEGER_MAX,
            (longest,) * ENDORSEMENTS_MAX,
        )  # fmt: skip
        lines = pin.certificate_pem[:-64] + "\n" * 64
        assert len(canonical(pin.to_json() | {"certificate": lines})) <= RECORD_BYTES_MAX

    def test_sixteen_endorsements_are_the_last_that_fit(self):
        words = [Node(f"e{number}").of(B).to_json() for number in range(ENDORSEMENTS_MAX + 1)]
        said = PIN.to_json()
        assert len(Pin.from_json(said | {"endorsements": words[:-1]}).endorsements) == 16
        assert refused(Pin.from_json, said | {"endorsements": words}) == "too_many_endorsements"


def tampered(word, **fields):
    """The word with other content under the signature that it has."""
    return replace(word, **fields)


TAMPERED = {
    "another node": {"node": "c"},
    "another epoch": {"epoch": 6},
    "another certificate": {"fingerprint": C.certificate.fingerprint},
    "another time": {"issued_at": NOW + 1},
    "another signature": {"sig": A.of(C).sig},
    "the signature of another type": {"sig": A.sign(Removal.TAG, WORD.body)},
    "the signature of a stranger": {"sig": C.sign(Endorsement.TAG, WORD.body)},
}


class TestEndorsement:
    def test_the_word_of_a_pinned_node_counts(self):
        check_endorsement(WORD, anchors(A), NOW)

    def test_the_own_word_counts(self):
        check_endorsement(ME.of(B), anchors(own=ME), NOW)

    @pytest.mark.parametrize("change", TAMPERED.values(), ids=TAMPERED)
    def test_one_that_was_tampered_with_does_not(self, change):
        word = tampered(WORD, **change)
        assert refused(check_endorsement, word, anchors(A, C), NOW) == "bad_signature"

    def test_one_said_to_be_by_another_does_not(self):
        word = tampered(WORD, by="c", by_epoch=1)
        assert refused(check_endorsement, word, anchors(A, C), NOW) == "bad_signature"

    def test_nobody_vouches_for_himself(self):
        assert refused(check_endorsement, B.of(B), anchors(B), NOW) == "self_endorsement"
        assert refused(check_endorsement, ME.of(ME), anchors(own=ME), NOW) == "self_endorsement"

    def test_a_stranger_vouches_for_nobody(self):
        assert refused(check_endorsement, WORD, anchors(C, own=ME), NOW) == "unknown_endorser"

    def test_a_namesake_of_a_pinned_node_vouches_for_nobody(self):
        word = Node("a", 3).of(B)
        assert refused(check_endorsement, word, anchors(A), NOW) == "bad_signature"

    @pytest.mark.parametrize("epoch", [1, 2, 4, EPOCH_MAX])
    def test_a_word_counts_in_the_current_epoch_of_who_gave_it_alone(self, epoch):
        assert refused(check_endorsement, A.at(epoch).of(B), anchors(A), NOW) == "stale_epoch"
        assert refused(check_endorsement, WORD, anchors(A.at(epoch)), NOW) == "stale_epoch"

    def test_a_word_counts_while_the_certificate_of_who_gave_it_is_valid(self):
        last = A.certificate.not_after_ms
        check_endorsement(WORD, anchors(A), last)
        assert refused(check_endorsement, WORD, anchors(A), last + 1) == "expired"
        assert refused(check_endorsement, ME.of(B), anchors(own=ME), last + 1) == "expired"

    def test_a_pin_that_has_the_own_name_does_not_speak_for_this_node(self):
        other = Node("me", 2)
        assert (
            refused(check_endorsement, other.of(B), anchors(other, own=ME), NOW) == "bad_signature"
        )


REMOVALS = {
    "another node": ({"node": "c"}, "not_pinned"),
    "another epoch": ({"epoch": 6}, "other_epoch"),
    "an invented epoch": ({"epoch": EPOCH_MAX}, "other_epoch"),
    "another epoch of the remover": ({"by_epoch": 4}, "stale_epoch"),
    "another remover": ({"by": "c", "by_epoch": 1}, "bad_signature"),
    "an unknown remover": ({"by": "x"}, "unknown_endorser"),
    "another time": ({"removed_at": NOW + 1}, "bad_signature"),
    "another signature": ({"sig": A.against(C).sig}, "bad_signature"),
    "the signature of another type": ({"sig": A.sign(Endorsement.TAG, PROOF.body)}, "bad_signature"),
    "the signature of a stranger": ({"sig": C.sign(Removal.TAG, PROOF.body)}, "bad_signature"),
}  # fmt: skip


class TestRemoval:
    def test_a_pinned_node_removes_exactly_what_is_pinned(self):
        check_removal(PROOF, PIN, anchors(A, B, C), NOW)

    def test_this_node_removes_too(self):
        check_removal(ME.against(B), PIN, anchors(B, own=ME), NOW)

    def test_a_node_may_remove_itself(self):
        check_removal(B.against(B), PIN, anchors(B), NOW)

    @pytest.mark.parametrize("change,rule", REMOVALS.values(), ids=REMOVALS)
    def test_a_tampered_proof_removes_nobody(self, change, rule):
        proof = tampered(PROOF, **change)
        assert refused(check_removal, proof, PIN, anchors(A, B, C), NOW) == rule

    def test_of_an_unknown_peer_no_proof_is_taken(self):
        """It would bar the admission of whoever comes under that name later."""
        assert refused(check_removal, PROOF, None, anchors(A), NOW) == "not_pinned"

    def test_a_proof_says_nothing_of_the_node_that_came_back(self):
        again = B.at(6)
        assert refused(check_removal, PROOF, again.pin(), anchors(A, again), NOW) == "other_epoch"

    def test_a_remover_whose_certificate_has_expired_removes_nobody(self):
        now = A.certificate.not_after_ms + 1
        assert refused(check_removal, PROOF, PIN, anchors(A, B), now) == "expired"
