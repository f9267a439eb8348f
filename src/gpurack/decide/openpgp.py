"""What an ASCII-armoured public key says about itself: fingerprint, creation, end, revocation (RFC 4880).

Read here and not by `gpg`: a controller may have none, and a host needs only gpgv for apt. Nothing is
verified but the fingerprint, which the site document pins; apt verifies signatures itself.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_BLOCK = re.compile(
    r"-----BEGIN PGP PUBLIC KEY BLOCK-----\r?\n(?P<body>.*?)-----END PGP PUBLIC KEY BLOCK-----", re.DOTALL
)
_PUBLIC_KEY, _SIGNATURE = 6, 2
_CERTIFICATIONS = frozenset({0x10, 0x11, 0x12, 0x13, 0x1F})  # of a user id, and directly of the key
_REVOCATION = 0x20
_CREATED, _KEY_EXPIRES, _ISSUER = 2, 9, 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicKey:
    """A primary key. Seconds since 1970; + expires: None for a key without an end."""

    fingerprint: str
    created: int
    expires: int | None
    revoked: bool

    @property
    def id(self) -> str:
        """The long key id, as apt's messages name it."""
        return self.fingerprint[-16:]


@dataclass(slots=True)
class _Draft:
    fingerprint: str
    created: int
    signatures: list[tuple[int, int | None]] = field(default_factory=list)
    revoked: bool = False

    def done(self) -> PublicKey:
        # The newest self-signature counts: that is how a key's end is moved.
        lifetime = max(self.signatures, default=(0, None), key=lambda signature: signature[0])[1]
        expires = self.created + lifetime if lifetime else None
        return PublicKey(
            fingerprint=self.fingerprint, created=self.created, expires=expires, revoked=self.revoked
        )


def read_keys(text: str) -> tuple[PublicKey, ...]:
    """The primary keys in `text`, in order. `ValueError` if it is no armoured public key of version 4."""
    blocks = list(_BLOCK.finditer(text))
    if not blocks:
        raise ValueError("no PGP PUBLIC KEY BLOCK in it (gpg --armor --export KEY writes one)")
    drafts: list[_Draft] = []
    for block in blocks:
        for tag, body in _packets(_dearmour(block["body"])):
            if tag == _PUBLIC_KEY:
                drafts.append(_primary(body))
            elif tag == _SIGNATURE and drafts:
                _sign(drafts[-1], body)
    if not drafts:
        raise ValueError("the block holds no public key")
    return tuple(draft.done() for draft in drafts)


def _dearmour(body: str) -> bytes:
    lines = [line.strip() for line in body.splitlines()]
    try:
        start = lines.index("") + 1
    except ValueError:
        start = 0
    data = "".join(line for line in lines[start:] if line and not line.startswith("="))
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise ValueError(f"the key is damaged: {error}") from error


def _packets(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        head = data[at]
        if not head & 0x80:
            raise ValueError("the key is damaged: no packet where one should begin")
        if head & 0x40:
            tag = head & 0x3F
            length, at = _new_length(data, at + 1)
        else:
            tag = (head >> 2) & 0x0F
            width = {0: 1, 1: 2, 2: 4}.get(head & 3)
            if width is None:
                raise ValueError("the key is damaged: a packet without a length")
            length, at = int.from_bytes(data[at + 1 : at + 1 + width]), at + 1 + width
        body = data[at : at + length]
        if len(body) != length:
            raise ValueError("the key is damaged: it ends in the middle of a packet")
        yield tag, body
        at += length


def _new_length(data: bytes, at: int) -> tuple[int, int]:
    """The length that begins at `at`, and where it ends; subpackets have the same form."""
    if at >= len(data):
        raise ValueError("the key is damaged: it ends in the middle of a length")
    first = data[at]
    if first < 192:
        return first, at + 1
    if first < 224 and at + 1 < len(data):
        return ((first - 192) << 8) + data[at + 1] + 192, at + 2
    if first == 255 and at + 4 < len(data):
        return int.from_bytes(data[at + 1 : at + 5]), at + 5
    raise ValueError("the key is damaged: a length that a key can't have")


def _primary(body: bytes) -> _Draft:
    if len(body) < 6 or body[0] != 4:
        raise ValueError(f"a key of version {body[0] if body else '?'}; apt's keys have version 4")
    digest = hashlib.sha1(b"\x99" + len(body).to_bytes(2) + body, usedforsecurity=False)
    return _Draft(fingerprint=digest.hexdigest().upper(), created=int.from_bytes(body[1:5]))


def _sign(key: _Draft, body: bytes) -> None:
    """Take in a self-signature; those of other keys and of subkeys say nothing about the primary key."""
    if len(body) < 6 or body[0] != 4:
        return
    kind = body[1]
    if kind not in _CERTIFICATIONS and kind != _REVOCATION:
        return
    size = int.from_bytes(body[4:6])
    hashed = _subpackets(body[6 : 6 + size])
    end = 8 + size
    more = _subpackets(body[end : end + int.from_bytes(body[6 + size : end])])
    issuer = hashed.get(_ISSUER) or more.get(_ISSUER)
    if issuer is not None and issuer.hex().upper() != key.fingerprint[-16:]:
        return
    if kind == _REVOCATION:
        key.revoked = True
        return
    lifetime = hashed.get(_KEY_EXPIRES)
    created = int.from_bytes(hashed.get(_CREATED, b""))
    key.signatures.append((created, int.from_bytes(lifetime) if lifetime else None))


def _subpackets(data: bytes) -> dict[int, bytes]:
    found, at = {}, 0
    while at < len(data):
        length, at = _new_length(data, at)
        if length == 0 or at + length > len(data):
            raise ValueError("the key is damaged: a signature's subpacket has no end")
        found[data[at] & 0x7F] = data[at + 1 : at + length]
        at += length
    return found
