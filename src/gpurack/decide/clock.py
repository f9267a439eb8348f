"""Does the host know what time it is (R64)?

A wrong clock shows late and elsewhere: the join fails with certificates that are "not yet valid", apt with
signatures from the future. So it is asked first.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from gpurack.decide.decision import Decision, refuse, settled
from gpurack.defaults import CLOCK_OFFSET_NOTED, CLOCK_OFFSET_REFUSED
from gpurack.errors import Problem

GATE = "clock-not-synchronised"


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """+ at: the host's clock, seconds since 1970; + offset: seconds that it is ahead of the controller's,
    wrong by at most the time that the probe took
    + synchronised: what the kernel says (`NTPSynchronized`); None when timedated does not answer
    + services: units that keep the clock and are active."""

    at: float
    offset: float
    synchronised: bool | None
    services: tuple[str, ...]


def judge(accept: frozenset[str], found: Clock) -> Decision:
    """Whether the clock can be trusted with certificates.

    Changes nothing: who keeps the time is the site's choice.

    A clock that is far from the controller's is refused with every gate open.
    """
    problems, notes = [], []
    ahead = f"{abs(found.offset):.0f} s {'ahead of' if found.offset > 0 else 'behind'} the controller"
    if abs(found.offset) > CLOCK_OFFSET_REFUSED:
        problems.append(
            Problem(
                code="E-CLOCK-01",
                what="the clock is wrong",
                found=f"{datetime.fromtimestamp(found.at, UTC):%Y-%m-%d %H:%M:%S} UTC, {ahead}",
                wanted=f"at most {CLOCK_OFFSET_REFUSED:.0f} s from the controller's clock",
                rule="R64: certificates made elsewhere are not yet valid here, or expired",
                next="correct the clock and its time service; or the controller's, if every host says this",
            )
        )
    elif abs(found.offset) > CLOCK_OFFSET_NOTED:
        notes.append(f"the clock is {ahead} (R64)")
    if not found.synchronised and GATE not in accept:
        problems.append(
            Problem(
                code="E-CLOCK-02",
                what="the clock is not synchronised",
                found=(
                    "timedatectl does not answer, " if found.synchronised is None else "NTPSynchronized=no, "
                )
                + (", ".join(found.services) or "no time service")
                + " active",
                wanted="one of chrony and systemd-timesyncd, synchronised",
                rule="R64",
                next=f"chronyc tracking; timedatectl timesync-status (a lab writes `accept: [{GATE}]`)",
            )
        )
    elif not found.synchronised:
        notes.append(f"accepted {GATE}: {', '.join(found.services) or 'no time service'} (R64)")
    if len(found.services) > 1:
        problems.append(
            Problem(
                code="E-CLOCK-03",
                what="more than one service sets the clock",
                found=" and ".join(found.services),
                wanted="exactly one",
                rule="R64: they undo each other's corrections",
                next=f"systemctl disable --now {found.services[-1]}, or the other one",
            )
        )
    elif not found.services and found.synchronised:
        notes.append("no time service is active, yet the kernel calls the clock synchronised (R64)")
    if problems:
        return refuse(*problems)
    return settled("the clock agrees with the controller's", notes=tuple(notes))
