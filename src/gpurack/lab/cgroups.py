"""A cgroup of its own for every process tree that the lab starts: how each is found again and ended.

On cgroup v1 each controller gets `<base>/gpurack/<name>`; base is the hierarchy's root, except for memory,
where it is the cgroup this process is in (the memory root of a sandboxed machine is not ours to use). Where
v2 is mounted beside v1 (*hybrid*), its hierarchy gets one too: nspawn derives the host's cgroup from there,
and from the root would give every host the same one, to be swept at each one's boot. On v2 alone
it is `/sys/fs/cgroup/gpurack/<name>` with every controller delegated. nspawn's cgroup namespace makes it the
host's root.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from gpurack.lab.process import reap

MOUNT = Path("/sys/fs/cgroup")
OURS = "gpurack"
V1 = (
    "cpu",
    "cpuacct",
    "cpuset",
    "memory",
    "devices",
    "freezer",
    "blkio",
    "pids",
    "hugetlb",
    "perf_event",
    "systemd",
    "unified",  # a v2 hierarchy without controllers, where there is one
)


def unified() -> bool:
    """Whether the machine runs cgroup v2 alone."""
    return (MOUNT / "cgroup.controllers").exists()


def make(name: str) -> tuple[Path, ...]:
    """Make the cgroups of `name` in every hierarchy; the folders to enter."""
    if unified():
        for parent in (MOUNT, MOUNT / OURS):
            parent.mkdir(exist_ok=True)
            for controller in (parent / "cgroup.controllers").read_text().split():
                with suppress(
                    OSError
                ):  # one that the machine keeps to itself is missing for its hosts as well
                    (parent / "cgroup.subtree_control").write_text(f"+{controller}")
        folder = MOUNT / OURS / name
        folder.mkdir(exist_ok=True)
        return (folder,)
    made = []
    for base in _bases():
        parent = base
        for part in (OURS, name):
            folder = parent / part
            folder.mkdir(exist_ok=True)
            for file in (
                "cpuset.cpus",
                "cpuset.mems",
            ):  # empty at birth, and no process may enter while they are
                if (folder / file).exists() and not (folder / file).read_text().strip():
                    (folder / file).write_text((parent / file).read_text())
            parent = folder
        made.append(parent)
    return tuple(made)


def entering(name: str, argv: Sequence[str]) -> list[str]:
    """`argv` behind a shell that first moves itself into the cgroups of `name`, which are made."""
    files = [str(folder / "cgroup.procs") for folder in make(name)]
    script = 'n=$1; shift; while [ "$n" -gt 0 ]; do echo $$ > "$1"; shift; n=$((n-1)); done; exec "$@"'
    return ["/bin/sh", "-ec", script, "gpurack-lab", str(len(files)), *files, *argv]


def members(name: str | None = None) -> tuple[int, ...]:
    """Every living process in the cgroups of `name`, or of the whole rack: this is how ghosts are found."""
    found: set[int] = set()
    for folder in _folders(name):
        for procs in [folder / "cgroup.procs", *folder.rglob("cgroup.procs")]:
            try:
                found.update(int(line) for line in procs.read_text().split())
            except OSError:  # the cgroup went away, or is of a threaded kind
                continue
    return tuple(sorted(found - {0, os.getpid()}))


def names() -> tuple[str, ...]:
    """Names that have a cgroup now."""
    return tuple(
        sorted({entry.name for folder in _folders(None) for entry in folder.iterdir() if entry.is_dir()})
    )


def kill(name: str, patience: float = 10.0) -> tuple[int, ...]:
    """SIGKILL everything in the cgroups of `name`; what survived (nothing, unless the kernel holds it)."""
    until = time.monotonic() + patience
    while left := members(name):
        if time.monotonic() > until:
            return left
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.05)
        for pid in left:
            reap(pid)
    return ()


def remove(name: str | None = None, patience: float = 5.0) -> bool:
    """Remove the cgroups of `name`, or all of the rack's, deepest first. False when one is still in use."""
    until = time.monotonic() + patience
    while True:
        left = False
        for folder in _folders(name):
            for entry in sorted(_walk(folder), key=lambda path: len(path.parts), reverse=True):
                try:
                    entry.rmdir()
                except FileNotFoundError:
                    continue
                except OSError:  # a dying process is counted for a moment after it is gone
                    left = True
        if not left or time.monotonic() > until:
            return not left
        time.sleep(0.1)


def _walk(folder: Path) -> Iterator[Path]:
    for path, _, _ in os.walk(folder):
        yield Path(path)


def _bases() -> Iterator[Path]:
    """Folder in each v1 hierarchy under which our cgroups go."""
    here = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.removeprefix("name=").split(","):
            here[controller or "unified"] = path
    seen = set()
    for controller in V1:
        base = MOUNT / controller
        if not base.is_dir() or controller not in here or base.resolve() in seen:
            continue  # not mounted, or a second name of a hierarchy that was done (cpu,cpuacct)
        seen.add(base.resolve())
        yield base / here[controller].lstrip("/") if controller == "memory" else base


def _folders(name: str | None) -> tuple[Path, ...]:
    """Our folders in every hierarchy, also those made from another memory cgroup than today's."""
    tops = [MOUNT / OURS] if unified() else [MOUNT / controller / OURS for controller in V1]
    if not unified():
        tops += (MOUNT / "memory").glob(f"*/{OURS}")
        tops += (MOUNT / "memory").glob(f"*/*/{OURS}")
    parts = [top / name if name else top for top in tops]
    return tuple({part.resolve(): part for part in parts if part.is_dir()}.values())
