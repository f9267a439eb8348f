"""What a PEM certificate says: subject, dates, and the hash of its public key (R37, R52).

kubeadm pins a CA by `sha256:` over its SubjectPublicKeyInfo: a CA renewed with the same key keeps its hash.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """+ pin: `sha256:<64 hex>` over the SubjectPublicKeyInfo; + not_before, not_after: aware, UTC."""

    common_name: str
    organizations: tuple[str, ...]
    not_before: datetime
    not_after: datetime
    pin: str

    def expired(self, now: datetime) -> bool:
        return now >= self.not_after

    def days_left(self, now: datetime) -> int:
        """Whole days until it expires; negative after that."""
        return (self.not_after - now).days


@dataclass(frozen=True, slots=True, kw_only=True)
class Damaged:
    """Something is there and can't be read: callers must see it, not take it for absent.

    + reason: for people, never with the content
    """

    reason: str


def certificates(pem: str) -> tuple[Certificate, ...]:
    """Every certificate of a PEM text, in order. `ValueError` if there is none, or one is damaged."""
    return tuple(_described(item) for item in x509.load_pem_x509_certificates(pem.encode()))


def pins(pem: str) -> frozenset[str]:
    """Hashes of every CA in a bundle: during a rotation there are two (O-30)."""
    return frozenset(item.pin for item in certificates(pem))


def _described(item: x509.Certificate) -> Certificate:
    spki = item.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    names = item.subject.get_attributes_for_oid
    common = [str(name.value) for name in names(NameOID.COMMON_NAME)]
    return Certificate(
        common_name=common[0] if common else "",
        organizations=tuple(str(name.value) for name in names(NameOID.ORGANIZATION_NAME)),
        not_before=item.not_valid_before_utc,
        not_after=item.not_valid_after_utc,
        pin="sha256:" + sha256(spki).hexdigest(),
    )
