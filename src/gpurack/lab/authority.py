"""A certificate authority of this machine's lab, for the registry that wants TLS and a login."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import bcrypt
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = timedelta(days=1)
CA_LIFE = 3650 * DAY
SERVER_LIFE = 397 * DAY  # the longest that strict clients accept
RENEW_BEFORE = 30 * DAY


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What a TLS server needs, and what its clients need."""

    ca: Path
    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """+ password: file of mode 0600; + htpasswd: bcrypt, the only kind docker-registry accepts."""

    user: str
    password: Path
    htpasswd: Path


def served(folder: Path, ca: Path, address: str) -> Served:
    """A certificate for `address`, kept until it nears its end or the address changes.

    The authority is made together with it and its key is thrown away: a renewal is a new authority.
    """
    certificate, key = folder / "registry.pem", folder / "registry.key"
    if not _serves(certificate, key, ca, address):
        folder.mkdir(parents=True, exist_ok=True)
        ca.parent.mkdir(parents=True, exist_ok=True)
        ca_key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
        issuer = _name("gpurack lab registry CA")
        root = (
            _builder(issuer, issuer, ca_key.public_key(), CA_LIFE)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(ca_key, hashes.SHA256())
        )
        leaf = (
            _builder(_name(address), issuer, server_key.public_key(), SERVER_LIFE)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))]), critical=False)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .sign(ca_key, hashes.SHA256())
        )
        secret = server_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        _secret(key, secret)
        certificate.write_bytes(leaf.public_bytes(Encoding.PEM))
        ca.write_bytes(root.public_bytes(Encoding.PEM))
    return Served(ca=ca, certificate=certificate, key=key)


def login(folder: Path, user: str) -> Login:
    """A user with a password of its own, made on first use."""
    folder.mkdir(parents=True, exist_ok=True)
    password, htpasswd = folder / "password", folder / "htpasswd"
    if not password.is_file() or not htpasswd.is_file():
        word = secrets.token_urlsafe(24)
        hashed = bcrypt.hashpw(word.encode(), bcrypt.gensalt(rounds=8, prefix=b"2a"))
        _secret(htpasswd, user.encode() + b":" + hashed + b"\n")
        _secret(password, word.encode() + b"\n")
    return Login(user=user, password=password, htpasswd=htpasswd)


def _serves(certificate: Path, key: Path, ca: Path, address: str) -> bool:
    if not (certificate.is_file() and key.is_file() and ca.is_file()):
        return False
    found = x509.load_pem_x509_certificate(certificate.read_bytes())
    issuer = x509.load_pem_x509_certificate(ca.read_bytes())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    fresh = found.not_valid_after_utc - datetime.now(UTC) > RENEW_BEFORE
    named = ip_address(address) in names.get_values_for_type(x509.IPAddress)
    return fresh and named and found.issuer == issuer.subject


def _builder(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, life: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)  # a guest's clock may run behind
        .not_valid_after(now + life)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _secret(path: Path, content: bytes) -> None:
    """Never readable by others, not for a moment."""
    scratch = path.with_name(f".{path.name}.new")
    scratch.unlink(missing_ok=True)
    with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    scratch.rename(path)
