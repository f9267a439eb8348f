"""What a decision is made of: steps as data, the disruption they cause, and the reason.

A decision can be printed as a plan row, compared in a test, and carried out (`engine.carry_out`): the
same object in each case.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

from gpurack.errors import Problem


class Disruption(IntEnum):
    """How much a change disturbs a live node, least first (DESIGN.md §3)."""

    NONE = 0
    UNIT_RELOAD = 1
    CONTAINERD_RESTART = 2
    KUBELET_RESTART = 3
    DRAIN = 4
    REBOOT = 5
    VERSION = 6

    def __str__(self) -> str:
        return self.name.lower().replace("_", " ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """Put a whole file in place, atomically: temp beside it, mode first, hash, `validate`, rename.

    + validate: shell text that sees the temporary file as `"$1"`; a non-zero exit keeps the old file
    + secret: content is never shown, not in a diff either
    + keep_mode: an existing file keeps its own owner and mode
    """

    path: str
    content: str
    mode: int = 0o644
    owner: str = "root:root"
    validate: str | None = None
    secret: bool = False
    keep_mode: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Remove:
    """Remove one file, if it is there. Never a folder."""

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A short shell command. Its process group dies at the deadline or with the connection.

    + why: shown to people, so a phrase such as "load br_netfilter"
    + deadline: seconds
    + stdin: text for its standard input; the way to hand over a secret
    """

    script: str
    why: str
    deadline: int = 60
    stdin: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Transact:
    """A command that must not be cut in half (apt, kubeadm): a transient unit that runs to its end.

    It survives the connection and the controller. A rerun that finds it running waits for it.

    + unit: `gpurack-<unit>.service` on the host; one name, one kind of work
    """

    unit: str
    script: str
    why: str
    deadline: int = 900


@dataclass(frozen=True, slots=True, kw_only=True)
class Reload:
    """`systemctl daemon-reload`. Only after a unit file changed (R80)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One verb of systemctl on one unit."""

    name: str
    verb: Literal["start", "stop", "restart", "enable", "disable", "mask", "unmask"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Await:
    """Poll `probe` on the host until it exits 0.

    + reason: what is waited for, shown with progress ("containerd answers on its CRI socket")
    + deadline: seconds
    + every: seconds between probes
    + journal: unit whose last lines explain a timeout
    """

    probe: str
    reason: str
    deadline: int
    every: float = 1.0
    journal: str | None = None


Step = Write | Remove | Run | Transact | Reload | Unit | Await


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do on one host, and why.

    + reason: why it changes ("kubelet runs policy none, the pool wants static"), or why it does not
    + steps: in order; empty means that the host already is as wanted
    + disruption: of all the steps together
    + refused: why nothing may be done at all; excludes steps
    + notes: things a person should know that change nothing (warnings)
    """

    reason: str
    steps: tuple[Step, ...] = ()
    disruption: Disruption = Disruption.NONE
    refused: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.refused and self.steps:
            raise ValueError("a refusal has no steps")


def settled(reason: str, *, notes: tuple[str, ...] = ()) -> Decision:
    """Nothing to do."""
    return Decision(reason=reason, notes=notes)


def refuse(*problems: Problem) -> Decision:
    """Nothing may be done."""
    return Decision(reason=problems[0].what, refused=problems)
