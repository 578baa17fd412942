"""What a hostile peer can make: certificates of every wrong kind, and statements signed over whatever it likes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from broker.rules import signed


class Forger:
    """A key of its own, and the certificate and the words that it makes with it."""

    def __init__(self, node: str = "mallory", key: Any = None) -> None:
        self.node = node
        self.key = key or Ed25519PrivateKey.generate()

    def certificate(
        self,
        *,
        cn: str | None = None,
        san: str | None = None,
        ca: bool | None = False,
        critical: bool = True,
        days: tuple[int, int] = (-1, 30),
        signer: Any = None,
    ) -> str:
        """PEM, honest but for what is asked for."""
        subject = x509.Name(
            [x509.NameAttribute(NameOID.COMMON_NAME, self.node if cn is None else cn)]
        )
        now = datetime.now(UTC)
        uri = f"urn:fleet-broker:node:{self.node if san is None else san}"
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + timedelta(days=days[0]))
            .not_valid_after(now + timedelta(days=days[1]))
            .add_extension(
                x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri)]), critical=False
            )
        )
        if ca is not None:
            builder = builder.add_extension(
                x509.BasicConstraints(ca=ca, path_length=None), critical=critical
            )
        key = signer or self.key
        digest = None if isinstance(key, Ed25519PrivateKey) else SHA256()
        return builder.sign(key, digest).public_bytes(Encoding.PEM).decode()

    def card(self, **fields: object) -> dict[str, Any]:
        honest = {
            "node": self.node,
            "name": "",
            "epoch": 1,
            "certificate": self.certificate(),
            "endorsements": [],
        }
        return honest | fields

    def sign(self, tag: str, body: dict[str, Any]) -> dict[str, Any]:
        """The statement with this key's signature of type `tag`."""
        return body | {"sig": signed.to_text(self.key.sign(signed.message(tag, body)))}
