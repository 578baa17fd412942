"""The signed words of nodes about each other: endorsements and removals.

Every word is about an exact epoch of a node and is given in an exact epoch of another, so that what was said before a
removal says nothing after it. Whether a word counts is asked in `broker.rules.vouch`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from dataclasses import fields as fields_of
from typing import Any, ClassVar, Protocol, Self

from broker.rules.strict import CHECKS, fields


class Signer(Protocol):
    """Who can give a word: this node's identity."""

    @property
    def node(self) -> str: ...

    @property
    def epoch(self) -> int: ...

    def sign(self, tag: str, body: Mapping[str, Any]) -> str: ...


class Subject(Protocol):
    """What a word is about: a certificate of a node in an epoch, as a card or a pin shows it."""

    @property
    def node(self) -> str: ...

    @property
    def epoch(self) -> int: ...

    @property
    def fingerprint(self) -> str: ...


@dataclass(frozen=True)
class Word:
    """What every kind of word has: `TAG` names the kind in what is signed, `sig` stands last."""

    TAG: ClassVar[str]

    @classmethod
    def from_json(cls, said: object) -> Self:
        """Read one; raise Untrusted (see `strict.fields`). Whether its signature holds is asked when it is to count."""
        return cls(**fields(said, {field.name: CHECKS[field.name] for field in fields_of(cls)}))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def body(self) -> dict[str, Any]:
        """What is signed: all but the signature."""
        return {name: value for name, value in vars(self).items() if name != "sig"}


@dataclass(frozen=True)
class Endorsement(Word):
    """`by`, in its epoch `by_epoch`, vouches for one certificate of `node` in one epoch. `issued_at` orders nothing."""

    TAG: ClassVar[str] = "fleet-broker.endorsement.v1"

    by: str
    by_epoch: int
    node: str
    epoch: int
    fingerprint: str
    issued_at: int
    sig: str

    @classmethod
    def signed(cls, signer: Signer, subject: Subject, now_ms: int) -> Self:
        """The signer's word for the subject."""
        said = cls(
            signer.node, signer.epoch, subject.node, subject.epoch, subject.fingerprint, now_ms, ""
        )
        return cls(**said.body, sig=signer.sign(cls.TAG, said.body))

    @property
    def slot(self) -> tuple[str, int, int]:
        """Of one slot the first endorsement stays: to sign the same again is no news."""
        return self.by, self.by_epoch, self.epoch


@dataclass(frozen=True)
class Removal(Word):
    """The proof that `by`, in its epoch `by_epoch`, removed `node` in exactly one epoch. It never grows old."""

    TAG: ClassVar[str] = "fleet-broker.removal.v1"

    node: str
    epoch: int
    by: str
    by_epoch: int
    removed_at: int
    sig: str

    @classmethod
    def signed(cls, signer: Signer, subject: Subject, now_ms: int) -> Self:
        """The signer's proof that it removes the subject."""
        said = cls(subject.node, subject.epoch, signer.node, signer.epoch, now_ms, "")
        return cls(**said.body, sig=signer.sign(cls.TAG, said.body))
