"""The root file system of the rack's hosts: Debian 12 by mmdebstrap, built once for each recipe and kept.

One image serves both kinds: containers put an overlay over it, guests boot from an ext4 image made of it,
with the kernel that lies in it. It holds what a freshly installed server has (systemd, sshd, sudo, apt,
firewall and disk tools) and what the debs of Kubernetes depend on, because the rack has no Debian archive; it
holds nothing of Kubernetes.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from pathlib import Path

from gpurack import defaults
from gpurack.lab.process import Progress, tool
from gpurack.lab.state import known, locked, recall

SUITE = "bookworm"
ROOTS = Path(defaults.LAB_CACHE) / "roots"

PACKAGES = (
    # a host
    *("systemd", "systemd-sysv", "dbus", "libpam-systemd", "libnss-myhostname", "udev", "kmod"),
    *("openssh-server", "sudo", "passwd", "login", "procps", "psmisc", "lsof", "less", "logrotate", "chrony"),
    # its packages
    *("apt", "gpg", "gpgv", "ca-certificates", "curl", "debconf", "needrestart"),
    # its network
    *(
        "iproute2",
        "iputils-ping",
        "netbase",
        "iptables",
        "nftables",
        "ebtables",
        "conntrack",
        "ethtool",
        "socat",
    ),
    # its hardware
    *("util-linux", "mount", "e2fsprogs", "pciutils", "numactl"),
    # python3-minimal has no json module: hosts are not scripted in Python
    *("python3-minimal", "libseccomp2"),
    # for the guests
    *("linux-image-cloud-amd64", "initramfs-tools"),
)

# Run against the new root ($1). Host keys and machine-id out of packaging would be one for all hosts (R56).
_HOOKS = (
    'rm -f "$1"/etc/ssh/ssh_host_*',
    ': > "$1/etc/machine-id"; rm -f "$1/var/lib/dbus/machine-id"',
    ': > "$1/etc/apt/sources.list"; rm -rf "$1"/var/lib/apt/lists/*',
    'printf "Acquire::Languages \\"none\\";\\n" > "$1/etc/apt/apt.conf.d/90languages"',
    # timers of a desktop; under emulation each costs seconds, and there is no archive to look at
    (
        'cd "$1/etc/systemd/system/timers.target.wants" && '
        "rm -f apt-daily.timer apt-daily-upgrade.timer man-db.timer e2scrub_all.timer fstrim.timer"
    ),
    'mkdir -p "$1/var/log/journal"',  # a server keeps its journal over a reboot
)
_LEFT_OUT = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/info/*")

# Only what the guest's disk needs: a third of the initrd, and of the seconds it takes to unpack
_INITRAMFS = "MODULES=list\\nCOMPRESS=lz4\\n"
_INITRAMFS_MODULES = "virtio_pci\\nvirtio_blk\\next4\\n"


def recipe() -> str:
    """Twelve hex digits over everything that decides what is in the image."""
    text = repr((SUITE, PACKAGES, _HOOKS, _LEFT_OUT, _INITRAMFS, _INITRAMFS_MODULES))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def folder() -> Path:
    """Where the image of the present recipe lies, or will lie."""
    return ROOTS / recipe()


def ensure(progress: Progress) -> Path:
    """The root image; built (40 s to 2 min) when the cache has none. It appears whole or not at all."""
    root = folder()
    if root.is_dir():
        return root
    with locked("root", wait=True):
        if root.is_dir():  # another run has built it meanwhile
            return root
        ROOTS.mkdir(parents=True, exist_ok=True)
        for stale in ROOTS.glob("*.new"):
            shutil.rmtree(stale)
        progress(f"building the hosts' root image ({len(PACKAGES)} packages; one or two minutes, once)")
        begun = time.monotonic()
        new = root.with_suffix(".new")
        tool(
            "mmdebstrap",
            "--quiet",
            "--variant=minbase",
            "--include=" + ",".join(PACKAGES),
            *(f"--dpkgopt=path-exclude={path}" for path in _LEFT_OUT),
            *(
                f'--essential-hook=mkdir -p "$1/etc/initramfs-tools/conf.d" && '
                f'printf "{text}" >> "$1/etc/initramfs-tools/{file}"'
                for file, text in (("conf.d/lab", _INITRAMFS), ("modules", _INITRAMFS_MODULES))
            ),
            *(f"--customize-hook={hook}" for hook in _HOOKS),
            SUITE,
            new,
            *_archive(),
            timeout=1800,
        )
        new.rename(root)
        _prune()
        progress(f"root image built in {time.monotonic() - begun:.0f} s")
    return root


def _prune() -> None:
    """Delete images of earlier recipes that no host is laid over."""
    used = {recall(host.name).get("image") for host in known()}
    for old in ROOTS.iterdir():
        if old.is_dir() and old != folder() and str(old) not in used:
            shutil.rmtree(old)


def _archive() -> tuple[str, ...]:
    """The machine's own Debian archive where it has this suite; else nothing: mmdebstrap's default."""
    listed = tool(
        "apt-get",
        "indextargets",
        "--format",
        "deb $(REPO_URI) $(RELEASE) $(COMPONENT)",
        "Created-By: Packages",
        "Origin: Debian",
        check=False,
    )
    lines = [line for line in dict.fromkeys(listed.splitlines()) if line.split()[2].startswith(SUITE)]
    return tuple(lines) if any(line.split()[2] == SUITE for line in lines) else ()
