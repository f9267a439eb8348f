"""How a run ends: what `at_end` collected, the JSON report, the last screen, the exit code; in every case."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click
from pyinfra import logger
from pyinfra.api.state import BaseStateCallback

from gpurack.engine import redaction
from gpurack.engine.run import command_line, current, state_dir
from gpurack.engine.ssh import close_jumps
from gpurack.errors import GpurackError, Problem
from gpurack.report import document, files, screen
from gpurack.report.events import Event, Failed, RunBegan, RunBroke, RunEnded

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

OWED_EXIT = 3


class Ending(BaseStateCallback):
    """Hears pyinfra's callbacks; what they need is given when the run ends, however it ends."""

    def __init__(self, state: State, *, dry: bool) -> None:
        self.state = state
        self.ended = False
        self.waiting: set[str] | None = None
        run = current()
        if run.site is not None:
            files.keep_in(state_dir(run.site), run.id)
            run.listeners.append(self.heard)
            run.emit(
                RunBegan(
                    run=run.id,
                    site=run.site.name,
                    file=run.site.file,
                    command=tuple(redaction.mask(word) for word in command_line()),
                    dry=dry,
                    accepted=tuple(sorted(run.site.accept)),
                    hosts=tuple(host.name for host in run.site.hosts),
                )
            )

    # pyinfra declares these as static methods and calls them on the instance, state first.
    def operation_start(self, state: State, op_hash: str) -> None:  # type: ignore[override]  # noqa: ARG002
        run = current()
        if run.owed and not getattr(self, "executing", False):
            run.owed.clear()  # what was found while preparing is found again, or not
        self.executing = True

    def operation_host_error(  # type: ignore[override]
        self,
        state: State,
        host: Host,
        op_hash: str,
        retry_count: int = 0,  # noqa: ARG002
        max_retries: int = 0,  # noqa: ARG002
    ) -> None:
        """A stock operation failed: nobody has said why, so at least that is said."""
        run = current()
        name = ", ".join(sorted(state.get_op_meta(op_hash).names))
        if not any(item.operation == name for item in run.failed.get(host.name, [])):
            problem = Problem(
                code="E-STEP-08",
                what=f"operation failed: {name}",
                host=host.name,
                found="see its output above",
                next="cure it, then run the same command again",
            )
            run.fail(Failed(host=host.name, operation=name, problem=problem))

    def host_disconnect(self, state: State, host: Host) -> None:  # type: ignore[override]
        if self.waiting is None:
            self.waiting = {other.name for other in state.activated_hosts}
        self.waiting.discard(host.name)
        if self.waiting:
            return
        code = self.finish()
        if code == OWED_EXIT:
            raise SystemExit(OWED_EXIT)

    def heard(self, event: Event) -> None:
        text = screen.line(event)
        if text is not None:
            host = getattr(event, "host", None)
            known = self.state.inventory.hosts.get(host) if host else None
            logger.info(f"{known.print_prefix if known else ''}{text}")

    def finish(self) -> int:
        """Wind down, write the report, show the last screen; the exit code. Only the first call acts."""
        if self.ended:
            return 0
        self.ended = True
        run = current()
        run.wind_down()
        close_jumps()
        code = self._exit_code()
        run.emit(RunEnded(exit_code=code, seconds=round(time.monotonic() - run.clock, 3)))
        place = self._write()
        for text in screen.last(run.events, owed=run.owed.values(), report=place, code=code):
            click.echo(text, err=True)
        return code

    def broke(self, what: str) -> None:
        """pyinfra says only after it has let the hosts go that something ended the run: correct it."""
        run = current()
        self.finish()
        run.emit(RunBroke(what=redaction.mask(what)))
        run.emit(RunEnded(exit_code=1, seconds=round(time.monotonic() - run.clock, 3)))
        self._write()

    def _write(self) -> str | None:
        run = current()
        if run.site is None:
            return None
        try:
            report = document.build(run.events, owed=run.owed.values())
            return str(files.write_report(report, redaction.mask))
        except (OSError, GpurackError) as error:
            click.echo(f"the report could not be written: {error}", err=True)
            return None

    def _exit_code(self) -> int:
        run = current()
        if run.interrupted:
            return 128 + run.interrupted
        if run.failed or self.state.failed_hosts or sys.exc_info()[0] is not None:
            return 1
        return OWED_EXIT if run.owed else 0
