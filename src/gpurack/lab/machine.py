"""What the machine must have before the lab changes anything on it: each lack with its next step."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from gpurack import defaults
from gpurack.errors import Problem, Refused
from gpurack.lab import state
from gpurack.lab.process import Progress, tool
from gpurack.lab.state import Kind

GIB = 2**30
ROOM = 6 * GIB  # root images 1, layers and images of four hosts with a cluster on them 4 (measured), slack 1

TOOLS = {  # command: Debian package
    "mmdebstrap": "mmdebstrap",
    "systemd-nspawn": "systemd-container",
    "ip": "iproute2",
    "sysctl": "procps",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "mount": "mount",
}
VM_TOOLS = {"qemu-system-x86_64": "qemu-system-x86", "mke2fs": "e2fsprogs"}

MODULES = ("overlay", "br_netfilter", "veth", "bridge", "tun", "nf_conntrack", "ip_tables", "nf_tables")

# Not namespaced: what a role or kubelet sets on a container host stays on the machine until `lab down`
SYSCTLS = (
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/max_map_count",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "vm/swappiness",
    "fs/inotify/max_user_instances",
    "fs/inotify/max_user_watches",
)

# Per user and machine, and every host's root is the machine's. A host with systemd, containerd and kubelet
# takes 20 to 40; past the usual 128 new logins wait for ever, and nothing says why.
INOTIFY, INOTIFY_INSTANCES = "fs/inotify/max_user_instances", 4096


def check(kinds: frozenset[Kind]) -> None:
    """Refused with everything that this machine lacks for hosts of these kinds."""
    lacking = [*_lacking(kinds)]
    if lacking:
        raise Refused(lacking)


def require_root() -> None:
    """Refused unless this process is root."""
    if os.geteuid() != 0:
        raise Refused(
            Problem(
                code="E-LAB-03",
                what="the lab needs root: it mounts, makes network namespaces and boots hosts",
                found=f"user id {os.geteuid()}",
                next="run it again with sudo, or as root",
            )
        )


def _lacking(kinds: frozenset[Kind]) -> list[Problem]:
    require_root()
    found = []
    machine = os.uname()
    if machine.sysname != "Linux" or machine.machine != "x86_64":
        found.append(
            Problem(
                code="E-LAB-04",
                what="the lab runs on 64-bit x86 Linux only",
                found=f"{machine.sysname} {machine.machine}",
                next="use a Debian 12 or Ubuntu 24.04 machine; a virtual one will do",
            )
        )
    wanted = TOOLS | (VM_TOOLS if "vm" in kinds else {})
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    missing = sorted({package for command, package in wanted.items() if not shutil.which(command, path=path)})
    if missing:
        found.append(
            Problem(
                code="E-LAB-05",
                what="programs that the lab needs are not installed",
                found="missing: " + ", ".join(missing),
                next=f"apt-get install {' '.join(missing)}",
            )
        )
    for folder in (state.ROOT, Path(defaults.LAB_CACHE)):
        folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(state.ROOT).free
    if free < ROOM:
        found.append(
            Problem(
                code="E-LAB-06",
                what=f"{state.ROOT} has too little room",
                found=f"{free / GIB:.1f} GiB free",
                wanted=f"{ROOM // GIB} GiB",
                next="make room, or mount a larger disk there",
            )
        )
    kind = _file_system(state.ROOT)
    if kind == "overlay":
        found.append(
            Problem(
                code="E-LAB-07",
                what=f"{state.ROOT} lies on an overlay, and an overlay can't have its layers on another",
                found="overlay",
                wanted="ext4, xfs or btrfs",
                next=f"mount a plain disk at {state.ROOT}; in a container, mount a volume there",
            )
        )
    return found


def _file_system(path: Path) -> str:
    """Type of the file system that `path` is on, from the longest mount point above it."""
    real = str(path.resolve())
    best, kind = "", "unknown"
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, point, name, *_ = line.split()
        if (real == point or real.startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
            best, kind = point, name
    return kind


def prepare(progress: Progress) -> None:
    """Load the modules that hosts share, note the global sysctls, and raise the one that hosts run out of."""
    if Path("/proc/modules").exists():
        for module in MODULES:
            tool(
                "modprobe", "-q", module, check=False
            )  # built in, or missing and then named by the host's own checks
    noted = state.ROOT / "sysctls"
    if not noted.exists():
        lines = [
            f"{key} {file.read_text().split()[0]}\n" for key in SYSCTLS if (file := _sysctl(key)).exists()
        ]
        noted.write_text("".join(lines))
        progress("noted the machine's global sysctls; `gpurack lab down` puts them back")
    if int(_sysctl(INOTIFY).read_text()) < INOTIFY_INSTANCES:
        _sysctl(INOTIFY).write_text(str(INOTIFY_INSTANCES))


def restore() -> None:
    """Put the global sysctls back as they were before the first host booted."""
    noted = state.ROOT / "sysctls"
    if not noted.exists():
        return
    for line in noted.read_text().splitlines():
        key, value = line.split()
        if _sysctl(key).read_text().split()[0] != value:
            _sysctl(key).write_text(value)
    noted.unlink()


def _sysctl(key: str) -> Path:
    return Path("/proc/sys") / key
