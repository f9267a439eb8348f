"""Carry out, then look again: what is still to do after it was done is a failure, not the next run's work."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pyinfra.api.command import PyinfraCommand

from gpurack.decide.decision import Decision
from gpurack.engine import carry_out, executing
from gpurack.errors import Problem, Refused


def until_settled(think: Callable[[], Decision]) -> Iterator[PyinfraCommand]:
    """Carry out what `think` decides; afterwards it must find nothing left to do.

    + think: reads its facts anew each time it is called

    `Refused` when it decides so, before or after, and when something is left.
    """
    acted = False
    for command in carry_out(think()):
        acted = True
        yield command
    # Nothing was done when there was nothing to do, or when a live host owes it.
    if not acted or not executing():
        return
    left = think()
    if left.refused:
        raise Refused(left.refused)
    if left.steps:
        raise Refused(
            Problem(
                code="E-PROOF-01",
                what="the change was made, and the host still is not as wanted",
                found=left.reason,
                next="find out what puts it back (another tool, a read-only place), then run again",
            )
        )
