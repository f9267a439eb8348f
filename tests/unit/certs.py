"""Certificates for tests: a CA, and what it signed, as PEM."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

NOW = datetime(2026, 2, 2, 12, tzinfo=UTC)


class Authority:
    """A CA with a key of its own."""

    def __init__(self, name: str = "kubernetes") -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])

    @property
    def pem(self) -> str:
        """Its own certificate. Every call makes another one for the same key, as a renewal does."""
        return self._sign(self.name, self.key, NOW - timedelta(days=30), NOW + timedelta(days=3600))

    def node(self, name: str, *, until: datetime) -> str:
        """A kubelet's client certificate with its key, as kubelet keeps it in one file."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
                x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{name}"),
            ]
        )
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        return self._sign(subject, key, NOW - timedelta(days=300), until) + private

    def _sign(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, start: datetime, end: datetime
    ) -> str:
        built = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(end)
            .sign(self.key, SHA256())
        )
        return built.public_bytes(Encoding.PEM).decode()
