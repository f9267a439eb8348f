"""Kernel modules and sysctls, now and after the next boot (R63, O-42).

The order is what counts: a bridge key does not exist before its module is loaded, and the file that sorts
last wins at boot, whatever a file of ours says. Ours sorts after the usual `99-...`; one that sorts later
still and says something else is a refusal that names the file and the line.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from dataclasses import dataclass

from gpurack.decide.decision import Decision, Run, Step, Write, refuse, settled
from gpurack.decide.platform import SHARED_KERNEL
from gpurack.errors import Problem

MODULES_FILE = "/etc/modules-load.d/gpurack.conf"
SYSCTL_FILE = "/etc/sysctl.d/99-zzz-gpurack.conf"
FORWARD, FORWARD6 = "net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"
BRIDGE = ("net.bridge.bridge-nf-call-iptables", "net.bridge.bridge-nf-call-ip6tables")
MODULES = ("overlay", "br_netfilter")
KEYS = (FORWARD, *BRIDGE, FORWARD6)
_HEADER = "# Managed by gpurack (role base); changes here are put back.\n"
_ASSIGNMENT = re.compile(r"\s*(?P<may_fail>-?)\s*(?P<key>[^\s=#;][^\s=]*)\s*=\s*(?P<value>.*?)\s*")

# Two names of one setting: writing either changes the other.
_ALIASES = {"net.ipv4.conf.all.forwarding": "net.ipv4.ip_forward"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """+ modules: in the order in which they are loaded; + sysctls: dotted key -> value."""

    modules: tuple[str, ...]
    sysctls: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """+ loaded: present now, as a module or built into the kernel
    + available: the running kernel's tree has a file for it."""

    name: str
    loaded: bool
    available: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A key under /proc/sys. + value: None while it does not exist."""

    key: str
    value: str | None
    writable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """A file that is applied at boot, later ones over earlier ones."""

    path: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """+ tree: /lib/modules has a folder for the running kernel
    + files: sysctl files in the order in which they are applied at boot
    + modules_file: content of ours, None when missing; + container: the kernel is a machine's beneath."""

    release: str
    tree: bool
    modules: tuple[Module, ...]
    settings: tuple[Setting, ...]
    files: tuple[ConfigFile, ...]
    modules_file: str | None
    container: bool


@dataclass(frozen=True, slots=True)
class Line:
    """One assignment in a sysctl file."""

    path: str
    number: int
    key: str
    value: str

    def __str__(self) -> str:
        return f"{self.path}:{self.number} {self.key} = {self.value}"


def wanted(*, ipv6: bool) -> Wanted:
    """What a node needs.

    `ip_forward` is what kubeadm asks for. `br_netfilter` and its keys are for CNIs that put pods on a Linux
    bridge; others don't mind, and a bridge CNI without them loses service traffic silently (R63).

    + ipv6: whether pods have IPv6 addresses
    """
    keys = KEYS if ipv6 else (FORWARD, *BRIDGE)
    return Wanted(modules=MODULES, sysctls=dict.fromkeys(keys, "1"))


def modules_text(want: Wanted) -> str:
    return _HEADER + "".join(f"{name}\n" for name in want.modules)


def sysctl_text(want: Wanted) -> str:
    return _HEADER + "".join(f"{key} = {value}\n" for key, value in want.sysctls.items())


def assignments(file: ConfigFile) -> tuple[Line, ...]:
    """The live assignments of a sysctl file, keys dotted."""
    found = []
    for number, text in enumerate(file.text.splitlines(), start=1):
        match = _ASSIGNMENT.fullmatch(text)
        if match:
            key = _dotted(match["key"])
            found.append(Line(file.path, number, _ALIASES.get(key, key), match["value"]))
    return tuple(found)


def _dotted(key: str) -> str:
    """sysctl.d accepts `net/ipv4/ip_forward`; with a slash first, dots are part of names."""
    first = re.search(r"[./]", key)
    if first and first[0] == "/":
        return key.replace(".", "\0").replace("/", ".").replace("\0", "/")
    return key


def overrides(want: Wanted, files: tuple[ConfigFile, ...]) -> tuple[tuple[Line, ...], tuple[Line, ...]]:
    """Other people's lines that set a wanted key to another value: those our file wins over, those that win.

    With our file not there yet, its place is where it will sort.
    """
    before: list[Line] = []
    after: list[Line] = []
    passed = False
    for file in files:
        if file.path == SYSCTL_FILE:
            passed = True
            continue
        sorted_by_name = "/sysctl.d/" in file.path
        beaten = not passed and sorted_by_name and _name(file.path) < _name(SYSCTL_FILE)
        for line in assignments(file):
            for key, value in want.sysctls.items():
                if fnmatch.fnmatchcase(key, line.key) and line.value != value:
                    # An explicit key beats a pattern, wherever the pattern stands (sysctl.d(5)).
                    (before if beaten or line.key != key else after).append(line)
    return tuple(before), tuple(after)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def apply(want: Wanted, accept: frozenset[str], found: Kernel) -> Decision:
    """What it takes to have the modules and values now and after a boot.

    With `shared-kernel` accepted, what a container host can't have or change is said and not refused.
    """
    foreign = found.container and SHARED_KERNEL in accept
    problems, notes = [], []
    missing = [m for m in found.modules if not m.loaded and not m.available]
    for module in missing:
        if foreign:
            notes.append(
                f"module {module.name} is not loaded and can't be from here (accepted {SHARED_KERNEL})"
            )
        else:
            problems.append(_no_module(module, found))
    beaten, winning = overrides(want, found.files)
    problems += [
        Problem(
            code="E-SYSCTL-02",
            what=f"another file undoes {line.key} at the next boot",
            found=str(line),
            wanted=f"{line.key} = {want.sysctls[line.key]} (ours: {SYSCTL_FILE})",
            rule="R63, O-42: the file that sorts last wins",
            next=f"remove line {line.number} of {line.path}",
        )
        for line in winning
    ]
    notes += [f"{SYSCTL_FILE} wins over {line}" for line in beaten]
    steps, stuck = _steps(want, found, tuple(module.name for module in missing))
    for setting in stuck:
        text = f"{setting.key} is {setting.value or 'missing'}, wanted {want.sysctls[setting.key]}"
        if foreign:
            notes.append(f"{text}; it can't be changed from here (accepted {SHARED_KERNEL})")
        elif not missing:
            problems.append(_read_only(setting, want))
    if problems:
        return refuse(*problems)
    if not steps:
        return settled("modules and sysctls are as wanted", notes=tuple(notes))
    wrong = [
        f"{setting.key} is {setting.value}"
        for setting in found.settings
        if setting.value not in (None, want.sysctls.get(setting.key, setting.value))
    ]
    reason = "; ".join(wrong) or "modules and sysctls must be there after a boot as well"
    return Decision(reason=f"{reason} (R63)", steps=tuple(steps), notes=tuple(notes))


def _steps(want: Wanted, found: Kernel, missing: tuple[str, ...]) -> tuple[list[Step], list[Setting]]:
    """Steps in order (module before value), and the settings that no step can change."""
    steps: list[Step] = []
    if found.modules_file != modules_text(want):
        steps.append(Write(path=MODULES_FILE, content=modules_text(want)))
    loading = [module.name for module in found.modules if not module.loaded and module.name not in missing]
    steps += [Run(script=f"modprobe {name}", why=f"load {name}") for name in loading]
    ours = next((file.text for file in found.files if file.path == SYSCTL_FILE), None)
    if ours != sysctl_text(want):
        steps.append(Write(path=SYSCTL_FILE, content=sysctl_text(want)))
    stuck = []
    for setting in found.settings:
        value = want.sysctls.get(setting.key)
        if value is None or setting.value == value:
            continue
        if setting.writable or (setting.value is None and loading):
            target = "/proc/sys/" + setting.key.replace(".", "/")
            steps.append(Run(script=f"printf '%s\\n' {value} >{target}", why=f"set {setting.key} = {value}"))
        else:
            stuck.append(setting)
    return steps, stuck


def _no_module(module: Module, found: Kernel) -> Problem:
    if found.tree:
        cause = f"/lib/modules/{found.release} has no {module.name}"
        cure = f"install the package with the kernel's further modules (linux-modules-extra-{found.release})"
    else:
        cause = f"/lib/modules/{found.release} does not exist: the running kernel's package is gone"
        cure = "reboot into the installed kernel"
    return Problem(
        code="E-SYSCTL-01",
        what=f"kernel module {module.name} can't be loaded: reboot pending or modules package missing",
        found=cause,
        wanted=f"{module.name} loaded or built in",
        rule="R63, O-42",
        next=cure,
    )


def _read_only(setting: Setting, want: Wanted) -> Problem:
    return Problem(
        code="E-SYSCTL-03",
        what=f"{setting.key} can't be set",
        found=f"{setting.value or 'no such key'}, not writable",
        wanted=want.sysctls[setting.key],
        rule="R63",
        next="find out what locks /proc/sys on this host (container, lockdown)",
    )
