"""Is this host the hardware that its pool declares, and may a GPU driver come onto it?

A verdict only: there are no steps. Every difference is refused at once, each with what would cure it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpurack.decide.decision import Decision, refuse, settled
from gpurack.decide.numa import Topology
from gpurack.decide.pci import MELLANOX, Function, Machine, Room, by_numa_node, without_numa_node
from gpurack.errors import Problem, Where
from gpurack.site.models import Hardware, Node, Pool

_PAGE = {"2Mi": 2 * 2**20, "1Gi": 2**30}
_NOVA = frozenset({"novacore", "novadrm"})
_BLACKLIST = (
    "blacklist nouveau, nova_core and nova_drm in /etc/modprobe.d, `options nouveau modeset=0`, "
    "update-initramfs -u, reboot"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What one host answered."""

    machine: Machine
    topology: Topology
    rooms: tuple[Room, ...] = ()


def ready_for_driver(node: Node, found: Found) -> Decision:
    """Settled when the host is as its pool declares and nothing stands in a driver's way; refused otherwise.

    A host without a pool (a control plane) has nothing to declare.
    """
    pool = node.pool
    if pool is None:
        return settled("no pool, so no GPU hardware is declared")
    at = Where(node.site.file, None, f"pools.{node.host.pool}")
    problems = (
        *_gpus(pool.hardware, found, at),
        *_ground(pool.hardware, found, at),
        *_drivers(pool, found.machine, at),
    )
    if problems:
        return refuse(*problems)
    gpus = found.machine.gpus
    return settled(
        f"{len(gpus)} GPUs, {len(found.topology.nodes)} NUMA nodes: as pool {node.host.pool} declares",
        notes=tuple(_notes(pool, found)),
    )


# ---------------------------------------------------------------------------------------- hardware
def _gpus(hardware: Hardware, found: Found, at: Where) -> Iterator[Problem]:
    gpus = found.machine.gpus
    field = Where(at.file, at.line, f"{at.field}.hardware.gpus")
    if len(gpus) != hardware.gpus.count:
        yield Problem(
            code="E-GPU-01",
            what="the number of GPUs is not what the pool declares",
            where=field,
            found=f"{len(gpus)}: {_places(gpus) or 'none'}",
            wanted=str(hardware.gpus.count),
            rule="O-51: functions of vendor 10de with class 0300 or 0302",
            next="reseat or replace what is missing, or move the host to the pool it belongs to",
        )
    strangers = [gpu for gpu in gpus if hardware.gpus.ids and gpu.id not in hardware.gpus.ids]
    if strangers:
        yield Problem(
            code="E-GPU-02",
            what="GPUs of another model than the pool declares",
            where=field,
            found=", ".join(f"{gpu.address} {gpu.id}" for gpu in strangers),
            wanted=", ".join(hardware.gpus.ids),
            next="add the id to hardware.gpus.ids, or move the host to the pool it belongs to",
        )
    if len(gpus) == hardware.gpus.count and (wanted := hardware.gpus.per_numa_node):
        yield from _gpus_per_numa_node(wanted, gpus, found.topology, field)


def _gpus_per_numa_node(
    wanted: tuple[int, ...], gpus: tuple[Function, ...], topology: Topology, at: Where
) -> Iterator[Problem]:
    if len(topology.nodes) == 1:
        counts = [len(gpus)]  # one node: the place is known even where firmware is silent (O-09)
    else:
        placed = by_numa_node(gpus)
        counts = [placed.get(node.id, 0) for node in topology.nodes]
    if tuple(counts[: len(wanted)]) != wanted or any(counts[len(wanted) :]):
        lost = without_numa_node(gpus, len(topology.nodes))
        yield Problem(
            code="E-GPU-03",
            what="GPUs do not hang on the NUMA nodes that the pool declares",
            where=at,
            found=" + ".join(map(str, counts)) + (f"; place unknown: {_places(lost)}" if lost else ""),
            wanted=" + ".join(map(str, wanted)),
            rule="O-09: numa_node -1 means unknown",
            next="check NPS/SNC and PCI-to-NUMA tables in firmware, or declare what is there",
        )


def _ground(hardware: Hardware, found: Found, at: Where) -> Iterator[Problem]:
    nodes = found.topology.nodes
    if hardware.numa_nodes is not None and len(nodes) != hardware.numa_nodes:
        serving = len(found.topology.serving)
        yield Problem(
            code="E-GPU-04",
            what="the number of NUMA nodes is not what the pool declares",
            where=Where(at.file, at.line, f"{at.field}.hardware.numa_nodes"),
            found=f"{len(nodes)}, {serving} of them with CPUs and memory",
            wanted=str(hardware.numa_nodes),
            next="check NPS/SNC in firmware, or declare what is there",
        )
    for size, wanted in sorted(hardware.hugepages.items()):
        count = sum(node.hugepages.get(_PAGE[size], 0) for node in nodes)
        if count != wanted:
            yield Problem(
                code="E-GPU-05",
                what=f"the number of {size} hugepages is not what the pool declares",
                where=Where(at.file, at.line, f"{at.field}.hardware.hugepages"),
                found=str(count),
                wanted=str(wanted),
                rule="R5: kubelet saves hugepages in its memory state, so they are set at boot",
                next=f"set hugepagesz={size.removesuffix('i')} hugepages={wanted} on the kernel command line "
                "and reboot",
            )
    if hardware.iommu is not None and found.machine.iommu != hardware.iommu:
        yield Problem(
            code="E-GPU-06",
            what="the IOMMU is not set as the pool declares",
            where=Where(at.file, at.line, f"{at.field}.hardware.iommu"),
            found=found.machine.iommu,
            wanted=hardware.iommu,
            rule="R74",
            next="set iommu= on the kernel command line (and firmware) and reboot",
        )
    rooms = {room.path: room.size for room in found.rooms}
    for disk in hardware.disks:
        if rooms.get(disk.path, 0) < disk.minimum:
            yield Problem(
                code="E-GPU-07",
                what=f"the file system at {disk.path} is smaller than the pool declares",
                where=Where(at.file, at.line, f"{at.field}.hardware.disks"),
                found=f"{rooms.get(disk.path, 0) // 2**30}Gi",
                wanted=f"{disk.minimum // 2**30}Gi",
                next="mount the declared disk there before the host is prepared",
            )


# ---------------------------------------------------------------------------------------- drivers
def _drivers(pool: Pool, machine: Machine, at: Where) -> Iterator[Problem]:
    field = Where(at.file, at.line, f"{at.field}.driver")
    by_driver = Counter(gpu.driver for gpu in machine.gpus if gpu.driver and gpu.driver != "nvidia")
    for driver in sorted(by_driver):
        held = _places(gpu for gpu in machine.gpus if gpu.driver == driver)
        yield _holder(driver, held)
    if pool.driver == "host":
        if machine.gpus and machine.nvidia_smi is None:
            yield Problem(
                code="E-GPU-12",
                what="the pool leaves the driver to the host, and the host has none",
                where=field,
                found="no nvidia-smi in PATH",
                rule="R71",
                next="install the driver on the host, or set driver: operator",
            )
        return
    if machine.nvidia_smi or _full_drivers(machine.driver_packages):
        found = [
            *([machine.nvidia_smi] if machine.nvidia_smi else []),
            *_full_drivers(machine.driver_packages),
        ]
        yield Problem(
            code="E-GPU-11",
            what="the host has a driver of its own, and the pool leaves the driver to the GPU Operator",
            where=field,
            found=", ".join(found),
            rule="R71: the operator would label the node pre-installed and not bring its driver",
            next="remove the packages from the host, or set driver: host",
        )
    if machine.gpus and (machine.secure_boot or machine.lockdown != "none"):
        state = "Secure Boot is on" if machine.secure_boot else f"kernel lockdown is {machine.lockdown}"
        yield Problem(
            code="E-GPU-13",
            what=f"{state}: the kernel refuses the unsigned modules of the operator's driver container",
            where=field,
            found=state,
            rule="R72, O-43: Key was rejected by service",
            next="one of: signed driver packages of the distribution with driver: host; precompiled signed "
            "modules (R73); Secure Boot off in firmware",
        )


def _holder(driver: str, held: str) -> Problem:
    """What to do about the driver that already holds a GPU (O-44): it depends on which one."""
    name = driver.lower().replace("_", "").replace("-", "")
    if name == "nouveau":
        what, cure = "nouveau holds GPUs", _BLACKLIST
    elif name in _NOVA:
        what, cure = "the nova driver holds GPUs: NVIDIA's driver will find none", _BLACKLIST
    elif name == "vfiopci":
        what = "GPUs are held for virtual machines"
        cure = "remove them from vfio-pci (vfio-pci.ids= on the kernel command line, modprobe.d), reboot"
    else:
        what, cure = f"driver {driver} holds GPUs", f"find out what bound {driver}, unbind it"
    return Problem(
        code="E-GPU-10",
        what=what,
        found=f"{driver}: {held}",
        rule="R71, O-44: which driver is bound to each function, not which module is loaded",
        next=cure,
    )


def _full_drivers(packages: Iterable[str]) -> list[str]:
    return [
        one for one in packages if not one.startswith(("nvidia-container", "nvidia-fabric", "nvidia-persist"))
    ]


# ---------------------------------------------------------------------------------------- worth knowing
def _notes(pool: Pool, found: Found) -> Iterator[str]:
    machine, nodes = found.machine, len(found.topology.nodes)
    if lost := without_numa_node(machine.gpus, nodes):
        yield f"O-09: NUMA node unknown for GPUs {_places(lost)}: pods get them without alignment"
    elif any(gpu.numa_node is None for gpu in machine.gpus):
        yield "GPUs give no NUMA node; the host has one, so they are on it (O-09)"
    if lost := without_numa_node((nic for nic in machine.nics if nic.vendor == MELLANOX), nodes):
        yield f"NUMA node unknown for network functions {_places(lost)}"
    if pool.driver == "operator" and (
        parts := set(machine.driver_packages) - set(_full_drivers(machine.driver_packages))
    ):
        yield f"R79: conflicts with the GPU Operator's own copy: {', '.join(sorted(parts))}"
    if "nouveau" in machine.modules:
        yield "R71: nouveau is loaded, though no GPU is bound to it; blacklist it together with nova_core"
    if machine.redirecting and machine.iommu != "on" and len(machine.gpus) > 1:
        yield (
            f"R74: ACS request redirection is on at {len(machine.redirecting)} bridges "
            f"({', '.join(machine.redirecting[:4])} ...): peer-to-peer goes through the CPU"
        )


def _places(functions: Iterable[Function]) -> str:
    return ", ".join(one.address for one in functions)
