"""Types of single values in the site document: how a person writes them, what they become.

Each parser either returns the value or raises a `fault`: an error that already carries its stable code,
the wanted spelling, the rule and the next step, so that the loader only has to add file and line.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Annotated, LiteralString

from pydantic import BeforeValidator, PlainValidator
from pydantic_core import PydanticCustomError

from gpurack.site.quantity import parse_bytes, parse_cpu_list
from gpurack.site.secrets import is_reference

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


def fault(code: LiteralString, what: str, **details: str) -> PydanticCustomError:
    """A validation error with a code of ours; `details`: wanted, rule, next."""
    return PydanticCustomError(code, "{what}", {"what": what, **details})


def _text(value: object, kind: str) -> str:
    if not isinstance(value, str):
        raise fault("E-SITE-06", f"{kind} is wanted here, not {_kind(value)}")
    return value


def _kind(value: object) -> str:
    names = {bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "a map"}
    return names.get(type(value), "nothing")


def _bytes(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value  # as in Kubernetes, a bare number is bytes
    try:
        return parse_bytes(str(value) if type(value) in (int, float) else _text(value, "a quantity"))
    except ValueError as error:
        raise fault("E-SITE-09", str(error)) from None


def _bytes_or_percent(value: object) -> int | str:
    if isinstance(value, str) and re.fullmatch(r"(\d{1,2}(\.\d+)?|100)%", value, re.ASCII):
        return value
    return _bytes(value)


def _cpu_list(value: object) -> str:
    text = str(value) if type(value) is int else _text(value, "a CPU list such as 0-3,32-35")
    try:
        parse_cpu_list(text)
    except ValueError as error:
        raise fault("E-SITE-09", str(error)) from None
    return text


def parse_address(value: object) -> Address:
    if isinstance(value, IPv4Address | IPv6Address):
        return value
    text = _text(value, "an IP address")
    try:
        return ip_address(text)
    except ValueError:
        raise fault("E-SITE-16", f"{text!r} is no IP address") from None


def parse_network(value: object) -> Network:
    if isinstance(value, IPv4Network | IPv6Network):
        return value
    text = _text(value, "a network such as 10.244.0.0/16")
    try:
        loose = ip_network(text, strict=False) if "/" in text else None
    except ValueError:
        loose = None
    if loose is None:
        raise fault("E-SITE-20", f"{text!r} is no network", wanted="such as 10.244.0.0/16")
    try:
        return ip_network(text)
    except ValueError:
        raise fault(
            "E-SITE-20", f"{text!r} has bits set beyond its prefix", wanted=str(loose), next=f"write {loose}"
        ) from None


def _reference(value: object) -> str:
    text = _text(value, "a reference")
    if not is_reference(text):
        raise fault(
            "E-SITE-50",
            "a secret stands here in clear",
            wanted="a reference: env:NAME, file:/path or command:program arguments",
            next="take it out of the document (and out of its history), change it, and write a reference",
        )
    return text


def _fingerprint(value: object) -> str:
    text = _text(value, "a fingerprint (in quotes)")
    if is_reference(text):
        return text
    packed = text.replace(" ", "").upper()
    if not re.fullmatch(r"[0-9A-F]{40}", packed):
        raise fault(
            "E-SITE-62",
            f"{text!r} is no fingerprint of an OpenPGP key",
            wanted="40 hexadecimal digits, or file:/path of a file that holds them",
            next="gpg --show-keys --with-fingerprint KEYFILE",
        )
    return packed


def _address_texts(value: object) -> tuple[str, ...]:
    parts = (
        value
        if isinstance(value, list | tuple)
        else _text(value, "an IP address, or a pair of them").split(",")
    )
    texts = tuple(_text(part, "an IP address").strip() for part in parts)
    if not all(texts):
        raise fault("E-SITE-17", "an address in the list is empty", next="take out the extra comma")
    if len(texts) > 2:
        raise fault(
            "E-SITE-17", f"{len(texts)} addresses for one host", wanted="one, or one IPv4 and one IPv6"
        )
    return texts


Bytes = Annotated[int, BeforeValidator(_bytes)]
BytesOrPercent = Annotated[int | str, PlainValidator(_bytes_or_percent)]
CpuList = Annotated[str, BeforeValidator(_cpu_list)]
HostAddress = Annotated[Address, PlainValidator(parse_address)]
AddressTexts = Annotated[tuple[str, ...], PlainValidator(_address_texts)]
Cidr = Annotated[Network, PlainValidator(parse_network)]
Reference = Annotated[str, BeforeValidator(_reference)]
Fingerprint = Annotated[str, BeforeValidator(_fingerprint)]
