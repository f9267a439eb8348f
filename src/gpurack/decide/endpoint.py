"""The API endpoint as a person writes it: `name:port`, `192.0.2.1:6443` or `[2001:db8::1]:6443` (O-32)."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """+ host: a name in lower case, or an address without brackets."""

    host: str
    port: int

    @property
    def is_address(self) -> bool:
        try:
            ip_address(self.host)
        except ValueError:
            return False
        return True

    @property
    def url(self) -> str:
        return f"https://{self}"

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse(text: str) -> Endpoint:
    """An endpoint or a server URL; the port is 6443, or 443 for a URL, when it is not given.

    A bare IPv6 address gets its brackets once. `ValueError` when it is neither.
    """
    text = text.strip()
    if "://" in text:
        parts = urlsplit(text)
        if parts.scheme != "https" or not parts.hostname:
            raise ValueError(f"{text!r} is no https URL")
        return Endpoint(host=_canonical(parts.hostname), port=parts.port or 443)
    if text.count(":") > 1 and not text.startswith("["):
        return Endpoint(host=str(ip_address(text)), port=6443)
    parts = urlsplit(f"//{text}")
    if not parts.hostname or parts.path or parts.username:
        raise ValueError(f"{text!r} is no endpoint: name:port, address:port or [v6]:port")
    return Endpoint(host=_canonical(parts.hostname), port=parts.port or 6443)


def same(one: str, other: str) -> bool:
    """Whether two spellings mean the same endpoint; text that is no endpoint equals nothing."""
    try:
        return parse(one) == parse(other)
    except ValueError:
        return False


def _canonical(host: str) -> str:
    try:
        return str(ip_address(host))
    except ValueError:
        return host.lower().rstrip(".")
