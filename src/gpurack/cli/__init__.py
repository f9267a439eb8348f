"""The `gpurack` command: arguments and exit codes, nothing else."""

from __future__ import annotations

import sys
import tempfile
import traceback
from pathlib import Path

from gpurack.cli.exit_codes import ExitCode, exit_code
from gpurack.errors import GpurackError, Problem


def main() -> None:
    """Run the command line of this process. Whatever happens, a person sees sentences, never a traceback."""
    try:
        _run()
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)


def _run() -> None:
    # Inside, so that Ctrl-C while they load is a clean end too.
    from gpurack.cli.app import app
    from gpurack.report.problems import show_problems

    try:
        app(prog_name="gpurack")
    except GpurackError as error:
        show_problems(error.problems)
        sys.exit(exit_code(error))
    except Exception as error:  # noqa: BLE001  the last place that can turn it into a sentence
        show_problems([_unexpected(error)])
        sys.exit(ExitCode.FAILED)


def _unexpected(error: Exception) -> Problem:
    with tempfile.NamedTemporaryFile("w", prefix="gpurack-", suffix=".log", delete=False) as log:
        log.write("".join(traceback.format_exception(error)))
    return Problem(
        code="E-CLI-01",
        what=f"gpurack met something that it does not expect ({type(error).__name__})",
        next=f"report it with {Path(log.name)}",
    )
