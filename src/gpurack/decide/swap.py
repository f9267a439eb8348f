"""No swap now, and none after the next boot (R62, O-40, O-41).

kubelet exits with any line in /proc/swaps. Sources: fstab, `.swap` units of packages and administrators, the
GPT and zram generators, and services that make swap by themselves.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from shlex import quote

from gpurack.decide.decision import Decision, Disruption, Run, Step, Write, refuse, settled
from gpurack.decide.platform import SHARED_KERNEL
from gpurack.errors import Problem

FSTAB = "/etc/fstab"
_MARK = "# swap off by gpurack: "
_FIELDS = re.compile(r"\s*(?P<what>[^#\s]\S*)\s+(?P<where>\S+)\s+(?P<type>\S+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Active:
    """One line of /proc/swaps. Bytes."""

    path: str
    size: int
    used: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapUnit:
    """A `.swap` unit, or a service that makes swap.

    + active: its ActiveState
    + file: what `is-enabled` says (`enabled`, `generated`, `static`, `masked`, ...), empty without a file
    + source: SourcePath, what a generator made it from
    """

    name: str
    active: str
    file: str
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """+ fstab: its text, None when there is no such file; + units: `.swap` units and swap services
    + available: MemAvailable, bytes; + container: the kernel belongs to a machine beneath."""

    active: tuple[Active, ...]
    fstab: str | None
    units: tuple[SwapUnit, ...]
    available: int
    container: bool


def without_swap(fstab: str) -> str:
    """`fstab` with its live lines of type `swap` commented out, everything else byte for byte (O-41)."""
    return "".join(_MARK + line if _is_swap(line) else line for line in fstab.splitlines(keepends=True))


def _is_swap(line: str) -> bool:
    fields = _FIELDS.match(line)
    return fields is not None and fields["type"] == "swap"


def returning(found: Swap, *, foreign: bool = False) -> tuple[SwapUnit, ...]:
    """Units that would bring swap back at the next boot and that fstab does not explain (O-40).

    + foreign: running swap belongs to the machine beneath, so units without a file are not this host's
    """
    return tuple(unit for unit in found.units if _returns(unit, foreign=foreign))


def _returns(unit: SwapUnit, *, foreign: bool) -> bool:
    if unit.file.startswith("masked") or unit.source == FSTAB:
        return False
    if unit.file.startswith("enabled") or unit.file == "generated":
        return True
    # systemd makes a unit without a file for every line of /proc/swaps that it did not start itself.
    return unit.active == "active" and not (foreign and not unit.file)


def off(accept: frozenset[str], found: Swap) -> Decision:
    """What it takes to have no swap, now and at every boot.

    On a container host that the site accepts (`shared-kernel`), running swap is the machine's and is only
    named. Turning swap off on a live node moves its pages into memory that pods may need: class drain.
    """
    foreign = found.container and SHARED_KERNEL in accept
    active = () if foreign else found.active
    notes: tuple[str, ...] = ()
    if foreign and found.active:
        names = ", ".join(swap.path for swap in found.active)
        notes = (f"swap belongs to the machine beneath and stays on: {names} (accepted {SHARED_KERNEL})",)
    used = sum(swap.used for swap in active)
    if used > found.available:
        return refuse(
            Problem(
                code="E-SWAP-01",
                what="swap cannot be turned off: memory has no room for what is in it",
                found=f"{used // 2**20} MiB in swap, {found.available // 2**20} MiB of memory available",
                rule="R62",
                next="stop what uses the memory, then run again",
            )
        )
    steps = [*_fstab_steps(found), *_unit_steps(found, foreign)]
    steps += [
        Run(script=f"swapoff -- {quote(swap.path)}", why=f"turn off swap on {swap.path}", deadline=300)
        for swap in active
    ]
    if not steps:
        return settled("no swap now, and none at the next boot", notes=notes)
    sources = [swap.path for swap in active] + [unit.name for unit in returning(found, foreign=foreign)]
    if found.fstab is not None and without_swap(found.fstab) != found.fstab:
        sources.append(FSTAB)
    return Decision(
        reason=f"kubelet refuses swap (R62): {', '.join(sources)}",
        steps=tuple(steps),
        disruption=Disruption.DRAIN if active else Disruption.NONE,
        notes=notes,
    )


def _fstab_steps(found: Swap) -> list[Step]:
    if found.fstab is None:
        return []
    text = without_swap(found.fstab)
    return [Write(path=FSTAB, content=text, keep_mode=True)] if text != found.fstab else []


def _unit_steps(found: Swap, foreign: bool) -> list[Step]:
    """An enabled unit is disabled (systemd masks no file that an administrator wrote), any other is masked.

    Without a reload, which may disturb (R80): both count at the next boot.
    """
    steps: list[Step] = []
    for unit in returning(found, foreign=foreign):
        verb = "disable" if unit.file.startswith("enabled") else "mask"
        script = f"systemctl {verb} --no-reload -- {quote(unit.name)}"
        steps.append(Run(script=script, why=f"keep {unit.name} from starting at boot"))
    return steps
