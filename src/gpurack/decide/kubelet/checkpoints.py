"""State files of kubelet's resource managers: what they say, and when kubelet will refuse them (R6-R9)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpurack.decide.numa import CpuSet, NumaNode, Reservation, Topology, format_cpus, parse_cpus
from gpurack.site.models import NumaPolicy
from gpurack.site.quantity import parse_bytes


@dataclass(frozen=True, slots=True)
class Damaged:
    """A checkpoint that kubelet will refuse whatever the configuration is (O-04)."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuState:
    """`cpu_manager_state`. + entries: exclusive CPUs by pod UID, all containers together."""

    policy: str
    default: CpuSet = frozenset()
    entries: Mapping[str, CpuSet] = field(default_factory=dict)

    @property
    def assigned(self) -> CpuSet:
        return frozenset().union(*self.entries.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedNode:
    """+ total: bytes of plain memory; + reserved: kept from pods; + hugepages: bytes by page size."""

    total: int
    reserved: int
    hugepages: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryState:
    """`memory_manager_state`. + pods: UIDs that hold pinned memory."""

    policy: str
    nodes: Mapping[int, SavedNode] = field(default_factory=dict)
    pods: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Why kubelet would refuse a state file under the wanted configuration.

    + drift: the machine moved, nobody changed anything (O-03)
    """

    reason: str
    drift: bool = False


# ---------------------------------------------------------------------------------------- reading
def parse_cpu_state(text: str) -> CpuState | Damaged:
    """Both formats in use: container ids (v1) and pod UID with container names (v2, R11)."""
    try:
        found = _load(text)
        entries: dict[str, CpuSet] = {}
        for pod, value in (found.get("entries") or {}).items():
            sets = value.values() if isinstance(value, dict) else [value]
            entries[str(pod)] = frozenset().union(*(parse_cpus(_text(one)) for one in sets))
        return CpuState(
            policy=_text(found["policyName"]),
            default=parse_cpus(_text(found.get("defaultCpuSet") or "")),
            entries=entries,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return Damaged(_why(error))


def parse_memory_state(text: str) -> MemoryState | Damaged:
    try:
        found = _load(text)
        nodes: dict[int, SavedNode] = {}
        for number, node in (found.get("machineState") or {}).items():
            kinds = node["memoryMap"]
            plain = kinds.get("memory") or {}
            nodes[int(number)] = SavedNode(
                total=int(plain.get("total", 0)),
                reserved=int(plain.get("systemReserved", 0)),
                hugepages={
                    parse_bytes(kind.removeprefix("hugepages-")): int(table["total"])
                    for kind, table in kinds.items()
                    if kind.startswith("hugepages-") and int(table["total"])
                },
            )
        return MemoryState(
            policy=_text(found["policyName"]), nodes=nodes, pods=tuple(found.get("entries") or {})
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return Damaged(_why(error))


def damage(text: str) -> Damaged | None:
    """What is wrong with any other checkpoint: kubelet's are all JSON, and never empty (O-04)."""
    try:
        json.loads(text)
    except ValueError as error:
        return Damaged("empty file" if not text.strip() else str(error))
    return None


def _load(text: str) -> dict[str, Any]:
    if not text.strip():
        raise ValueError("empty file")
    found = json.loads(text)
    if not isinstance(found, dict):
        raise TypeError("no JSON object")
    return found


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} where a text belongs")
    return value


def _why(error: Exception) -> str:
    return f"no key {error}" if isinstance(error, KeyError) else str(error)


# ---------------------------------------------------------------------------------------- judging
def cpu_conflict(
    state: CpuState | Damaged | None, policy: NumaPolicy, reserved: CpuSet, online: CpuSet
) -> Conflict | None:
    """Why kubelet would refuse `state`, or None. The checks are those of kubelet's static policy (R7, R8).

    A policy option that changed is no reason by itself (R8; O-02 asks for more): only strict reservation
    meets the saved sets.
    """
    match state:
        case None:
            return None
        case Damaged(reason=why):
            return Conflict(reason=f"cpu_manager_state is damaged: {why}")
        case _ if state.policy != policy.cpu:
            return Conflict(reason=f"cpu_manager_state reset needed: {state.policy} -> {policy.cpu}")
        case _ if policy.cpu == "none" or (not state.default and not state.entries):
            return None
    strict = policy.cpu_options.get("strict-cpu-reservation") == "true"
    machine = online - reserved if strict else online
    holders = sorted(pod for pod, cpus in state.entries.items() if cpus & reserved)
    if strict and (both := reserved & state.default):
        why = f"strictly reserved CPUs {format_cpus(both)} are in the shared pool"
    elif not strict and (lost := reserved - state.default):
        why = f"reserved CPUs {format_cpus(lost)} are not in the shared pool"
    elif (known := state.default | state.assigned) != machine:
        why = f"online CPUs are {format_cpus(machine)}, the state knows {format_cpus(known)}"
    else:
        return None
    held = f"; pods with exclusive CPUs today: {', '.join(sorted(state.entries))}" if state.entries else ""
    held += f"; on reserved CPUs: {', '.join(holders)}" if holders else ""
    return Conflict(reason=f"cpu_manager_state reset needed: {why}{held}")


def memory_conflict(
    state: MemoryState | Damaged | None, policy: NumaPolicy, reserved: Reservation, topology: Topology
) -> Conflict | None:
    """Why kubelet would refuse `state`, or None (R9)."""
    match state:
        case None:
            return None
        case Damaged(reason=why):
            return Conflict(reason=f"memory_manager_state is damaged: {why}")
        case _ if state.policy != policy.memory:
            return Conflict(reason=f"memory_manager_state reset needed: {state.policy} -> {policy.memory}")
        case _ if policy.memory == "None":
            return None
    nodes = {node.id: node for node in topology.nodes}
    if set(nodes) != set(state.nodes):
        return Conflict(
            reason=f"memory_manager_state reset needed: NUMA nodes were {format_cpus(state.nodes)}, "
            f"are {format_cpus(nodes)}"
        )
    moved = [
        (number, saved.reserved, reserved.memory.get(number, 0))
        for number, saved in sorted(state.nodes.items())
        if saved.reserved != reserved.memory.get(number, 0)
    ]
    if moved:
        words = ", ".join(f"node {number}: {before} -> {after} bytes" for number, before, after in moved)
        return Conflict(reason=f"memory_manager_state reset needed: reservation changed ({words})")
    drifted = [
        f"node {number} total {saved.total} -> {nodes[number].memory} bytes"
        for number, saved in sorted(state.nodes.items())
        if saved.total != nodes[number].memory or saved.hugepages != _huge(nodes[number])
    ]
    if drifted:
        return Conflict(reason=f"memory state drift after reboot: {', '.join(drifted)}", drift=True)
    return None


def _huge(node: NumaNode) -> dict[int, int]:
    return {size: size * count for size, count in node.hugepages.items() if count}
