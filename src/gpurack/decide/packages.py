"""Exact package versions, in one transaction that nobody's package is removed by (R60, R69, R82, O-20..O-27).

The order of a run: `install` (is anything due, and may it be?), `refresh`, `judge_simulation`, `transaction`,
`proven`, then `holds.hold`. Each is a decision of its own, because each needs what the one before found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from debian_inspector.version import Version

from gpurack.decide import apt_run
from gpurack.decide.apt_messages import Heard, Log, hear
from gpurack.decide.decision import Decision, Disruption, Transact, refuse, settled
from gpurack.defaults import APT_INSTALL_DEADLINE, APT_LOCK_WAIT
from gpurack.errors import Problem

# What decides a node's Kubernetes version: on a member these change by a rollout only.
KUBERNETES = ("kubelet", "kubeadm", "kubectl")
MANAGED = (*KUBERNETES, "cri-tools", "kubernetes-cni", "containerd.io")

# Packages that are released together: one pin means all of them, or apt takes newer companions (O-26).
COMPANIONS: dict[str, tuple[str, ...]] = {
    "nvidia-container-toolkit": (
        "nvidia-container-toolkit-base",
        "libnvidia-container-tools",
        "libnvidia-container1",
    ),
}

# Two owners of one binary: installing one removes the other, and what runs on it (O-20, R82).
_RIVALS: dict[str, tuple[str, ...]] = {"containerd.io": ("containerd", "runc")}

_TRIGGERS = ("triggers-pending", "triggers-awaited")


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """One line of dpkg's database.

    + hold: selected to be kept; + state: `installed`, `half-configured`, ...
    """

    name: str
    version: str
    hold: bool
    state: str

    @property
    def half(self) -> bool:
        """Neither whole nor gone: a transaction was cut (O-27)."""
        return self.state not in ("installed", "config-files", "not-installed", *_TRIGGERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubelet:
    """+ enabled: UnitFileState; + active: ActiveState; + configured: config.yaml exists."""

    enabled: str = ""
    active: str = "inactive"
    configured: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Packages:
    """+ found: ours, their rivals, kernels, and whatever is held or not whole
    + dependants: installed packages that depend on `containerd`
    + binaries: containerd binaries in the usual folders -> owning package, or None
    + member: kubelet.conf exists, so the host is a node of a cluster
    + cut: our own last transaction did not get to its end."""

    found: Mapping[str, Package]
    dependants: tuple[str, ...] = ()
    binaries: Mapping[str, str | None] = field(default_factory=dict)
    member: bool = False
    kubelet: Kubelet = Kubelet()
    cut: bool = False

    def version(self, name: str) -> str | None:
        """The installed version, None when it is not installed as a whole."""
        package = self.found.get(name)
        return package.version if package and package.state in ("installed", *_TRIGGERS) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """What `apt-get -s install` would do. + available: package -> versions that the lists offer
    + installs: package -> (old version or None, new version)."""

    available: Mapping[str, tuple[str, ...]]
    installs: Mapping[str, tuple[str | None, str]]
    removes: tuple[str, ...]
    log: Log


def expand(pins: Mapping[str, str]) -> dict[str, str]:
    """`pins` with the companions of each package at the same version (O-26)."""
    every: dict[str, str] = {}
    for name, version in pins.items():
        every |= dict.fromkeys((name, *COMPANIONS.get(name, ())), version)
    return every | dict(pins)


def due(pins: Mapping[str, str], found: Packages) -> dict[str, str]:
    """Those of `pins` that are not installed, whole, at exactly that version."""
    return {name: version for name, version in expand(pins).items() if found.version(name) != version}


# ---------------------------------------------------------------------------------------- may it be done
def install(pins: Mapping[str, str], found: Packages) -> Decision:
    """Whether packages must be installed; if so, the steps that refresh apt's lists first.

    Refused: another Kubernetes version on a member (that is a rollout), a downgrade, a second containerd, and
    a host where somebody else's transaction was cut.
    """
    wanted = due(pins, found)
    problems = [
        *_members(wanted, found),
        *_downgrades(wanted, found),
        *_rivals(pins, found),
        *_strangers(found),
    ]
    if problems:
        return refuse(*problems)
    halves = [package.name for package in found.found.values() if package.half]
    if not wanted and not halves and not found.cut:
        return settled("every package is installed at its pinned version")
    return Decision(
        reason=_reason(wanted, halves, found),
        steps=(apt_run.free_locks(), apt_run.update()),
        disruption=_disruption(wanted, found),
    )


def _disruption(wanted: Mapping[str, str], found: Packages) -> Disruption:
    """Package scripts reload systemd (R80); those of another containerd restart it, under pods that run."""
    if "containerd.io" in wanted and found.version("containerd.io"):
        return Disruption.DRAIN
    return Disruption.UNIT_RELOAD


def _reason(wanted: Mapping[str, str], halves: list[str], found: Packages) -> str:
    parts = [f"{name} {version}, found {found.version(name) or 'none'}" for name, version in wanted.items()]
    if halves:
        parts.append(f"not whole after a cut transaction: {', '.join(halves)}")
    return "; ".join(parts) or "our last package transaction was cut"


def _members(wanted: Mapping[str, str], found: Packages) -> list[Problem]:
    return [
        Problem(
            code="E-PKG-01",
            what=f"this host is a node of a cluster with another {name}",
            found=f"{name} {found.version(name)}",
            wanted=f"{name} {wanted[name]}",
            rule="DESIGN.md: another Kubernetes version on a member is a rollout, never a by-product",
            next="pin what the node runs (stack.packages); upgrade by a rollout",
        )
        for name in KUBERNETES
        if found.member and name in wanted and found.version(name)
    ]


def _downgrades(wanted: Mapping[str, str], found: Packages) -> list[Problem]:
    problems = []
    for name, version in wanted.items():
        old = found.version(name)
        if (
            old
            and Version.from_string(version) < Version.from_string(old)
            and not (found.member and name in KUBERNETES)
        ):
            problems.append(
                Problem(
                    code="E-PKG-06",
                    what=f"{name} would be downgraded",
                    found=old,
                    wanted=version,
                    rule="O-26: a downgrade is a person's decision",
                    next=f"apt-get remove {name} on the host, or pin {old} in stack.packages",
                )
            )
    return problems


def _rivals(pins: Mapping[str, str], found: Packages) -> list[Problem]:
    problems = []
    for name, rivals in _RIVALS.items():
        there = [rival for rival in rivals if found.version(rival)]
        if name in pins and there:
            depending = f"; {', '.join(found.dependants)} depend on it" if found.dependants else ""
            problems.append(
                Problem(
                    code="E-PKG-07",
                    what=f"{' and '.join(there)} of the distribution would have to go for {name}",
                    found=", ".join(f"{rival} {found.version(rival)}" for rival in there) + depending,
                    wanted=f"{name} {pins[name]}",
                    rule="O-20, R82: they own the same binaries, and containers that run now would stop",
                    next=f"stop what runs there; apt-get remove {' '.join([*there, *found.dependants])}",
                )
            )
    strange = {
        path: owner
        for path, owner in found.binaries.items()
        if owner not in ("containerd.io", *_RIVALS["containerd.io"])
    }
    if "containerd.io" in pins and strange:
        problems.append(
            Problem(
                code="E-PKG-08",
                what="a second containerd is on the host",
                found=", ".join(f"{path} ({owner or 'of no package'})" for path, owner in strange.items()),
                wanted="one containerd, from containerd.io",
                rule="R82: two daemons, or a unit that runs the other one",
                next="remove the other one, its unit included (systemctl cat containerd)",
            )
        )
    return problems


def _strangers(found: Packages) -> list[Problem]:
    """Cut transactions of others are reported, not hidden by ours (O-27)."""
    halves = [p for p in found.found.values() if p.half and p.name not in MANAGED]
    if not halves or found.cut:
        return []
    return [
        Problem(
            code="E-PKG-09",
            what="a package transaction of somebody else was cut",
            found=", ".join(f"{package.name} is {package.state}" for package in halves),
            wanted="a package database without half-installed packages",
            rule="O-27",
            next="dpkg --audit; dpkg --configure -a",
        )
    ]


def judge_update(log: Log, keyrings: Iterable[tuple[str, str]]) -> Decision:
    """Whether the lists can be trusted after `apt-get update`, whatever it returned (O-21)."""
    return _heard(hear(log, keyrings), "the lists of packages are fresh")


def judge_simulation(pins: Mapping[str, str], found: Packages, simulated: Simulation) -> Decision:
    """Whether the transaction does what is meant and nothing else."""
    wanted = due(pins, found)
    problems = [
        Problem(
            code="E-PKG-02",
            what=f"{name} {version} is in no source",
            found=", ".join(simulated.available.get(name, ())[:5]) or f"no {name} at all",
            wanted=version,
            rule="O-26",
            next="pin a version that is there, or correct sources in the site document",
        )
        for name, version in wanted.items()
        if version not in simulated.available.get(name, ())
    ]
    if problems:
        return refuse(*problems)
    heard = hear(simulated.log)
    foreign = [
        name
        for name in simulated.installs
        if name in found.found and found.found[name].hold and name not in wanted
    ]
    if simulated.removes:
        problems.append(
            Problem(
                code="E-PKG-03",
                what="installing the pinned packages would remove others",
                found=", ".join(simulated.removes),
                wanted="a transaction that removes nothing",
                rule="O-20",
                next="look at the conflict (apt-get -s install ...), remove them yourself if you mean to",
            )
        )
    if foreign:
        problems.append(
            Problem(
                code="E-PKG-04",
                what="installing the pinned packages would change what the administrator holds",
                found=", ".join(foreign),
                wanted="holds of others untouched",
                rule="O-23",
                next="look at the dependency, release the hold yourself if you mean to (apt-mark unhold)",
            )
        )
    if problems or heard.problems:
        return refuse(*problems, *heard.problems)
    upgrades = [
        f"{n} {old} -> {new}" for n, (old, new) in simulated.installs.items() if old and n not in wanted
    ]
    notes = (f"dependencies change as well: {', '.join(upgrades)}",) if upgrades else ()
    return settled("the transaction installs what is meant and removes nothing", notes=notes)


def transaction(pins: Mapping[str, str], found: Packages) -> Decision:
    """One transaction for everything that is due.

    Only packages of ours are released for it, and they are held again whatever comes of it (O-23). What a
    cut transaction of ours left half-configured is finished first.
    """
    wanted = due(pins, found)
    halves = [package.name for package in found.found.values() if package.half]
    script = apt_run.install(
        wanted,
        release=[name for name in wanted if name in found.found and found.found[name].hold],
        hold=expand(pins),
        finish=found.cut or bool(halves),
    )
    return Decision(
        reason=_reason(wanted, halves, found),
        steps=(
            Transact(
                unit="packages",
                script=script,
                why=f"install {', '.join(wanted) or 'what was left unfinished'}",
                deadline=APT_INSTALL_DEADLINE + APT_LOCK_WAIT,
            ),
        ),
        disruption=_disruption(wanted, found),
    )


def proven(pins: Mapping[str, str], log: Log, found: Packages) -> Decision:
    """The proof after `transaction`: every package whole, at its version (O-26, O-27)."""
    heard = hear(log)
    missing = [
        Problem(
            code="E-PKG-10",
            what=f"{name} is not installed as pinned",
            found=f"{found.found[name].version} {found.found[name].state}"
            if name in found.found
            else "nothing",
            wanted=version,
            rule="O-26",
            next="/var/log/gpurack/packages.log on the host; dpkg --audit",
        )
        for name, version in due(pins, found).items()
    ]
    if missing:
        return refuse(*heard.problems, *missing)
    return _heard(heard, "every package is installed at its pinned version")


def _heard(heard: Heard, good: str) -> Decision:
    if heard.problems:
        return refuse(*heard.problems)
    return settled(good, notes=heard.notes)
