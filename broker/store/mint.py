"""How a node's key and certificate are made: what `broker.rules.certificate` asks for, and what TLS peers look at."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from broker.rules.certificate import urn

#: How long a certificate holds, and how far it is dated back for peers whose clocks are behind.
VALID = timedelta(days=397)
SKEW = timedelta(minutes=5)


def key() -> bytes:
    """A new Ed25519 key, as PKCS#8 PEM without a password."""
    return Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def certificate(key: Ed25519PrivateKey, node: str, now_ms: int) -> bytes:
    """A certificate of this key for this node, as PEM."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, node)])
    begins = datetime.fromtimestamp(now_ms // 1000, UTC) - SKEW
    public = key.public_key()
    server_and_client = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        x509.CertificateBuilder(name, name, public, x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + VALID)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage(server_and_client), critical=False)
        .add_extension(
            x509.SubjectAlternativeName([x509.UniformResourceIdentifier(urn(node))]),
            critical=False,
        )
        # With both, two certificates of one name can stand in one bundle of trusted ones.
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
    )
    return builder.sign(key, algorithm=None).public_bytes(serialization.Encoding.PEM)
