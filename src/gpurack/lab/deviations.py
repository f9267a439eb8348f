"""Where the lab differs from production: the one list. Each is injected from outside the product, as a
foreign drop-in or a bind mount, and carries the id by which a site document accepts it
(gpurack.decide.gates).

os-release is never faked: a host of the lab says that it is Debian 12.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpurack.lab import cgroups
from gpurack.lab.state import Kind

CAP_SYS_RESOURCE = 24


@dataclass(frozen=True, slots=True)
class Deviation:
    """+ how: what the lab does, and where; + kinds: hosts that have it; + applies: asked of this machine."""

    id: str
    differs: str
    why: str
    how: str
    kinds: tuple[Kind, ...] = ("container", "vm")
    applies: Callable[[], bool] = lambda: True


def lacks_sys_resource() -> bool:
    """Whether this machine withholds CAP_SYS_RESOURCE, which lowering an oom score needs."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapBnd:"):
            return not int(line.split()[1], 16) >> CAP_SYS_RESOURCE & 1
    return True


def legacy_cgroups() -> bool:
    """Whether this machine, and so every container host, runs cgroup v1."""
    return not cgroups.unified()


DEVIATIONS = (
    Deviation(
        "os-debian-12",
        "hosts run Debian 12, production runs Ubuntu",
        "the root image is made of what a Debian machine can fetch and check by itself",
        "the image, with Debian's own os-release; /etc/resolv.conf is a plain file, not systemd-resolved's",
    ),
    Deviation(
        "cgroup-v1",
        "container hosts run the legacy cgroup hierarchy",
        "they share the kernel of a machine that has no other",
        "each host starts in cgroups of its own; gpurack-lab-hardware.service makes the controllers writable",
        kinds=("container",),
        applies=legacy_cgroups,
    ),
    Deviation(
        "clock-not-synchronised",
        "hosts have no time service that reaches anything",
        "the rack is air-gapped; container hosts share the machine's clock and may not set it",
        "container hosts are started without CAP_SYS_TIME, so that chrony does not run",
    ),
    Deviation(
        "shared-kernel",
        "container hosts share the machine's kernel: modules, global sysctls, swap, boot id, CPUs and memory",
        "they are containers",
        "machine's /lib/modules bound read-only; udev masked; global sysctls put back by `lab down`; "
        "/var/lib/{containerd,kubelet,etcd} are plain directories bound in, because overlay on overlay fails",
        kinds=("container",),
    ),
    Deviation(
        "no-oom-adjust",
        "container hosts may not lower oom scores, nor raise rlimits such as memlock",
        "the machine withholds CAP_SYS_RESOURCE: runc dies with `can't get final child's PID from pipe: EOF`",
        "/etc/containerd/conf.d/10-lab.toml sets restrict_oom_score_adj",
        kinds=("container",),
        applies=lacks_sys_resource,
    ),
    Deviation(
        "frozen-meminfo",
        "memory of container hosts' NUMA nodes is a frozen figure",
        "with memory hotplug it moves all the time, and kubelet's memory manager stops at it (R9)",
        "a copy of /sys/devices/system/node/node*/meminfo is bound over it by gpurack-lab-hardware.service",
        kinds=("container",),
    ),
    Deviation(
        "per-host-product-uuid",
        "product_uuid of container hosts does not come from firmware",
        "they share one firmware or none, and R56 wants it unique",
        "bound over /sys/class/dmi/id/product_uuid by gpurack-lab-hardware.service",
        kinds=("container",),
    ),
    Deviation(
        "simulated-gpus",
        "GPUs are files",
        "the lab needs no GPU",
        "gpurack-lab-hardware.service puts simulated functions among /sys/bus/pci/devices, each with a file "
        "`gpurack-simulated`",
    ),
)


def present(kinds: frozenset[Kind]) -> tuple[Deviation, ...]:
    """The deviations that a rack with hosts of these kinds has on this machine."""
    return tuple(one for one in DEVIATIONS if kinds & set(one.kinds) and one.applies())
