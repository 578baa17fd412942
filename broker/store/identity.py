"""Who this node is to its peers: an Ed25519 key, the certificate that names it, and the epoch of its admission.

Peers pin the certificate, so a new key would be a stranger to all of them: nothing here ever replaces a key, a missing
or unreadable file is an error that names it. `identity.json` is written last, so that it stands beside whole files
only; a mark tells one that is still being made from one that lost a file. A key that others can read is refused, not
mended: somebody must ask who has read it. It knows nothing of peers.

An expired certificate still loads, for a node must be able to show and remove what it trusts; `expired` tells, and the
words that such an identity signs count nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from broker.errors import Misconfigured, NotFound, Refused, Untrusted
from broker.rules.certificate import Certificate, read_certificate
from broker.rules.key import check_name
from broker.rules.signed import canonical, message, parse, to_text
from broker.rules.strict import CHECKS, RECORD_BYTES_MAX, check_epoch, fields
from broker.rules.trust import Anchor, Card
from broker.store import durable, mint

IDENTITY = "identity.json"
KEY = "node.key"
CERTIFICATE = "node.crt"
#: Stands there from the first step of the making to the last.
MAKING = "making"

_FIELDS = {name: CHECKS[name] for name in ("node", "epoch", "created_at")}


@dataclass(frozen=True)
class Identity:
    """This node's identity as it was read; `expired` as of then, `created_at` in epoch ms."""

    node: str
    epoch: int
    created_at: int
    certificate: Certificate
    expired: bool
    folder: Path
    _key: Ed25519PrivateKey = field(repr=False, compare=False)

    @classmethod
    def create(cls, folder: Path, node: str, now_ms: int) -> Self:
        """Make this node's identity in `folder`, or load the one that is there; two that create end on the same one.

        What a killed process left is completed: its key is used, never replaced. Raises Invalid for the name,
        Refused("other_node") where the folder is another node's, Misconfigured as `load`, Unwritable.
        """
        check_name("node", node)
        durable.make_folder(folder)
        _check_private(folder)
        with durable.locked(folder):
            if _exists(folder / IDENTITY):
                found = cls._load(folder, now_ms)
                if found.node != node:
                    raise Refused(
                        "other_node", f"{folder} holds the identity of {found.node}, not of {node}"
                    )
                if _exists(folder / MAKING):  # killed at the very end
                    durable.remove(folder / MAKING)
                return found
            durable.sweep(folder)
            _check_new(folder)
            durable.replace(folder / MAKING, b"")
            if not _exists(folder / KEY):
                durable.replace(folder / KEY, mint.key())
            key = _read_key(folder)
            if not _exists(folder / CERTIFICATE):
                durable.replace(folder / CERTIFICATE, mint.certificate(key, node, now_ms))
            _read_certificate(folder, node, key)
            _write(folder, node, 1, now_ms)
            durable.remove(folder / MAKING)
            return cls._load(folder, now_ms)

    @classmethod
    def load(cls, folder: Path, now_ms: int) -> Self:
        """The identity in `folder`. Raises NotFound where none is, Misconfigured naming the file that is missing,
        unreadable, readable by others, or does not fit the rest.
        """
        if not _exists(folder / IDENTITY):
            _check_new(folder)
            raise NotFound(
                f"{folder} holds no identity of a node: create one with `broker trust init`"
            )
        return cls._load(folder, now_ms)

    def raise_epoch(self, epoch: int) -> Self:
        """Come back with a higher epoch, as after a removal; the same one again changes nothing.

        Raises Invalid, Refused("lower_epoch"), Unwritable. Other processes of this node know it once they load.
        """
        check_epoch(epoch)
        with durable.locked(self.folder):
            standing = _read_record(self.folder)
            if epoch < standing["epoch"]:
                raise Refused(
                    "lower_epoch",
                    f"the epoch of {self.node} is {standing['epoch']} and only climbs",
                )
            if epoch > standing["epoch"]:
                _write(self.folder, self.node, epoch, self.created_at)
        return replace(self, epoch=epoch)

    def sign(self, tag: str, body: Mapping[str, Any]) -> str:
        """This node's signature under a statement of the type `tag`; raise Untrusted where it is no statement."""
        return to_text(self._key.sign(message(tag, body)))

    @property
    def anchor(self) -> Anchor:
        return Anchor.of(self.certificate, self.epoch)

    @property
    def card(self) -> Card:
        """What peers pin."""
        return Card.of(self.certificate, self.epoch)

    @classmethod
    def _load(cls, folder: Path, now_ms: int) -> Self:
        _check_private(folder)
        said = _read_record(folder)
        key = _read_key(folder)
        certificate = _read_certificate(folder, said["node"], key)
        expired = now_ms > certificate.not_after_ms
        return cls(**said, certificate=certificate, expired=expired, folder=folder, _key=key)


def _exists(path: Path) -> bool:
    """Whether anything is there; a broken link is something too."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as failed:
        raise _unfit(path, failed.strerror or str(failed)) from failed
    return True


def _check_new(folder: Path) -> None:
    """Raise Misconfigured where an identity was complete once: a new record would begin at an epoch that is over."""
    if not _exists(folder / MAKING) and (_exists(folder / KEY) or _exists(folder / CERTIFICATE)):
        raise _missing(folder / IDENTITY)


def _missing(path: Path) -> Misconfigured:
    return _unfit(path, "it is missing; no other is made: restore it from a backup")


def _check_private(path: Path) -> None:
    try:
        mode = path.stat().st_mode & 0o777  # a folder may be a link; a file was opened as none
    except OSError as failed:
        raise _unfit(path, failed.strerror or str(failed)) from failed
    if mode & 0o077:
        wanted = "700" if path.is_dir() else "600"
        raise _unfit(
            path, f"others may use it (mode {mode:04o}): find out who did, then chmod {wanted} it"
        )


def _read(path: Path) -> bytes:
    try:
        data = durable.read(path, RECORD_BYTES_MAX)
    except OSError as failed:
        raise _unfit(path, failed.strerror or str(failed)) from failed
    if data is None:
        raise _missing(path)
    _check_private(path)
    return data


def _read_record(folder: Path) -> dict[str, Any]:
    path = folder / IDENTITY
    try:
        return fields(parse(_read(path), RECORD_BYTES_MAX), _FIELDS)
    except Untrusted as wrong:
        raise _unfit(path, str(wrong)) from None


def _read_key(folder: Path) -> Ed25519PrivateKey:
    path = folder / KEY
    try:
        key = serialization.load_pem_private_key(_read(path), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # Not a word of it is repeated: it is a secret, however broken.
        raise _unfit(path, "it is no private key in PEM without a password") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise _unfit(path, "it is no Ed25519 key")
    return key


def _read_certificate(folder: Path, node: str, key: Ed25519PrivateKey) -> Certificate:
    path = folder / CERTIFICATE
    try:
        certificate = read_certificate(_read(path).decode(errors="replace"))
    except Untrusted as wrong:
        raise _unfit(path, str(wrong)) from None
    if certificate.node != node:
        raise _unfit(path, f"it is the certificate of {certificate.node}, not of {node}")
    if certificate.public_key != key.public_key().public_bytes_raw():
        raise _unfit(folder / KEY, f"it is not the key of the certificate {path}")
    return certificate


def _write(folder: Path, node: str, epoch: int, created_at: int) -> None:
    said = {"node": node, "epoch": epoch, "created_at": created_at}
    durable.replace(folder / IDENTITY, canonical(said) + b"\n")


def _unfit(path: Path, why: str) -> Misconfigured:
    return Misconfigured(f"{path}: {why}")
