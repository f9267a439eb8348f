"""Container hosts: systemd-nspawn over an overlay of the root image, with their own cgroups and network."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterable
from pathlib import Path

from gpurack.lab import cgroups, lay, network
from gpurack.lab.process import alive, children, end, gone, reap, start, started, tool
from gpurack.lab.state import RackHost, recall, remember

# Plain directories: containerd's snapshotter can't put an overlay on the host's overlay.
PLAIN = ("containerd", "kubelet", "etcd")

_SYSTEM_CALLS = "@keyring bpf @privileged @mount @module"


def create(host: RackHost, root: Path, rack: Iterable[RackHost]) -> None:
    """Lay the host's own layer; what an earlier life left in it is dropped first."""
    erase(host)
    for name in ("upper", "work", "root", *(f"plain/{one}" for one in PLAIN)):
        (host.folder / name).mkdir(parents=True, exist_ok=True)
    lay.identity(host)
    lay.lay(host.folder / "upper", host, rack)
    remember(host, image=str(root), created=True)


def created(host: RackHost) -> bool:
    """Whether the host has a layer to boot from, complete, over a root image that is still in the cache."""
    facts = recall(host.name)
    return bool(facts.get("created")) and Path(facts.get("image", "/nonexistent")).is_dir()


def erase(host: RackHost) -> None:
    """Delete everything the host wrote. It must be stopped."""
    remember(host, created=False)
    for name in ("upper", "work", "plain"):
        shutil.rmtree(host.folder / name, ignore_errors=True)


def boot(host: RackHost) -> None:
    """Start the host; returns at once."""
    root = host.folder / "root"
    root.mkdir(parents=True, exist_ok=True)
    if not os.path.ismount(root):
        image = recall(host.name)["image"]
        layers = f"lowerdir={image},upperdir={host.folder}/upper,workdir={host.folder}/work"
        tool("mount", "-t", "overlay", "-o", layers, f"gpurack-lab-{host.name}", root)
    space = network.plug(host.name, host.address)
    modules = Path("/lib/modules") / os.uname().release
    argv = [
        "systemd-nspawn",
        "--quiet",
        "--register=no",
        "--keep-unit",
        "--boot",
        f"--directory={root}",
        f"--machine={host.name}",
        f"--network-namespace-path=/run/netns/{space}",
        "--resolv-conf=off",
        "--timezone=off",
        "--link-journal=no",
        "--console=read-only",
        "--capability=all",
        "--drop-capability=CAP_SYS_TIME",  # one clock for the machine and every host: none of them sets it
        f"--system-call-filter={_SYSTEM_CALLS}",
        "--bind=/dev/kmsg",
        *(f"--bind={host.folder}/plain/{name}:/var/lib/{name}" for name in PLAIN),
        *([f"--bind-ro={modules}"] if modules.is_dir() else []),
    ]
    environment = {
        "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "yes",
        "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1" if cgroups.unified() else "0",
    }
    pid = start(cgroups.entering(host.name, argv), host.folder / "console.log", environment)
    remember(host, pid=pid, started=started(pid))


def running(host: RackHost) -> bool:
    """Whether the recorded nspawn still runs."""
    facts = recall(host.name)
    return alive(facts.get("pid"), facts.get("started"))


def leader(host: RackHost) -> int | None:
    """Process id of the host's PID 1 as the machine sees it: nspawn's child."""
    facts = recall(host.name)
    if not running(host):
        return None
    found = children(int(facts["pid"]))
    return found[0] if found else None


def stop(host: RackHost, patience: float) -> None:
    """Power the host off; SIGKILL after `patience` seconds. Ends ghosts too: all that is left in its cgroups.

    The signal goes to PID 1 inside: a killed nspawn would leave the whole host running, invisible.
    """
    pid = recall(host.name).get("pid")
    first = leader(host)
    if first is not None:
        end(first, signal.SIGRTMIN + 4, patience)
        gone(int(pid or 0), 10.0)
    cgroups.kill(host.name)
    if pid:
        reap(int(pid))
    remember(host, pid=None, started=None)
    release(host)


def unmount(root: Path) -> None:
    """Unmount until nothing is mounted there."""
    while os.path.ismount(root):
        tool("umount", root)


def release(host: RackHost) -> None:
    """Give back mount, namespace and cgroups of a stopped host."""
    unmount(host.folder / "root")
    network.unplug(host.name)
    cgroups.remove(host.name)
