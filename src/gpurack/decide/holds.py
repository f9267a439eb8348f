"""What keeps packages from moving by themselves, and kubelet from running too early (R59, R69, O-23)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from shlex import quote

from gpurack.decide import apt_run
from gpurack.decide.decision import Decision, Run, Step, Unit, settled
from gpurack.decide.packages import MANAGED, Packages

# Kernel metapackages: an unattended kernel leaves a node whose driver does not fit after a reboot (R69).
_KERNEL = re.compile(
    r"linux-(?:(?:image|headers|modules-extra)-)?(?:generic|virtual|lowlatency|nvidia|oem|kvm"
    r"|aws|azure|gcp|oracle|amd64|arm64|cloud-amd64|cloud-arm64)(?:-(?:hwe|64k|edge|open|\d\d\.\d\d[a-z]?))*"
)


def kernels(found: Packages) -> tuple[str, ...]:
    """Installed kernel metapackages (R69)."""
    return tuple(sorted(name for name in found.found if _KERNEL.fullmatch(name) and found.version(name)))


def hold(names: Iterable[str], found: Packages) -> Decision:
    """Hold those of `names` that are installed and not held. Nobody else's hold is touched (R69, O-23)."""
    missing = [name for name in names if found.version(name) and not found.found[name].hold]
    ours = (*MANAGED, *kernels(found))
    others = sorted(
        package.name for package in found.found.values() if package.hold and package.name not in ours
    )
    notes = (f"held by the administrator, left alone: {', '.join(others)}",) if others else ()
    if not missing:
        return settled("held as wanted", notes=notes)
    return Decision(
        reason=f"an upgrade by hand or unattended would change {', '.join(missing)} (R69)",
        steps=(
            apt_run.free_locks(),
            Run(
                script=f"apt-mark hold {' '.join(quote(name) for name in missing)}",
                why=f"hold {', '.join(missing)}",
            ),
        ),
        notes=notes,
    )


def kubelet_waits(found: Packages) -> Decision:
    """An installed kubelet is enabled, and does not run before the host joins (R59)."""
    if not found.version("kubelet") or found.member or found.kubelet.configured:
        return settled("kubelet is the join's business from here on")
    steps: list[Step] = []
    if found.kubelet.active in ("active", "activating", "reloading"):
        steps.append(Unit(name="kubelet.service", verb="stop"))
    if found.kubelet.enabled == "masked":
        steps.append(Unit(name="kubelet.service", verb="unmask"))
    if found.kubelet.enabled != "enabled":
        steps.append(Unit(name="kubelet.service", verb="enable"))
    if not steps:
        return settled("kubelet is enabled and waits for the join")
    return Decision(
        reason=f"not joined; kubelet is {found.kubelet.enabled or 'unknown'}, {found.kubelet.active} (R59)",
        steps=tuple(steps),
    )
