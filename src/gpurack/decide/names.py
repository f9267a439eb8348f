"""The API endpoint's name on a host: resolved by the site's DNS, or by a block of ours in /etc/hosts (O-83).

DNS comes first: the block is only laid where the name does not resolve, and kept right where it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpurack.decide.decision import Decision, Write, refuse, settled
from gpurack.errors import Problem

FILE = "/etc/hosts"
BEGIN = "# BEGIN gpurack api endpoint"
END = "# END gpurack api endpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """+ content: of /etc/hosts, to the byte; + resolved: addresses that the host finds for the name."""

    content: str
    resolved: tuple[str, ...]


def endpoint(*, name: str, address: str, found: Hosts) -> Decision:
    """Make `name` resolve on the host, to `address` when nothing else knows it.

    + address: of the first control plane
    """
    lines = found.content.splitlines(keepends=True)
    begins = [n for n, line in enumerate(lines) if line.strip() == BEGIN]
    ends = [n for n, line in enumerate(lines) if line.strip() == END]
    if not begins and not ends:
        if found.resolved:
            return settled(f"{name} resolves to {', '.join(found.resolved)}")
        gap = "\n" if lines and not lines[-1].endswith("\n") else ""
        return _write(found.content + gap + _block(name, address), f"{name} does not resolve")
    if len(begins) != 1 or len(ends) != 1 or begins[0] > ends[0]:
        return refuse(
            Problem(
                code="E-NAME-01",
                what=f"our block in {FILE} is broken",
                found=f"{len(begins)} x {BEGIN!r}, {len(ends)} x {END!r}",
                wanted="one of each, in this order",
                rule="O-83",
                next=f"repair or remove the block in {FILE} by hand",
            )
        )
    wanted = [*lines[: begins[0]], _block(name, address), *lines[ends[0] + 1 :]]
    if "".join(wanted) == found.content:
        return settled(f"{name} is in {FILE}")
    return _write("".join(wanted), f"{FILE} maps {name} to something else")


def _block(name: str, address: str) -> str:
    return f"{BEGIN}\n{address} {name}\n{END}\n"


def _write(content: str, reason: str) -> Decision:
    return Decision(reason=reason, steps=(Write(path=FILE, content=content, keep_mode=True),))
