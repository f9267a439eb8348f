"""Kubernetes quantities and the kernel's CPU lists, as exact integers. No floating point anywhere."""

from __future__ import annotations

import re

_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_QUANTITY = re.compile(r"(\d+)(?:\.(\d+))?(Ki|Mi|Gi|Ti|Pi|Ei|k|M|G|T|P|E|)", re.ASCII)


def parse_bytes(text: str) -> int:
    """Bytes in a quantity such as `8Gi`, `1.5Gi`, `500M`, `1024`.

    `ValueError` when it is no quantity, negative, or no whole number of bytes (`0.3Ki`).
    Kubernetes' `m` suffix (a thousandth) is refused: a thousandth of a byte is a mistake.
    """
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no quantity; write it as 8Gi, 500Mi or a number of bytes")
    whole, fraction, suffix = match[1], match[2] or "", match[3]
    unit = _BINARY.get(suffix) or _DECIMAL[suffix]
    scaled = int(whole + fraction) * unit
    value, rest = divmod(scaled, int("1" + "0" * len(fraction)))
    if rest:
        raise ValueError(f"{text!r} is no whole number of bytes")
    return value


def format_bytes(value: int) -> str:
    """The shortest binary quantity that means exactly `value` bytes: `209715200` is `200Mi`."""
    for suffix, unit in reversed(_BINARY.items()):
        if value and value % unit == 0:
            return f"{value // unit}{suffix}"
    return str(value)


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """CPU ids of a kernel list such as `0-3,32-35`, in order; `ValueError` if empty, reversed or repeated."""
    cpus: list[int] = []
    for item in text.split(","):
        match = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", item, re.ASCII)
        if match is None:
            raise ValueError(f"{text!r} is no CPU list; write it as 0-3,32-35")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f"{item!r} in {text!r} runs backwards")
        cpus.extend(range(first, last + 1))
    if len(set(cpus)) != len(cpus):
        raise ValueError(f"{text!r} names a CPU twice")
    return tuple(sorted(cpus))
