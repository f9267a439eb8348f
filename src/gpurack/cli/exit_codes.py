"""Exit codes of `gpurack` (DESIGN.md §4). Stock pyinfra only knows 0, 1, 3 and 130."""

from __future__ import annotations

from enum import IntEnum

from gpurack.errors import BadInput, GpurackError, Lost, Refused


class ExitCode(IntEnum):
    """+ NOT_AS_WANTED: nothing failed, but changes are owed or drift was found
    + INCOMPLETE: something that was needed could not be reached
    """

    AS_WANTED = 0
    FAILED = 1
    BAD_INPUT = 2
    NOT_AS_WANTED = 3
    REFUSED = 4
    NOT_ACCEPTED = 5
    INCOMPLETE = 6
    INTERRUPTED = 130


def exit_code(error: GpurackError) -> ExitCode:
    """The code that says what kind of error ended the command."""
    codes = {BadInput: ExitCode.BAD_INPUT, Refused: ExitCode.REFUSED, Lost: ExitCode.INCOMPLETE}
    return next((code for kind, code in codes.items() if isinstance(error, kind)), ExitCode.FAILED)
