"""Helpers of the distribution that would restart or replace what a node runs on (R68, R69).

needrestart restarts services after any apt transaction, also those of others; unattended-upgrades brings
kernels and drivers overnight. Both read these files; where they are not installed, the files wait for them.
"""

from __future__ import annotations

from gpurack.decide.decision import Write
from gpurack.decide.packages import MANAGED

NEEDRESTART_FILE = "/etc/needrestart/conf.d/gpurack.conf"
UNATTENDED_FILE = "/etc/apt/apt.conf.d/52gpurack-unattended-upgrades"
FILES = (NEEDRESTART_FILE, UNATTENDED_FILE)

# Units that are never restarted behind a person's back. Perl patterns on unit names.
_UNITS = ("containerd", "kubelet", "docker", "crio", "nvidia-.+", "dcgm.*", "nv-hostengine")
# Python patterns on package names, matched from the beginning; `$` keeps a name whole.
_KERNEL = ("linux-image", "linux-headers", "linux-modules", "linux-generic")
_DRIVER = ("nvidia-", "libnvidia-")


def files(role: str) -> tuple[Write, ...]:
    """Both files. On GPU nodes kernel and driver are kept as well: a driver that no longer fits its kernel or
    its library takes all GPUs of the host away (R69)."""
    return (
        Write(path=NEEDRESTART_FILE, content=_needrestart()),
        Write(path=UNATTENDED_FILE, content=_unattended(role)),
    )


def _needrestart() -> str:
    lines = ["# Managed by gpurack (role base); changes here are put back.\n"]
    lines += [f"$nrconf{{override_rc}}{{qr(^{unit}\\.service$)}} = 0;\n" for unit in _UNITS]
    return "".join(lines)


def _unattended(role: str) -> str:
    kept = [f"{name}$" for name in MANAGED]
    if role == "gpu":
        kept += [*_KERNEL, *_DRIVER]
    body = "".join(f'    "{pattern}";\n' for pattern in kept)
    # A list of this name is added to, not replaced: the administrator's own stays.
    return (
        "// Managed by gpurack (role base); changes here are put back.\n"
        f"Unattended-Upgrade::Package-Blacklist {{\n{body}}};\n"
    )
