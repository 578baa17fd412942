"""`broker trust`: who this node is, whom it trusts, and what it told of that.

Everything but `announcements` works without Redis: what was changed stands, and is told once Redis is there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from broker.cli.exits import UNVERIFIED, Exit, judge
from broker.cli.lines import read_whole
from broker.cli.members import (
    ANNOUNCED_COLUMNS,
    COLUMNS,
    line_of,
    member_json,
    print_card,
    print_removal,
)
from broker.cli.options import FormatOption
from broker.cli.output import Format, note, print_list, warn
from broker.errors import BrokerError, Invalid, Refused, Untrusted
from broker.rules.signed import parse
from broker.rules.strict import EPOCH_MAX, RECORD_BYTES_MAX
from broker.rules.trust import MEMBERS_MAX, read_cards
from broker.rules.word import Removal
from broker.text import to_json
from broker.trust import Trust, read_announcements, read_card

trust = typer.Typer(
    help="Who this node is, whom it trusts, and what it told of that.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

#: How many of the cards that were not admitted are told on stderr.
NAMED_MAX = 8

FileArgument = Annotated[
    str, typer.Argument(metavar="FILE|-", help="- is stdin.", show_default=False)
]
NodeArgument = Annotated[str, typer.Argument(metavar="NODE", show_default=False)]
EpochOption = Annotated[int | None, typer.Option(metavar="N", min=1, max=EPOCH_MAX)]


@trust.command()
def init(
    epoch: EpochOption = None,
    output: FormatOption = Format.table,
) -> None:
    """Give this node its identity, once. A key and a certificate that names it; as json, the card for the others.

    The key is never replaced. A node that was removed comes back with a higher --epoch.
    """
    with _telling():
        here, is_new = Trust.init(epoch=epoch)
        if not is_new:
            note(f"{here.identity.node} has its identity already")
        if here.identity.expired:
            warn(
                "its certificate has expired, so its word counts nowhere: docs/trust.md tells how to get a new one"
            )
        print_card(here, here.identity.card, output)
        _announce(here)


@trust.command()
def show(
    node: Annotated[str | None, typer.Argument(metavar="[NODE]", show_default=False)] = None,
    cards: Annotated[
        bool, typer.Option("--cards", help="All that can be passed on, as `admit` takes it.")
    ] = False,
    output: FormatOption = Format.table,
) -> None:
    """List this node and whom it trusts. Of one NODE all that is known; as json, the card that others take."""
    if cards and node is not None:
        raise Invalid("--cards is for all of them: show NODE -o json prints one")
    with _opened() as here:
        if node is not None:
            print_card(here, here.card(node), output)
        elif cards:
            print(to_json([card.to_json() for card in here.cards()], indent=2))
        else:
            print_list((member_json(here, card) for card in here.cards()), output, COLUMNS, "")


@trust.command()
def pin(
    file: FileArgument,
    epoch: EpochOption = None,
    name: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What to call it; for people only.")
    ] = None,
    output: FormatOption = Format.table,
) -> None:
    """Trust a peer on your own word. FILE is its card, or its certificate in PEM: compare the fingerprint first.

    Without --epoch it is the card's, and 1 for a certificate.
    """
    with _opened() as here:
        raw = _read(file, RECORD_BYTES_MAX)
        with _said_of(file):
            pinned, left_out = here.pin(read_card(raw, epoch=epoch), name=name)
        for by, rule in left_out.items():
            note(f"left out: the endorsement by {by} does not count here ({rule})")
        if not pinned.change:
            note(f"{pinned.pin.node} is already pinned, in epoch {pinned.pin.epoch}")
        if output is not Format.table:
            print_card(here, pinned.pin.card, output)
        elif pinned.change:
            print(line_of(pinned))


@trust.command()
def admit(file: FileArgument, output: FormatOption = Format.table) -> None:
    """Trust whom trusted peers vouch for. FILE is a card, or a JSON array of cards that may rest on each other."""
    with _opened() as here:
        raw = _read(file, MEMBERS_MAX * RECORD_BYTES_MAX)
        with _said_of(file):
            found = here.admit(read_cards(raw))
        if output is Format.table:
            for pinned in found.pinned:
                print(line_of(pinned))
            for node in found.known:
                note(f"{node} is already pinned")
            if not (found.pinned or found.known or found.refused):
                note(f"{file} holds no card of another node")
        else:
            outcomes = [(pinned.pin.node, pinned.change, "", "") for pinned in found.pinned]
            outcomes += [(node, "known", "", "") for node in found.known]
            outcomes += [(node, "refused", rule, why) for node, rule, why in found.refused]
            names = ("node", "outcome", "rule", "why")
            shown = [dict(zip(names, outcome, strict=True)) for outcome in outcomes]
            print_list(shown, output, (), "")
    if found.refused:
        lines = [
            f"{node} is not admitted ({rule}{why and f': {why}'})"
            for node, rule, why in found.refused[:NAMED_MAX]
        ]
        if len(found.refused) > NAMED_MAX:
            lines.append(f"{len(found.refused)} are not admitted in all (-o json lists them)")
        raise Exit(UNVERIFIED, f"{file}: {'; '.join(lines)}")


@trust.command()
def endorse(node: NodeArgument, output: FormatOption = Format.json) -> None:
    """Vouch for a peer. Prints the card to pass on: whoever trusts this node can admit it."""
    with _opened() as here:
        with _said_of(node):
            card, is_new = here.endorse(node)
        if not is_new:
            note(f"{node} is already endorsed")
        print_card(here, card, output)


@trust.command()
def remove(
    node: Annotated[str | None, typer.Argument(metavar="[NODE]", show_default=False)] = None,
    proof: Annotated[
        str | None, typer.Option(metavar="FILE|-", help="A trusted peer's proof; - is stdin.")
    ] = None,
    output: Annotated[
        Format | None,
        typer.Option("--output", "-o", metavar="table|json|jsonl", help="How to print it."),
    ] = None,
) -> None:
    """No longer trust a peer, up to its epoch. Prints the proof that convinces the others.

    With --proof: because a trusted peer proves that it removed it.
    """
    if (node is None) == (proof is None):
        raise Invalid("name a NODE, or a --proof")
    with _opened() as here:
        if proof is not None:
            with _said_of(proof):
                removal = Removal.from_json(parse(_read(proof, RECORD_BYTES_MAX), RECORD_BYTES_MAX))
                is_new = here.remove_by(removal)
            print_removal(removal, output or Format.table, is_new=is_new)
            return
        with _said_of(str(node)):
            signed, is_new = here.remove(str(node))
        if signed is None:
            warn(f"{node} is removed without a proof: this node's own certificate has expired")
        else:
            print_removal(signed, output or Format.json, is_new=is_new)


@trust.command()
def announcements(
    node: Annotated[str | None, typer.Argument(metavar="[NODE]", show_default=False)] = None,
    count: Annotated[int, typer.Option(metavar="N", min=1, help="The newest N.")] = 1_000,
    output: FormatOption = Format.table,
) -> None:
    """What a node told of its trust. This one by default, in order, each change once."""
    with _telling():
        if node is None:
            here = Trust.open()
            here.announce()  # what waits belongs to the answer
            node = here.identity.node
        found = read_announcements(node, count)
    shown = [{"id": f"{told.gen}-0", **told.to_json()} for told in found]
    print_list(shown, output, ANNOUNCED_COLUMNS, "nothing announced")


@contextmanager
def _opened() -> Iterator[Trust]:
    """This node's trust; what was changed inside is told at the end."""
    with _telling():
        here = Trust.open()
        yield here
        _announce(here)


def _announce(here: Trust) -> None:
    try:
        here.announce()
    except BrokerError as wrong:
        count = len(here.store.pending())
        warn(f"changes that are not announced yet: {count}, until Redis takes them: {wrong}")


@contextmanager
def _telling() -> Iterator[None]:
    """What the store notices, as warnings of this command."""
    handler, log = _Warnings(logging.WARNING), logging.getLogger("broker")
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


class _Warnings(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        warn(record.getMessage())


def _read(file: str, bytes_max: int) -> bytes:
    """All of a file, and a byte more where it is too long, for whoever reads it to refuse. Raises Invalid."""
    raw = read_whole(file, bytes_max + 1)
    if not raw.strip():
        raise Invalid(f"{file} is empty")
    return raw


@contextmanager
def _said_of(what: str) -> Iterator[None]:
    """An error of trust with what it is about, and the name of the rule."""
    try:
        yield
    except (Untrusted, Refused) as wrong:
        code, line = judge(wrong)
        raise Exit(code, f"{what}: {line} ({wrong.rule})") from wrong
