"""What the lab lays on a host from outside before it boots: identity, the way in, the deviations' files.

The same for both kinds: into the overlay's upper folder for a container, into the image for a guest.
"""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Iterable
from pathlib import Path

from gpurack.lab import deviations, network, simulated
from gpurack.lab.process import tool
from gpurack.lab.state import KEY, SSH, RackHost

# On the host. Not /usr/local/lib/gpurack, which is the product's own.
FILES = "usr/lib/gpurack-lab"
UNIT = "gpurack-lab-hardware.service"

_UNIT = f"""\
# Laid by gpurack's lab from outside (see `gpurack lab status`); no part of the product.
[Unit]
Description=Simulated and per-host hardware of gpurack's lab
DefaultDependencies=no
RequiresMountsFor=/run
Before=sysinit.target systemd-udevd.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh /{FILES}/hardware

[Install]
WantedBy=sysinit.target
"""

# Idempotent: a restart of the unit mounts nothing twice.
_HARDWARE = f"""\
# Laid by gpurack's lab from outside; no part of the product.
set -eu
here=/{FILES}
label=gpurack-simulated

# simulated PCI functions, with the real ones still among them
bus=/sys/bus/pci/devices
if [ -d "$here/pci" ] && [ -d "$bus" ] && ! grep -q "^$label $bus " /proc/mounts; then
    kept=/run/gpurack-lab/pci
    mkdir -p "$kept"
    cp -P "$bus"/* "$kept/"
    mount -t tmpfs -o mode=755 "$label" "$bus"
    cp -P "$kept"/* "$bus/"
    cp -r "$here/pci/." "$bus/"
    rm -r "$kept"
fi

# a container only: sysfs as its own network namespace sees it, and firmware's UUID
if [ -e "$here/product_uuid" ] && ! grep -q " /sys/devices " /proc/mounts; then
    own=/run/gpurack-lab/sys
    mkdir -p "$own"
    mount -t sysfs -o nosuid,nodev,noexec sysfs "$own"
    mount --bind "$own/devices" /sys/devices
    if [ -e "$own/class/dmi/id/product_uuid" ]; then
        mount --bind "$own/class" /sys/class
        mount --bind "$here/product_uuid" "$(readlink -f /sys/class/dmi/id/product_uuid)"
    else
        # a machine without DMI has no folder for it: /sys/class gets one more entry
        mount -t tmpfs -o mode=755 "$label" /sys/class
        for class in "$own"/class/*; do
            mkdir "/sys/class/${{class##*/}}"
            mount --bind "$class" "/sys/class/${{class##*/}}"
        done
        mkdir -p /sys/class/dmi/id
        install -m 0400 "$here/product_uuid" /sys/class/dmi/id/product_uuid
        echo "gpurack lab" > /sys/class/dmi/id/sys_vendor
        echo "simulated" > /sys/class/dmi/id/product_name
    fi
    umount "$own"
fi

# memory totals of NUMA nodes, frozen
for copy in "$here"/node*.meminfo; do
    [ -e "$copy" ] || continue
    name=${{copy##*/}}; at=/sys/devices/system/node/${{name%.meminfo}}/meminfo
    grep -q " $at " /proc/mounts || mount --bind "$copy" "$at"
done

# cgroup v1: nspawn leaves the controllers read-only
if [ ! -e /sys/fs/cgroup/cgroup.controllers ]; then
    for controller in /sys/fs/cgroup/*; do
        [ -L "$controller" ] || mountpoint -q "$controller" && mount -o remount,bind,rw "$controller" || :
    done
fi
"""

# Sorted before every drop-in of the product: what the machine can't do must not hide what the product sets.
_NO_OOM_ADJUST = """\
# Laid by gpurack's lab from outside: this machine may not lower oom scores (deviation no-oom-adjust).
version = 3

[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
"""

_MASKED_IN_CONTAINERS = (
    "systemd-udevd.service",
    "systemd-udev-trigger.service",  # would replay the machine's own device events
    "systemd-udevd-kernel.socket",
    "systemd-udevd-control.socket",
    # of the shared kernel; several hosts that mount them at one moment make each other fail
    "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount",
    "sys-fs-fuse-connections.mount",
    "console-getty.service",
    "systemd-networkd-wait-online.service",
)

# On cgroup v1 a container is not told that a cgroup became empty: a user's manager, which ends ten seconds
# after the last logout, may count as "still around" for minutes, and every login of that user waits for it.
_LOGIND = "# Laid by gpurack's lab (deviation cgroup-v1).\n[Login]\nUserStopDelaySec=infinity\n"


def identity(host: RackHost) -> None:
    """Make once what outlives resets: ssh host key, firmware UUID, frozen memory figures."""
    host.identity.mkdir(parents=True, exist_ok=True)
    key = host.identity / "ssh_host_ed25519_key"
    if not key.with_suffix(".pub").exists():
        key.unlink(missing_ok=True)
        tool("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"root@{host.name}", "-f", key)
    if not (host.identity / "product_uuid").exists():
        (host.identity / "product_uuid").write_text(f"{uuid.uuid4()}\n")
    if host.kind == "container" and not list(host.identity.glob("node*.meminfo")):
        for name, text in frozen_meminfo().items():
            (host.identity / f"{name}.meminfo").write_text(text)


def frozen_meminfo(
    nodes: Path = Path("/sys/devices/system/node"), total: Path = Path("/proc/meminfo")
) -> dict[str, str]:
    """Contents for each node's meminfo. One node alone gets the machine's own total: with memory hotplug the
    node's file may lack half of it, and kubelet compares the two."""
    files = {file.parent.name: file.read_text() for file in sorted(nodes.glob("node[0-9]*/meminfo"))}
    if len(files) == 1:
        sums = dict(re.findall(r"^(\w+): +(\d+) kB$", total.read_text(), re.MULTILINE))
        for name in files:
            for field in ("MemTotal", "MemFree"):
                files[name] = re.sub(rf"({field}:\s+)\d+", rf"\g<1>{sums[field]}", files[name])
            used = int(sums["MemTotal"]) - int(sums["MemFree"])
            files[name] = re.sub(r"(MemUsed:\s+)\d+", rf"\g<1>{used}", files[name])
    return files


def way_in() -> None:
    """Make the key by which the rack is entered, once."""
    SSH.mkdir(parents=True, exist_ok=True)
    SSH.chmod(0o700)
    if not KEY.with_suffix(".pub").exists():
        KEY.unlink(missing_ok=True)
        tool("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "gpurack-lab", "-f", KEY)


def lay(folder: Path, host: RackHost, rack: Iterable[RackHost]) -> None:
    """Write the host's files under `folder`, which stands for its `/`. machine-id is new each time (R56)."""
    names = "".join(f"{one.address} {one.name}\n" for one in rack if one.name != host.name)
    _write(folder, "etc/hostname", f"{host.name}\n")
    _write(folder, "etc/hosts", f"127.0.0.1 localhost\n::1 localhost\n{host.address} {host.name}\n{names}")
    _write(
        folder,
        "etc/resolv.conf",
        f"# the rack has no DNS server: it answers by refusing\nnameserver {network.GATEWAY}\n",
    )
    _write(folder, "etc/machine-id", f"{uuid.uuid4().hex}\n", 0o444)
    _write(folder, "root/.ssh/authorized_keys", KEY.with_suffix(".pub").read_text(), 0o600)
    (folder / "root").chmod(0o700)
    (folder / "root/.ssh").chmod(0o700)
    for file, mode in (("ssh_host_ed25519_key", 0o600), ("ssh_host_ed25519_key.pub", 0o644)):
        _write(folder, f"etc/ssh/{file}", (host.identity / file).read_text(), mode)
    _write(folder, "etc/ssh/sshd_config.d/lab.conf", "HostKey /etc/ssh/ssh_host_ed25519_key\nUseDNS no\n")
    _hardware(folder, host)
    if host.kind == "container":
        for unit in _MASKED_IN_CONTAINERS:
            _link(folder, f"etc/systemd/system/{unit}", "/dev/null")
        _write(folder, "etc/systemd/logind.conf.d/lab.conf", _LOGIND)
        if deviations.lacks_sys_resource():
            _write(folder, "etc/containerd/conf.d/10-lab.toml", _NO_OOM_ADJUST)
    else:
        _guest(folder, host)


def _hardware(folder: Path, host: RackHost) -> None:
    shutil.rmtree(folder / FILES, ignore_errors=True)
    _write(folder, f"{FILES}/hardware", _HARDWARE)
    _write(folder, f"etc/systemd/system/{UNIT}", _UNIT)
    _link(folder, f"etc/systemd/system/sysinit.target.wants/{UNIT}", f"../{UNIT}")
    if host.kind == "container":
        _write(folder, f"{FILES}/product_uuid", (host.identity / "product_uuid").read_text(), 0o400)
        for file in host.identity.glob("node*.meminfo"):
            _write(folder, f"{FILES}/{file.name}", file.read_text(), 0o444)
    if host.gpus:
        # a container's functions hang on nodes that the machine has; a guest has two
        nodes = len(list(host.identity.glob("node*.meminfo"))) or 1 if host.kind == "container" else 2
        simulated.lay(folder / FILES / "pci", host.gpus, nodes)


def _guest(folder: Path, host: RackHost) -> None:
    _write(folder, "etc/fstab", "/dev/vda / ext4 defaults 0 1\n")
    _write(
        folder,
        "etc/systemd/network/10-lab.network",
        f"[Match]\nName=eth0\n\n[Network]\nAddress={host.address}/{network.LENGTH}\nGateway={network.GATEWAY}\n"
        "IPv6AcceptRA=no\nLinkLocalAddressing=no\n",
    )
    _link(
        folder,
        "etc/systemd/system/multi-user.target.wants/systemd-networkd.service",
        "/lib/systemd/system/systemd-networkd.service",
    )


def _write(folder: Path, path: str, text: str, mode: int = 0o644) -> None:
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    file.touch(mode=mode)
    file.chmod(mode)
    file.write_text(text)


def _link(folder: Path, path: str, target: str) -> None:
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    file.symlink_to(target)
