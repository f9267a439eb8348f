"""NUMA topology as the kernel tells it, and the arithmetic of what is kept from pods on each node.

Everything is an exact integer: bytes and CPU ids. Nothing here rounds, so that kubelet's equality (R2) holds
to the byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpurack.defaults import NUMA_MEMORY_MARGIN
from gpurack.errors import Problem, Where
from gpurack.site.models import NumaPolicy, Reserved

CpuSet = frozenset[int]


# ---------------------------------------------------------------------------------------- CPU lists
def parse_cpus(text: str) -> CpuSet:
    """CPU ids of a kernel list: singles, ranges, both, spaces, a trailing newline (O-10).

    A blank list is the empty set, never CPU 0 (O-08). `ValueError` for anything else, a reversed range too.
    """
    cpus: set[int] = set()
    for item in re.split(r"\s*,\s*|\s+", text.strip()) if text.strip() else ():
        match = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", item, re.ASCII)
        if match is None:
            raise ValueError(f"{text.strip()!r} is no CPU list such as 0-3,32-35")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f"{item!r} in the CPU list {text.strip()!r} runs backwards")
        cpus.update(range(first, last + 1))
    return frozenset(cpus)


def format_cpus(cpus: Iterable[int]) -> str:
    """The canonical list, as the kernel and kubelet print it: `0-3,8`. The empty set is the empty text."""
    runs: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


# ---------------------------------------------------------------------------------------- what was found
@dataclass(frozen=True, slots=True, kw_only=True)
class NumaNode:
    """One `/sys/devices/system/node/nodeN`.

    + memory: MemTotal in bytes, 0 when the node has none
    + cpus: *online* CPUs of the node
    + hugepages: pages by page size in bytes
    """

    id: int
    memory: int
    cpus: CpuSet = frozenset()
    hugepages: Mapping[int, int] = field(default_factory=dict)

    @property
    def huge(self) -> int:
        """Bytes that hugepages take away from plain memory."""
        return sum(size * count for size, count in self.hugepages.items())

    @property
    def room(self) -> int:
        """Bytes that a reservation may take here at most, with the margin left to pods (R4)."""
        return max(0, self.memory - self.huge - NUMA_MEMORY_MARGIN)

    @property
    def serves(self) -> bool:
        """It has CPUs and memory, so that pods can be placed on it and reservations belong on it (O-08)."""
        return bool(self.cpus) and self.memory > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """+ nodes: by id, those without CPUs or memory included: kubelet counts them (R12)
    + siblings: for each online CPU the threads of its core, itself included."""

    nodes: tuple[NumaNode, ...]
    online: CpuSet
    present: CpuSet
    siblings: Mapping[int, CpuSet] = field(default_factory=dict)

    @property
    def offline(self) -> CpuSet:
        return self.present - self.online

    @property
    def serving(self) -> tuple[NumaNode, ...]:
        return tuple(node for node in self.nodes if node.serves)

    def core(self, cpu: int) -> CpuSet:
        """The threads of `cpu`'s core that are online."""
        return (self.siblings.get(cpu) or frozenset({cpu})) & self.online

    def cores(self, node: NumaNode) -> tuple[CpuSet, ...]:
        """The node's physical cores, lowest CPU first."""
        return tuple(sorted({self.core(cpu) for cpu in node.cpus}, key=min))


# ---------------------------------------------------------------------------------------- what is kept
@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """What pods do not get, per NUMA node.

    + cpus: CPU ids, empty when the pool reserves none
    + memory: bytes by NUMA node id; nodes without a share are absent, for kubelet refuses a zero (R4)
    """

    cpus: CpuSet = frozenset()
    memory: Mapping[int, int] = field(default_factory=dict)


def total_memory(reserved: Reserved) -> int:
    """What kubelet expects `reservedMemory` to add up to: kube + system + hard eviction (R2).

    `ValueError` when the eviction threshold is a percentage, which ties the sum to MemTotal (R3).
    """
    return reserved.kube_memory + reserved.system_memory + reserved.eviction_bytes


def split(total: int, nodes: Iterable[NumaNode]) -> dict[int, int]:
    """`total` bytes over `nodes`: equal shares of whole MiB, the remainder on the lowest node.

    Shares do not depend on the nodes' sizes: a total that moves by some pages at every boot (R9) must not
    move the reservation, or every reboot would change the configuration. Nodes with a zero share are absent.
    """
    ids = sorted(node.id for node in nodes)
    if not ids or total <= 0:
        return {}
    share = total // len(ids) // 2**20 * 2**20
    shares = dict.fromkeys(ids, share)
    shares[ids[0]] = total - share * (len(ids) - 1)
    return {node: size for node, size in shares.items() if size}


def reserve(policy: NumaPolicy, topology: Topology, where: Where) -> tuple[Reservation, tuple[Problem, ...]]:
    """What `policy` reserves on a host with `topology`, and everything that makes it impossible there.

    + where: of the pool's `numa` in the site document
    """
    cpus, problems = _reserve_cpus(policy, topology, where)
    if policy.memory == "None":
        return Reservation(cpus=cpus), problems
    memory, more = _reserve_memory(policy.reserved, topology, where)
    return Reservation(cpus=cpus, memory=memory), (*problems, *more)


def _at(where: Where, name: str) -> Where:
    return Where(where.file, where.line, f"{where.field}.{name}" if where.field else name)


def _reserve_cpus(policy: NumaPolicy, topology: Topology, where: Where) -> tuple[CpuSet, tuple[Problem, ...]]:
    reserved = policy.reserved
    if reserved.cpus is not None:
        at = _at(where, "reserved.cpus")
        try:
            cpus = parse_cpus(reserved.cpus)
        except ValueError as error:
            return frozenset(), (
                Problem(code="E-NUMA-01", what=str(error), where=at, next="write it as 0-3,32-35"),
            )
    elif reserved.cpus_per_numa_node:
        at = _at(where, "reserved.cpus_per_numa_node")
        cpus = frozenset().union(
            *(
                core
                for node in topology.serving
                for core in topology.cores(node)[: reserved.cpus_per_numa_node]
            )
        )
    else:
        at, cpus = _at(where, "reserved"), frozenset()
    return cpus, tuple(_judge_cpus(policy, cpus, topology, at))


def _judge_cpus(policy: NumaPolicy, cpus: CpuSet, topology: Topology, at: Where) -> Iterable[Problem]:
    if absent := cpus - topology.present:
        yield Problem(
            code="E-NUMA-02",
            what=f"reserved CPUs {format_cpus(absent)} do not exist",
            where=at,
            found=f"CPUs {format_cpus(topology.present)}",
            wanted=f"CPUs {format_cpus(cpus)} reserved",
            rule="R1: reserved CPUs must be a subset of the online CPUs",
            next="reserve CPUs that the host has",
        )
    if offline := cpus & topology.offline:
        yield Problem(
            code="E-NUMA-02",
            what=f"reserved CPUs {format_cpus(offline)} are offline",
            where=at,
            found=f"online: {format_cpus(topology.online)}; offline: {format_cpus(topology.offline)}",
            wanted=f"CPUs {format_cpus(cpus)} reserved",
            rule="R1, O-10: reserved CPUs must be a subset of the online CPUs",
            next="bring them online, or reserve others",
        )
    if topology.online and cpus >= topology.online:
        yield Problem(
            code="E-NUMA-03",
            what="every CPU would be reserved",
            where=at,
            found=f"online: {format_cpus(topology.online)}",
            wanted=f"CPUs {format_cpus(cpus)} reserved",
            rule="R1: kubelet would start, and no pod could ever be pinned",
            next="leave CPUs to the pods",
        )
    if policy.cpu == "static" and not cpus:
        yield Problem(
            code="E-NUMA-07",
            what="CPU policy static without a CPU reservation",
            where=at,
            rule="R1: kubelet refuses it ([cpumanager] unable to determine reserved CPU resources)",
            next="set reserved.cpus_per_numa_node: 1, or reserved.cpus",
        )


def _reserve_memory(
    reserved: Reserved, topology: Topology, where: Where
) -> tuple[dict[int, int], tuple[Problem, ...]]:
    eviction = reserved.eviction_memory
    if isinstance(eviction, str) or eviction <= 0:
        return {}, (
            Problem(
                code="E-NUMA-08",
                what="memory policy Static needs a hard eviction threshold in bytes",
                where=_at(where, "reserved.eviction_memory"),
                found=str(eviction),
                rule="R2, R3: the threshold is part of reservedMemory, which is compared in bytes",
                next="set reserved.eviction_memory, 100Mi or more",
            ),
        )
    total = total_memory(reserved)
    at = _at(where, "reserved")
    nodes = topology.serving
    if not nodes:
        return {}, (
            Problem(
                code="E-NUMA-09",
                what="no NUMA node has both CPUs and memory",
                found=f"{len(topology.nodes)} NUMA nodes",
                rule="R4: a reservation needs a node to lie on",
                next="look at /sys/devices/system/node on the host",
            ),
        )
    shares = split(total, nodes)
    return shares, tuple(
        _too_large(node, shares[node.id], total, len(nodes), at)
        for node in nodes
        if shares.get(node.id, 0) > node.room
    )


def _too_large(node: NumaNode, share: int, total: int, nodes: int, at: Where) -> Problem:
    fits = node.room * nodes
    return Problem(
        code="E-NUMA-04",
        what=f"reservation exceeds NUMA node {node.id}",
        where=at,
        found=(
            f"NUMA node {node.id} has {_rough(node.memory - node.huge)} after hugepages; "
            f"its share of the reservation is {_rough(share)}"
        ),
        wanted=f"at most {_rough(node.room)} there (margin for pods {_rough(NUMA_MEMORY_MARGIN)})",
        rule="R4: kubelet does not check this and would hand out 16 EiB on that node",
        next=f"lower system, kube and eviction memory from {_rough(total)} to {_rough(fits)} in all",
    )


def _rough(size: int) -> str:
    """Whole MiB, rounded down: for people."""
    return f"{max(0, size) // 2**20}Mi"
