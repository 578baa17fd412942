"""What a word that counts changes: each decision takes what is pinned and answers the new pin, or None for no change.

No decision lowers an epoch, swaps a certificate or, on a third party's word, renames a peer. Every endorsement that is
kept was verified first, by who is pinned at that moment. It may not know where pins are kept.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from broker.errors import Refused, Untrusted
from broker.rules.certificate import check_valid
from broker.rules.signed import canonical
from broker.rules.strict import check_display
from broker.rules.trust import ENDORSEMENTS_MAX, MEMBERS_MAX, Card, Pin, check_subject
from broker.rules.vouch import Anchors, check_endorsement
from broker.rules.word import Endorsement, Removal

#: Up to which epoch others' word is taken. One bad member could else have a peer pinned in the last epoch there is and
#: then remove it, and no higher one would be left to come back with; so the operator can always pin a higher one.
VOUCHED_EPOCH_MAX = 2**32


def pinned(
    known: Pin | None, removal: Removal | None, new: Pin, anchors: Anchors, now_ms: int
) -> Pin | None:
    """Pin `new`: on the operator's own word, so nobody needs to vouch for it; what it carries is verified all the same.

    The same certificate in the same epoch only merges endorsements; in a higher one it replaces the pin, and what was
    said of the old epoch goes with it; in a lower one nothing changes. Raises Refused(`own_node`,
    `certificate_changed`, `removed`, `too_many_members`), and as `endorsed` and `check_valid`.
    """
    if anchors.is_own(new.node):
        raise Refused("own_node", f"{new.node} is this node itself")
    if known is not None:
        if known.fingerprint != new.fingerprint:
            raise Refused(
                "certificate_changed",
                f"{new.node} is pinned with another certificate: remove it first",
            )
        if new.epoch < known.epoch:
            return None
    if removal is not None and new.epoch <= removal.epoch:
        raise Refused(
            "removed", f"{new.node} was removed in epoch {removal.epoch}: a higher one is needed"
        )
    if known is not None and new.epoch == known.epoch:
        return endorsed(known, new.endorsements, anchors, now_ms)
    if known is None and len(anchors.pins) >= MEMBERS_MAX:
        raise Refused("too_many_members", f"{MEMBERS_MAX} peers are pinned: remove one first")
    check_valid(new.certificate, now_ms)
    bare = replace(new, endorsements=())
    return endorsed(bare, new.endorsements, anchors, now_ms) or bare


def endorsed(known: Pin, more: Iterable[Endorsement], anchors: Anchors, now_ms: int) -> Pin | None:
    """Add endorsements; of one slot (endorser, its epoch, the peer's epoch) the first stays.

    Raises Untrusted as `check_subject` and `check_endorsement`, Refused("too_many_endorsements"): then none is added.
    A full peer makes room by letting go of words given in epochs that are over.
    """
    kept = {endorsement.slot: endorsement for endorsement in known.endorsements}
    fresh = {}
    for endorsement in more:
        check_subject(endorsement, known)
        if endorsement.slot not in kept and endorsement.slot not in fresh:
            check_endorsement(endorsement, anchors, now_ms)
            fresh[endorsement.slot] = endorsement
    if not fresh:
        return None
    if len(kept) + len(fresh) > ENDORSEMENTS_MAX:
        kept = {slot: word for slot, word in kept.items() if anchors.is_current(word)}
    if len(kept) + len(fresh) > ENDORSEMENTS_MAX:
        raise Refused(
            "too_many_endorsements", f"{known.node} has {ENDORSEMENTS_MAX} endorsements already"
        )
    return replace(known, endorsements=(*kept.values(), *fresh.values()))


def renamed(known: Pin, name: str) -> Pin | None:
    """Show the peer under another name, or its node's where it is empty; raise Invalid where it is out of bounds."""
    shown = check_display(name) or known.node
    return None if shown == known.name else replace(known, name=shown)


def standing(subject: Card | Pin, anchors: Anchors, now_ms: int) -> tuple[Endorsement, ...]:
    """Those of the subject's endorsements that count now, one a slot."""
    found: dict[tuple[str, int, int], Endorsement] = {}
    for endorsement in subject.endorsements:
        if endorsement.slot not in found:
            try:
                check_endorsement(endorsement, anchors, now_ms)
            except Untrusted:
                continue
            found[endorsement.slot] = endorsement
    return tuple(found.values())


@dataclass(frozen=True)
class Admitted:
    """What a list of cards leads to: the pins to make, in this order, since each rests on those before it; and by
    which rule a card was not taken.
    """

    pins: tuple[Pin, ...]
    refused: Mapping[Card, str]


def admissible(
    cards: Iterable[Card], removals: Mapping[str, Removal], anchors: Anchors, now_ms: int
) -> Admitted:
    """Whom the pinned members vouch for, and whom those vouch for, and so on until nothing follows any more.

    A card for which nobody vouches is refused `unvouched`, one above VOUCHED_EPOCH_MAX `epoch_too_high`; the other
    rules are those of `pinned`. A known peer keeps the name that it has here. The order of the cards does not matter:
    they are taken in one of our own, known peers first, so that a word given in an epoch that one of these cards ends
    admits nobody. In one epoch a peer is changed at most twice: when it comes in, and when all are in who vouch for it.
    """
    pins = dict(anchors.pins)
    trusted = replace(anchors, pins=pins)
    steps: list[Pin] = []
    refused: dict[Card, str] = {}
    listed = sorted(
        cards,
        key=lambda card: (
            card.node not in pins,
            card.node,
            -card.epoch,
            canonical(card.to_json()),
        ),
    )
    waiting: defaultdict[str, list[Card]] = defaultdict(list)
    for card in listed:
        for by in dict.fromkeys(endorsement.by for endorsement in card.endorsements):
            waiting[by].append(card)

    def settle(card: Card) -> None:
        try:
            new = _vouched(card, pins.get(card.node), removals.get(card.node), trusted, now_ms)
        except (Refused, Untrusted) as wrong:
            refused[card] = wrong.rule
            return
        refused.pop(card, None)
        if new is not None:
            pins[card.node] = new
            steps.append(new)

    turns = deque(listed)
    while turns:
        card = turns.popleft()
        if not _is_held(card, pins):
            settle(card)
            if _is_held(card, pins):
                turns.extend(waiting[card.node])
    # Only now is known of everybody what those who came in say of each other.
    for card in listed:
        settle(card)
    return Admitted(tuple(steps), refused)


def _is_held(card: Card, pins: Mapping[str, Pin]) -> bool:
    known = pins.get(card.node)
    return known is not None and known.fingerprint == card.fingerprint and known.epoch >= card.epoch


def _vouched(
    card: Card, known: Pin | None, removal: Removal | None, anchors: Anchors, now_ms: int
) -> Pin | None:
    words = standing(card, anchors, now_ms)
    shown = Pin.of(card, now_ms)
    new = replace(shown, name=known.name if known else card.name, endorsements=words)
    change = pinned(known, removal, new, anchors, now_ms)
    if change is not None and not words:
        raise Untrusted("unvouched", f"no trusted member vouches for {card.node}")
    if change is not None and change.epoch > max(VOUCHED_EPOCH_MAX, known.epoch if known else 0):
        raise Refused("epoch_too_high", f"only the operator pins {card.node} in so high an epoch")
    return change
