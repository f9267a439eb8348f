"""Is every host itself, and only itself (R55, R56, O-35, O-38)?

`alone` judges one host against the site document; `among` compares the hosts of a run with each other and
with the nodes that the cluster already has.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Literal

from gpurack.decide.decision import Decision, refuse, settled
from gpurack.decide.platform import SHARED_KERNEL
from gpurack.errors import Problem

Unreadable = Literal["unreadable"]
UNREADABLE: Unreadable = "unreadable"

# Values that firmware ships when nobody wrote a serial number: never an identity (O-35).
_PLACEHOLDERS = frozenset(
    {
        "03000200-0400-0500-0006-000700080009",
        "00020003-0004-0005-0006-000700080009",
        "12345678-1234-5678-90ab-cddeefaabbcc",
        "12345678-1234-1234-1234-123456789abc",
        "01234567-8910-1112-1314-151617181920",
        "4c4c4544-0000-2010-8020-80c04f202020",
    }
)
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MACHINE_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """+ mac: None where the link has none (tunnels)."""

    name: str
    mac: str | None
    addresses: tuple[IPv4Address | IPv6Address, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """+ machine_id: None when the file is missing or empty
    + product_uuid: None when the firmware gives none; `unreadable` when it could not be read, which is not
      the same (O-35)."""

    machine_id: str | None
    product_uuid: str | None
    hostname: str
    interfaces: tuple[Interface, ...]

    @property
    def addresses(self) -> frozenset[IPv4Address | IPv6Address]:
        return frozenset(address for interface in self.interfaces for address in interface.addresses)

    def carrier(self, address: IPv4Address | IPv6Address) -> Interface | None:
        """The interface that has `address`."""
        return next((interface for interface in self.interfaces if address in interface.addresses), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A node that the cluster already has, as the API tells it (`status.nodeInfo`, `status.addresses`)."""

    name: str
    machine_id: str
    product_uuid: str = ""
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One host of this run: what the document says and what was found."""

    name: str
    addresses: tuple[IPv4Address | IPv6Address, ...]
    found: Identity


def usable_uuid(value: str | None) -> str | None:
    """`value` in lower case if it can tell two machines apart, else None (O-35)."""
    if value is None:
        return None
    uuid = value.strip().lower()
    if not _UUID.fullmatch(uuid) or uuid in _PLACEHOLDERS or len(set(uuid) - {"-"}) == 1:
        return None
    return uuid


def alone(claim: Claim) -> Decision:
    """Whether the host is the one that the document means: an identity, its addresses, its name."""
    found, problems = claim.found, []
    if not found.machine_id or not _MACHINE_ID.fullmatch(found.machine_id):
        problems.append(
            Problem(
                code="E-ID-01",
                what="the host has no machine-id",
                found=found.machine_id or "an empty or missing /etc/machine-id",
                wanted="32 hexadecimal digits",
                rule="R56",
                next="systemd-machine-id-setup && reboot",
            )
        )
    problems += [
        Problem(
            code="E-ID-02",
            what=f"the document's address {address} is not on this host",
            found=", ".join(f"{i.name} {a}" for i in found.interfaces for a in i.addresses)
            or "no address at all",
            wanted=f"{address} on an interface: it becomes the node's IP",
            rule="site document: a host's address is also its node IP",
            next=f"correct the address of {claim.name} in the site document, or configure it on the host",
        )
        for address in claim.addresses
        if address not in found.addresses
    ]
    if problems:
        return refuse(*problems)
    return settled("the host is the one that the document names", notes=_own_notes(claim))


def _own_notes(claim: Claim) -> tuple[str, ...]:
    notes = []
    hostname = claim.found.hostname.lower()
    if hostname != claim.name and hostname.split(".")[0] != claim.name:
        notes.append(f"the hostname is {claim.found.hostname}; the node is named {claim.name} (R55)")
    if claim.found.product_uuid == UNREADABLE:
        notes.append("/sys/class/dmi/id/product_uuid could not be read: not compared with other hosts (O-35)")
    elif usable_uuid(claim.found.product_uuid) is None:
        value = claim.found.product_uuid or "empty"
        notes.append(
            f"product_uuid is a placeholder ({value}): firmware without an identity, not used (O-35)"
        )
    return tuple(notes)


def among(
    name: str, claims: Iterable[Claim], members: Iterable[Member] = (), accept: frozenset[str] = frozenset()
) -> Decision:
    """Whether host `name` is told apart from every other host of the run and every node of the cluster.

    + claims: of the hosts of this run, `name` included; hosts that failed before are not among them
    + members: nodes of the cluster, if it could be asked; a node called `name` is the host itself
    + accept: with `shared-kernel` an equal product_uuid is said, not refused: containers share the board's
    """
    hosts = {claim.name: claim for claim in claims}
    mine = hosts.pop(name)
    nodes = [member for member in members if member.name != name]
    uuid = usable_uuid(mine.found.product_uuid)
    problems, notes = [], []

    def twins(key: Callable[[Claim], object]) -> list[str]:
        wanted = key(mine)
        return sorted(other for other, claim in hosts.items() if wanted is not None and key(claim) == wanted)

    ids = twins(lambda c: c.found.machine_id) + [
        f"{n.name} (a node)" for n in nodes if n.machine_id == mine.found.machine_id
    ]
    if ids:
        problems.append(
            _clone(
                "E-ID-03",
                "machine-id",
                ids,
                mine.found.machine_id,
                "rm /etc/machine-id; systemd-machine-id-setup; reboot",
            )
        )
    names = twins(lambda c: c.found.hostname.lower())
    if names:
        problems.append(
            _clone("E-ID-04", "hostname", names, mine.found.hostname, f"hostnamectl set-hostname {name}")
        )
    uuids = twins(lambda c: usable_uuid(c.found.product_uuid)) + [
        f"{n.name} (a node)" for n in nodes if uuid and usable_uuid(n.product_uuid) == uuid
    ]
    if uuids and SHARED_KERNEL in accept:
        notes.append(
            f"product_uuid is shared with {', '.join(uuids)}: one board beneath (accepted {SHARED_KERNEL})"
        )
    elif uuids:
        problems.append(
            _clone(
                "E-ID-05",
                "product_uuid",
                uuids,
                uuid,
                "give the machine a UUID of its own in firmware or VM settings",
            )
        )
    problems += _addresses(mine, hosts, nodes)
    macs = twins(_mac)
    if macs:
        notes.append(f"the MAC address {_mac(mine)} is also that of {', '.join(macs)} (R56)")
    if problems:
        return refuse(*problems)
    return settled("no other host has this host's identity", notes=tuple(notes))


def _addresses(mine: Claim, hosts: Mapping[str, Claim], nodes: Iterable[Member]) -> list[Problem]:
    holders: dict[str, list[str]] = defaultdict(list)
    wanted = {str(address) for address in mine.addresses}
    for other, claim in sorted(hosts.items()):
        for address in wanted & {str(a) for a in claim.found.addresses}:
            holders[address].append(other)
    for node in nodes:
        for address in wanted & set(node.addresses):
            holders[address].append(f"{node.name} (a node)")
    return [
        Problem(
            code="E-ID-06",
            what=f"the address {address} is also on {', '.join(others)}",
            found=f"{address} on more than one host",
            wanted="one host for each address",
            rule="R56",
            next="correct the network configuration of the clone, or the site document",
        )
        for address, others in sorted(holders.items())
    ]


def _mac(claim: Claim) -> str | None:
    """Of the interface with the node's address: bridges and BMC links carry the same MAC on many servers."""
    carrier = claim.found.carrier(claim.addresses[0])
    return carrier.mac if carrier else None


def _clone(code: str, what: str, others: list[str], value: str | None, cure: str) -> Problem:
    return Problem(
        code=code,
        what=f"the {what} is also that of {', '.join(others)}",
        found=value,
        wanted=f"one {what} for each host",
        rule="R56, O-35: cloned machines end as one node",
        next=f"before the join, on the clone: {cure}",
    )
