"""What a word changes: pins that only climb, endorsements that were verified, and whom a list of cards lets in."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import Invalid, Refused, Untrusted
from broker.rules.admission import (
    VOUCHED_EPOCH_MAX,
    admissible,
    endorsed,
    pinned,
    renamed,
    standing,
)
from broker.rules.strict import EPOCH_MAX, NAME_BYTES_MAX
from broker.rules.trust import ENDORSEMENTS_MAX, MEMBERS_MAX
from broker.rules.vouch import Anchors
from tests.nodes import NOW, Node, anchors

A, B, C, D, ME = Node("a"), Node("b"), Node("c"), Node("d"), Node("me")
CROWD = [Node(f"e{number:02}") for number in range(ENDORSEMENTS_MAX + 1)]
AFTER = NOW + 5


def refused(call, *args):
    with pytest.raises((Refused, Untrusted)) as found:
        call(*args)
    assert str(found.value).isprintable()
    return found.value.rule


def pin(known, new, *trusted, removal=None, own=ME, now_ms=NOW):
    return pinned(known, removal, new, anchors(*trusted, own=own), now_ms)


class TestPin:
    def test_a_stranger_is_pinned_as_the_operator_gives_it(self):
        assert pin(None, B.pin()) == B.pin()

    def test_what_vouches_for_it_is_kept_with_it(self):
        assert pin(None, B.pin(A.of(B), ME.of(B)), A) == B.pin(A.of(B), ME.of(B))

    @pytest.mark.parametrize(
        "word,rule",
        [
            (A.of(C), "wrong_subject"),
            (A.of(B.at(2)), "wrong_subject"),
            (D.of(B), "unknown_endorser"),
            (A.at(2).of(B), "stale_epoch"),
            (replace(C.of(B), issued_at=NOW + 1), "bad_signature"),
            (B.of(B), "self_endorsement"),
        ],
    )
    def test_what_does_not_count_is_never_kept(self, word, rule):
        assert refused(pin, None, B.pin(A.of(B), word), A, B, C) == rule
        assert refused(pin, B.pin(), B.pin(A.of(B), word), A, B, C) == rule
        assert refused(endorsed, B.pin(), [A.of(B), word], anchors(A, B, C), NOW) == rule

    def test_the_same_again_changes_nothing(self):
        known = B.pin(A.of(B))
        again = replace(B.pin(A.of(B), name="other"), pinned_at=AFTER)
        assert pin(known, again, A, B) is None
        assert pin(known, replace(again, endorsements=()), A, B) is None

    def test_the_same_certificate_and_epoch_adds_only_endorsements(self):
        again = replace(B.pin(C.of(B), A.of(B), name="other"), pinned_at=AFTER)
        assert pin(B.pin(A.of(B)), again, A, B, C) == B.pin(A.of(B), C.of(B))

    def test_a_higher_epoch_replaces_and_forgets_what_was_said_of_the_old_one(self):
        new = replace(B.at(7).pin(C.of(B.at(7))), pinned_at=AFTER)
        assert pin(B.pin(A.of(B)), new, A, B, C) == new

    def test_a_lower_epoch_changes_nothing(self):
        assert pin(B.at(7).pin(), B.at(6).pin(A.of(B.at(6))), A, B.at(7)) is None
        assert pin(B.at(EPOCH_MAX).pin(), B.pin(), B.at(EPOCH_MAX)) is None

    @pytest.mark.parametrize("epoch", [1, 2, 3])
    def test_another_certificate_is_refused_in_every_epoch(self, epoch):
        other = Node("b", epoch)
        assert refused(pin, B.at(2).pin(), other.pin(), B) == "certificate_changed"

    @pytest.mark.parametrize("epoch,back", [(1, False), (4, False), (5, True), (EPOCH_MAX, True)])
    def test_who_was_removed_comes_back_with_a_higher_epoch(self, epoch, back):
        proof = A.against(B.at(4))
        new = B.at(epoch).pin()
        if back:
            assert pin(None, new, A, removal=proof) == new
        else:
            assert refused(lambda: pin(None, new, A, removal=proof)) == "removed"

    def test_a_removal_that_is_over_bars_nothing_old_either(self):
        """Late gossip of an epoch before the removal meets the pin of one after it: nothing, and quietly."""
        assert pin(B.at(5).pin(), B.at(3).pin(), B.at(5), removal=A.against(B.at(4))) is None

    def test_a_node_does_not_pin_itself(self):
        assert refused(pin, None, ME.pin()) == "own_node"
        assert refused(pin, None, Node("me").pin()) == "own_node"

    def test_the_last_place_is_given_and_none_after_it(self):
        crowd = dict.fromkeys((f"n{number}" for number in range(MEMBERS_MAX - 1)), A.pin())
        assert pinned(None, None, B.pin(), Anchors(crowd), NOW) == B.pin()
        full = Anchors(crowd | {"c": C.pin()})
        assert refused(pinned, None, None, B.pin(), full, NOW) == "too_many_members"
        assert pinned(C.pin(), None, C.at(2).pin(), full, NOW) == C.at(2).pin()

    def test_a_certificate_is_pinned_while_it_is_valid(self):
        begin, end = B.certificate.not_before_ms, B.certificate.not_after_ms
        for moment in (begin, end):
            assert pin(None, B.pin(), now_ms=moment) == B.pin()
        assert refused(lambda: pin(None, B.pin(), now_ms=begin - 1)) == "not_yet_valid"
        assert refused(lambda: pin(None, B.pin(), now_ms=end + 1)) == "expired"


class TestEndorse:
    def test_a_batch_is_one_change_with_each_word_once(self):
        """Old, new, and new again."""
        known = B.pin(A.of(B))
        made = endorsed(known, [A.of(B), C.of(B), C.of(B)], anchors(A, B, C), NOW)
        assert made == B.pin(A.of(B), C.of(B))

    def test_nothing_new_is_no_change(self):
        known = B.pin(A.of(B))
        for more in ([], [A.of(B)], [A.of(B), A.of(B)]):
            assert endorsed(known, more, anchors(A, B), NOW) is None

    def test_to_sign_the_same_anew_is_no_news(self):
        assert endorsed(B.pin(A.of(B)), [A.of(B, AFTER)], anchors(A, B), AFTER) is None

    def test_of_two_words_that_come_together_the_first_stays(self):
        made = endorsed(B.pin(), [A.of(B), A.of(B, AFTER)], anchors(A, B), AFTER)
        assert made == B.pin(A.of(B))

    def test_a_word_given_in_a_new_epoch_is_news(self):
        made = endorsed(B.pin(A.of(B)), [A.at(2).of(B)], anchors(A.at(2), B), NOW)
        assert made == B.pin(A.of(B), A.at(2).of(B))

    def test_sixteen_are_kept_and_the_next_is_refused(self):
        words = [node.of(B) for node in CROWD]
        trusted = anchors(*CROWD)
        full = endorsed(B.pin(), words[:-1], trusted, NOW)
        assert full == B.pin(*words[:-1])
        assert refused(endorsed, full, words[-1:], trusted, NOW) == "too_many_endorsements"
        assert refused(endorsed, B.pin(), words, trusted, NOW) == "too_many_endorsements"
        assert endorsed(full, words[:3], trusted, NOW) is None

    def test_words_of_epochs_that_are_over_make_room(self):
        words = [node.of(B) for node in CROWD]
        trusted = anchors(CROWD[0].at(2), *CROWD[2:])
        made = endorsed(B.pin(*words[:-1]), words[-1:], trusted, NOW)
        assert made == B.pin(*words[2:])

    def test_of_all_that_is_said_what_counts_stands(self):
        said = (D.of(B), A.of(B), B.of(B), A.at(2).of(B), A.of(B, AFTER), C.of(B))
        assert standing(B.card(*said), anchors(A, C), NOW) == (A.of(B), C.of(B))

    def test_a_forged_word_does_not_keep_the_true_one_out(self):
        forged = replace(A.of(B), issued_at=NOW + 1)
        assert standing(B.card(forged, A.of(B)), anchors(A), NOW) == (A.of(B),)


class TestRename:
    def test_another_name_is_a_change(self):
        assert renamed(B.pin(A.of(B)), "Bob's") == B.pin(A.of(B), name="Bob's")

    def test_the_same_name_is_none(self):
        assert renamed(B.pin(name="Bob's"), "Bob's") is None

    def test_no_name_is_the_name_of_the_node(self):
        assert renamed(B.pin(), "") is None
        assert renamed(B.pin(name="Bob's"), "") == B.pin()

    @pytest.mark.parametrize("name", ["x" * (NAME_BYTES_MAX + 1), "\ud800"])
    def test_a_name_outside_its_bounds_is_refused(self, name):
        with pytest.raises(Invalid):
            renamed(B.pin(), name)


def let_in(cards, *trusted, removals=(), own=ME, now_ms=NOW):
    barred = {removal.node: removal for removal in removals}
    return admissible(cards, barred, anchors(*trusted, own=own), now_ms)


class TestAdmission:
    def test_whom_a_member_vouches_for_is_let_in(self):
        found = let_in([C.card(A.of(C))], A)
        assert found.pins == (C.pin(A.of(C)),)
        assert not found.refused

    def test_whom_this_node_vouches_for_is_let_in(self):
        assert let_in([C.card(ME.of(C))]).pins == (C.pin(ME.of(C)),)

    def test_whom_those_vouch_for_is_let_in_with_them(self):
        """A endorses B, B endorses C, C is listed first."""
        cards = [C.card(B.of(C)), B.card(A.of(B))]
        for listed in (cards, cards[::-1]):
            assert let_in(listed, A).pins == (B.pin(A.of(B)), C.pin(B.of(C)))
            assert not let_in(listed, A).refused

    def test_a_chain_as_long_as_there_is_room_is_let_in_at_once(self):
        chain = [A, *CROWD]
        cards = [node.card(before.of(node)) for before, node in pairwise(chain)]
        found = let_in(cards[::-1], A)
        assert [pin.node for pin in found.pins] == [node.node for node in CROWD]
        assert not found.refused

    def test_who_vouch_only_for_each_other_stay_out(self):
        cards = [B.card(C.of(B)), C.card(B.of(C))]
        found = let_in(cards, A)
        assert found.pins == ()
        assert found.refused == dict.fromkeys(cards, "unvouched")

    @pytest.mark.parametrize(
        "card",
        [
            C.card(),
            C.card(C.of(C)),
            C.card(D.of(C)),
            C.card(A.at(2).of(C)),
            C.card(replace(A.of(C), issued_at=NOW + 1)),
        ],
        ids=["nobody", "itself", "a stranger", "another epoch of a member", "a forged word"],
    )
    def test_for_whom_nobody_vouches_stays_out(self, card):
        found = let_in([card], A)
        assert (found.pins, found.refused) == ((), {card: "unvouched"})

    def test_of_what_is_said_only_what_counts_is_kept(self):
        card = C.card(D.of(C), A.of(C), A.at(9).of(C))
        assert let_in([card], A).pins == (C.pin(A.of(C)),)

    def test_another_certificate_under_a_known_name_stays_out_whoever_vouches(self):
        other = Node("b", 9)
        card = other.card(A.of(other))
        found = let_in([card], A, B)
        assert (found.pins, found.refused) == ((), {card: "certificate_changed"})

    def test_a_known_peer_is_not_renamed_by_a_card(self):
        known = replace(B.pin(name="here"), pinned_at=1)
        trusted = Anchors({"a": A.pin(), "b": known})
        merged = admissible([B.card(A.of(B), name="there")], {}, trusted, NOW)
        assert merged.pins == (replace(known, endorsements=(A.of(B),)),)
        raised = admissible([B.at(2).card(A.of(B.at(2)), name="there")], {}, trusted, NOW)
        assert raised.pins == (B.at(2).pin(A.of(B.at(2)), name="here"),)

    def test_a_higher_epoch_needs_a_word_for_it(self):
        card = B.at(2).card()
        assert let_in([card], A, B).refused == {card: "unvouched"}
        assert let_in([B.at(2).card(A.of(B.at(2)))], A, B).pins == (B.at(2).pin(A.of(B.at(2))),)

    def test_no_member_uses_up_the_epochs_of_another(self):
        """Else it had B pinned in the last epoch, removed it, and nothing could bring B back."""
        for node in (B.at(VOUCHED_EPOCH_MAX + 1), B.at(EPOCH_MAX)):
            card = node.card(A.of(node))
            for trusted in ([A], [A, B]):
                found = let_in([card], *trusted)
                assert (found.pins, found.refused) == ((), {card: "epoch_too_high"})
        highest = B.at(VOUCHED_EPOCH_MAX)
        assert let_in([highest.card(A.of(highest))], A, B).pins == (highest.pin(A.of(highest)),)
        again = B.at(VOUCHED_EPOCH_MAX + 1)
        assert pin(None, again.pin(), A, removal=A.against(highest)) == again.pin()

    def test_of_whom_the_operator_pinned_in_a_high_epoch_words_are_taken(self):
        high = B.at(EPOCH_MAX)
        assert let_in([high.card(A.of(high))], A, high).pins == (high.pin(A.of(high)),)

    def test_a_lower_epoch_changes_nothing_quietly(self):
        found = let_in([B.card(A.of(B))], A, B.at(2))
        assert (found.pins, found.refused) == ((), {})

    def test_the_new_epoch_of_a_member_counts_for_what_follows(self):
        """D comes back in a new epoch, and in it vouches for C; its old word for B is over by then."""
        new = D.at(2)
        cards = [B.card(D.of(B)), C.card(new.of(C)), new.card(A.of(new))]
        for listed in (cards, cards[::-1]):
            found = let_in(listed, A, D)
            assert found.pins == (new.pin(A.of(new)), C.pin(new.of(C)))
            assert found.refused == {cards[0]: "unvouched"}

    def test_a_new_epoch_that_comes_late_counts_all_the_same(self):
        """D comes back only on the word of B, who is let in by the same cards; C waits for D."""
        new = D.at(2)
        cards = [C.card(new.of(C)), new.card(B.of(new)), B.card(A.of(B))]
        found = let_in(cards, A, D)
        assert [(pin.node, pin.epoch) for pin in found.pins] == [("b", 1), ("d", 2), ("c", 1)]
        assert not found.refused

    def test_of_two_epochs_the_higher_one_is_pinned_at_once(self):
        """So that one admission is one change."""
        cards = [B.card(A.of(B)), B.at(2).card(A.of(B.at(2)))]
        for listed in (cards, cards[::-1]):
            assert let_in(listed, A).pins == (B.at(2).pin(A.of(B.at(2))),)

    def test_of_two_names_the_same_one_is_shown_whichever_comes_first(self):
        cards = [B.card(A.of(B), name=name) for name in ("one", "other")]
        assert let_in(cards, A).pins == let_in(cards[::-1], A).pins

    def test_who_was_removed_stays_out_in_that_epoch(self):
        gone = A.against(C)
        card = C.card(A.of(C))
        assert let_in([card], A, removals=[gone]).refused == {card: "removed"}
        again = C.at(2)
        assert let_in([again.card(A.of(again))], A, removals=[gone]).pins

    def test_who_is_barred_lets_nobody_in(self):
        cards = [C.card(B.of(C)), B.card(A.of(B))]
        assert let_in(cards, A, removals=[A.against(B)]).pins == ()

    def test_the_own_card_is_not_taken(self):
        card = ME.card(A.of(ME))
        assert let_in([card], A).refused == {card: "own_node"}

    def test_an_expired_member_lets_nobody_in_and_an_expired_card_is_not_let_in(self):
        late = A.certificate.not_after_ms + 1
        card = C.card(A.of(C))
        assert let_in([card], A, now_ms=late).refused == {card: "expired"}

    def test_members_beyond_the_last_place_stay_out(self):
        crowd = dict.fromkeys((f"n{number}" for number in range(MEMBERS_MAX - 2)), A.pin())
        cards = [B.card(A.of(B)), C.card(A.of(C))]
        found = admissible(cards, {}, Anchors(crowd | {"a": A.pin()}), NOW)
        assert found.pins == (B.pin(A.of(B)),)
        assert found.refused == {cards[1]: "too_many_members"}


NODES = [A, B, C, D]
words = st.tuples(st.sampled_from(NODES), st.sampled_from(NODES)).filter(
    lambda pair: pair[0] != pair[1]
)
webs = st.lists(words, max_size=8, unique=True)


def cards_of(web):
    """Each node's card, with what the web says of it."""
    return [node.card(*(by.of(node) for by, subject in web if subject is node)) for node in NODES]


class TestConvergence:
    @given(webs, st.permutations(NODES))
    def test_the_order_of_the_cards_does_not_matter(self, web, order):
        cards = cards_of(web)
        listed = [cards[NODES.index(node)] for node in order]
        assert let_in(listed, own=A) == let_in(cards, own=A)

    @given(webs)
    def test_in_comes_exactly_who_is_reached_by_words(self, web):
        reached, before = {A}, set()
        while reached != before:
            before = set(reached)
            reached |= {subject for by, subject in web if by in reached}
        assert {pin.node for pin in let_in(cards_of(web), own=A).pins} == {
            node.node for node in reached - {A}
        }

    @given(webs, st.lists(st.integers(0, len(NODES) - 1), max_size=20))
    def test_cards_that_come_one_by_one_and_again_lead_where_all_at_once_do(self, web, gossip):
        cards = cards_of(web)
        pins = {}
        for number in [*gossip, *list(range(len(NODES))) * len(NODES)]:
            trusted = replace(anchors(own=A), pins=pins)
            pins |= {pin.node: pin for pin in admissible([cards[number]], {}, trusted, NOW).pins}
        at_once = {pin.node: pin for pin in let_in(cards, own=A).pins}
        assert {node: (pin.epoch, slots(pin)) for node, pin in pins.items()} == {
            node: (pin.epoch, slots(pin)) for node, pin in at_once.items()
        }

    @given(webs)
    def test_each_step_stands_on_those_before_it_and_all_of_them_on_themselves(self, web):
        """So that a store may make them one by one, two a peer at most; and then nothing is left to do."""
        cards = cards_of(web)
        pins = {}
        steps = let_in(cards, own=A).pins
        assert all(count <= 2 for count in Counter(step.node for step in steps).values())
        for step in steps:
            trusted = replace(anchors(own=A), pins=pins)
            assert pinned(pins.get(step.node), None, step, trusted, NOW) == step
            pins[step.node] = step
        assert admissible(cards, {}, replace(anchors(own=A), pins=pins), NOW).pins == ()

    @given(
        st.lists(
            st.tuples(st.integers(1, 3), st.sets(st.sampled_from([A, C, D]))),
            min_size=1,
            max_size=6,
        ),
        st.randoms(use_true_random=False),
    )
    def test_pins_of_one_certificate_end_alike_in_any_order_and_however_often(self, said, chance):
        trusted = anchors(A, C, D)
        pins = [
            B.at(epoch).pin(*(by.of(B.at(epoch)) for by in (A, C, D) if by in some))
            for epoch, some in said
        ]
        ends = []
        for _ in range(2):
            known = None
            chance.shuffle(pins)
            for new in [*pins, chance.choice(pins)]:
                before, known = known, pinned(known, None, new, trusted, NOW) or known
                assert before is None or before.epoch <= known.epoch
            ends.append((known.epoch, slots(known)))
        highest = max(epoch for epoch, _ in said)
        spoken = {by for epoch, some in said for by in some if epoch == highest}
        assert ends == [(highest, {(by.node, 1, highest) for by in spoken})] * 2


def slots(pin):
    return {word.slot for word in pin.endorsements}
