"""PCI functions as sysfs tells them, and whether they are what the pool declares.

Nothing here changes a host: firmware, kernel parameters and drivers belong to people. What differs from the
declaration is refused with what would cure it, before any driver exists.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

NVIDIA = "10de"
MELLANOX = "15b3"
Iommu = Literal["off", "passthrough", "on"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """One PCI function.

    + address: `dddd:bb:dd.f`, lower case
    + id: `vendor:device`, four hex digits each, lower case
    + kind: class and subclass, four hex digits (`0302` is a 3D controller)
    + numa_node: None when firmware does not say (sysfs gives -1): never node 0 (O-09)
    + driver: the driver bound to it, None when none is
    """

    address: str
    id: str
    kind: str
    numa_node: int | None = None
    driver: str | None = None
    iommu_group: int | None = None

    @property
    def vendor(self) -> str:
        return self.id.partition(":")[0]

    @property
    def is_gpu(self) -> bool:
        """By class, never by name: audio and USB functions of a GPU are none, an unknown id is one (O-51)."""
        return self.vendor == NVIDIA and self.kind in ("0300", "0302")

    @property
    def is_nvswitch(self) -> bool:
        return self.vendor == NVIDIA and self.kind == "0680"

    @property
    def is_network(self) -> bool:
        return self.kind.startswith("02")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What the host says about the ground that a GPU driver stands on.

    + functions: NVIDIA's and network functions
    + iommu: how devices reach memory; passthrough when the GPUs' (else any) group has type identity
    + redirecting: bridges with ACS request redirection on, which sends peer-to-peer traffic to the CPU (R74);
      None when lspci could not tell
    + secure_boot: None on legacy boot or where EFI variables are not to be seen
    + lockdown: the kernel's lockdown mode, `none` when it has none
    + modules: loaded among nouveau, nova_core, nova_drm, nvidia
    + driver_packages: installed packages of a host driver or of parts that conflict with the operator's
    + nvidia_smi: path of a host nvidia-smi
    + operator_driver: a driver container of the GPU Operator serves this host now
    """

    functions: tuple[Function, ...] = ()
    iommu: Iommu = "off"
    redirecting: tuple[str, ...] | None = None
    secure_boot: bool | None = None
    lockdown: str = "none"
    modules: frozenset[str] = frozenset()
    driver_packages: tuple[str, ...] = ()
    nvidia_smi: str | None = None
    operator_driver: bool = False

    @property
    def gpus(self) -> tuple[Function, ...]:
        return tuple(one for one in self.functions if one.is_gpu)

    @property
    def nvswitches(self) -> tuple[Function, ...]:
        return tuple(one for one in self.functions if one.is_nvswitch)

    @property
    def nics(self) -> tuple[Function, ...]:
        return tuple(one for one in self.functions if one.is_network)


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """+ path: as declared; + size: bytes of the file system that holds it, or would."""

    path: str
    size: int


def normal_address(text: str) -> str:
    """`dddd:bb:dd.f` from any spelling: `0000:C1:00.0`, `00000000:c1:00.0`, `GPU0000:20:00.0`, `02:00.0`.

    `ValueError` when it is no PCI address.
    """
    match = re.fullmatch(
        r"(?:GPU)?(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", text.strip(), re.IGNORECASE
    )
    if match is None:
        raise ValueError(f"{text!r} is no PCI address")
    domain = int(match[1] or "0", 16)
    return f"{domain:04x}:{match[2]}:{match[3]}.{match[4]}".lower()


def without_numa_node(functions: Iterable[Function], nodes: int) -> tuple[Function, ...]:
    """Functions whose place is unknown although the host has several NUMA nodes (O-09)."""
    return tuple(one for one in functions if one.numa_node is None) if nodes > 1 else ()


def by_numa_node(functions: Iterable[Function]) -> dict[int, int]:
    """How many functions hang on each NUMA node, those of unknown place left out."""
    return dict(sorted(Counter(one.numa_node for one in functions if one.numa_node is not None).items()))
