"""Is this an operating system that gpurack prepares, with room to do it (R66)?"""

from __future__ import annotations

from dataclasses import dataclass

from gpurack.decide.decision import Decision, refuse, settled
from gpurack.defaults import APT_ROOM, IMAGE_FLOOR, IMAGE_ROOM, INODE_ROOM, LOG_ROOM, NODE_ROOM
from gpurack.errors import Problem

SHARED_KERNEL = "shared-kernel"
CGROUP_V1 = "cgroup-v1"

# What is prepared, and the gate that a site has to accept for it: Ubuntu is the product, Debian the lab.
SYSTEMS: dict[tuple[str, str], str | None] = {
    ("ubuntu", "22.04"): None,
    ("ubuntu", "24.04"): None,
    ("debian", "12"): "os-debian-12",
}
ARCHITECTURES = ("amd64", "arm64")
_IMAGES_WHY = "kubelet evicts below 15 % available where images are kept, and they need 1 GiB"
LOGS, IMAGES, NODE, APT = "/var/log", "/var/lib/containerd", "/var/lib/kubelet", "/var/cache/apt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """A file system, asked through `path`. Bytes and inodes; 0 inodes in all means that it counts none."""

    path: str
    total: int
    available: int
    inodes: int
    inodes_free: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """+ architecture: dpkg's name; + container: kind of container the host runs in, or None on its own kernel
    + reboot: None, or the packages that ask for a reboot (possibly none named)."""

    id: str
    version_id: str
    pretty: str
    kernel: str
    architecture: str
    cgroup: int
    boot_id: str
    container: str | None
    machine: str | None
    reboot: tuple[str, ...] | None
    rooms: tuple[Room, ...]

    @property
    def shares_kernel(self) -> bool:
        """Modules, most sysctls, swap and the clock belong to a machine beneath."""
        return self.container is not None


def judge(accept: frozenset[str], found: Platform) -> Decision:
    """Whether this host may be prepared at all. Changes nothing.

    + accept: gates that the site accepts (`os-debian-12`, `cgroup-v1`, `shared-kernel`)
    """
    problems = [*_system(accept, found), *_kernel(accept, found), *_room(found)]
    if problems:
        return refuse(*problems)
    return settled(f"{found.pretty}, kernel {found.kernel}, cgroup v{found.cgroup}", notes=_notes(found))


def _system(accept: frozenset[str], found: Platform) -> list[Problem]:
    problems = []
    system = (found.id, found.version_id)
    gate = SYSTEMS.get(system)
    if system not in SYSTEMS or (gate and gate not in accept):
        problems.append(
            Problem(
                code="E-OS-01",
                what="unsupported operating system",
                found=f"{found.pretty} (ID={found.id}, VERSION_ID={found.version_id})",
                wanted="Ubuntu 22.04 or 24.04",
                rule="site document: accept",
                next=f"install Ubuntu, or write `accept: [{gate}]` for a lab"
                if gate
                else "install Ubuntu 24.04",
            )
        )
    if found.architecture not in ARCHITECTURES:
        problems.append(
            Problem(
                code="E-OS-02",
                what="unsupported architecture",
                found=found.architecture,
                wanted=" or ".join(ARCHITECTURES),
                next="take this host out of the site document",
            )
        )
    return problems


def _kernel(accept: frozenset[str], found: Platform) -> list[Problem]:
    problems = []
    if found.cgroup != 2 and CGROUP_V1 not in accept:
        problems.append(
            Problem(
                code="E-OS-03",
                what="the host runs cgroup v1",
                found="/sys/fs/cgroup is not cgroup2fs",
                wanted="cgroup v2",
                rule="R66: kubelet refuses cgroup v1 from 1.35 on",
                next="remove systemd.unified_cgroup_hierarchy=0 from the kernel command line and reboot",
            )
        )
    if found.shares_kernel and SHARED_KERNEL not in accept:
        problems.append(
            Problem(
                code="E-OS-04",
                what="the host is a container: its kernel, modules, swap and clock belong to another machine",
                found=found.container,
                wanted="a machine with a kernel of its own",
                rule="site document: accept",
                next=f"use the machine itself, or write `accept: [{SHARED_KERNEL}]` for a lab",
            )
        )
    return problems


def _room(found: Platform) -> list[Problem]:
    problems = []
    for room in found.rooms:
        floor, why = _floor(room)
        if room.available < floor:
            problems.append(
                Problem(
                    code="E-OS-05",
                    what=f"too little disk room at {room.path}",
                    found=f"{_mib(room.available)} available of {_mib(room.total)}",
                    wanted=f"{_mib(floor)} or more",
                    rule=why,
                    next=f"free or add disk at {room.path} (`df -h {room.path}`)",
                )
            )
        if room.inodes and room.inodes_free < room.inodes * INODE_ROOM:
            problems.append(
                Problem(
                    code="E-OS-06",
                    what=f"too few free inodes at {room.path}",
                    found=f"{room.inodes_free} of {room.inodes}",
                    wanted=f"{INODE_ROOM:.0%} or more",
                    rule="kubelet evicts pods below 5 % free inodes",
                    next=f"remove small files at {room.path} (`df -i {room.path}`)",
                )
            )
    return problems


def _floor(room: Room) -> tuple[int, str]:
    """The least number of available bytes, and why."""
    if room.path == IMAGES:
        return max(int(room.total * IMAGE_ROOM), IMAGE_FLOOR), _IMAGES_WHY
    if room.path == NODE:
        return int(room.total * NODE_ROOM), "kubelet evicts below 10 % available at its root folder"
    if room.path == LOGS:
        return LOG_ROOM, "room for journald's and the containers' logs"
    return APT_ROOM, "room to fetch and unpack the pinned packages"


def _notes(found: Platform) -> tuple[str, ...]:
    notes = []
    gate = SYSTEMS[found.id, found.version_id]
    if gate:
        notes.append(f"accepted {gate}: {found.pretty} is not supported in production")
    if found.cgroup != 2:
        notes.append(f"accepted {CGROUP_V1}: kubelet 1.35 and newer refuses it (R66)")
    if found.shares_kernel:
        notes.append(
            f"accepted {SHARED_KERNEL}: {found.container}; modules, swap and clock are not this host's"
        )
    if found.reboot is not None:
        asking = f" ({', '.join(found.reboot)})" if found.reboot else ""
        notes.append(f"a reboot is pending{asking}: better now than after the join, when it needs a drain")
    return tuple(notes)


def _mib(size: int) -> str:
    return f"{size // 2**20} MiB"
