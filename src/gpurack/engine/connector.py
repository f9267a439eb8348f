"""pyinfra's connector for hosts of a site document: `@gpurack/<path of the document>`.

Names, groups and data come from the validated document; commands go through `channel.ask`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from paramiko import SSHClient, Transport
from pyinfra.api.command import StringCommand
from pyinfra.api.exceptions import ConnectError
from pyinfra.api.output import echo
from pyinfra.connectors.ssh import SSHConnector
from pyinfra.connectors.util import CommandOutput, OutputLine, make_unix_command

from gpurack import site as sites
from gpurack.defaults import COMMAND_LIMIT, CONNECT_LIMIT, JOURNAL_LINES, TRANSACTION_LIMIT
from gpurack.engine import guards, redaction
from gpurack.engine.channel import Answer, ConnectionLost, Heard, TookTooLong, ask
from gpurack.engine.escalate import find_escalation
from gpurack.engine.lock import NO_HOLDER, look_script
from gpurack.engine.run import beside, current, known_hosts, node_of
from gpurack.engine.ssh import open_connection
from gpurack.engine.steps import TICK, Order
from gpurack.engine.wire import PLAIN, Escalation
from gpurack.errors import GpurackError, Lost, Problem
from gpurack.report.events import Failed, HostConnected, Waiting
from gpurack.site.models import Site

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

guards.install()  # pyinfra loads every connector before it starts a run; this is the one place early enough


class GpurackConnector(SSHConnector):
    """ssh as `SSHConnector` has it, with our own connection, commands, escalation and limits."""

    handles_execution = True
    client: SSHClient | None  # type: ignore[assignment]

    def __init__(self, state: State, host: Host) -> None:
        super().__init__(state, host)
        self.client = None
        self.escalation: Escalation = PLAIN
        self.seen_holder = NO_HOLDER
        guards.adopt(state)

    @staticmethod
    def make_names_data(name: str) -> Iterator[tuple[str, dict[str, Any], list[str]]]:
        """Every host of the document `name` with data and groups; `SystemExit` with all its problems."""
        redaction.install()
        try:
            site = sites.load(Path(name))
            current().site = site
            for host in site.hosts:
                groups = [group for group in (host.pool, host.rack, host.role) if group]
                yield host.name, _data(site, name, host.name, host.address), groups
        except GpurackError as error:
            raise SystemExit(_render(error)) from None

    # ---------------------------------------------------------------------------------- connection
    def connect(self) -> None:
        """Connect and find out how to become root. `ConnectError` with one line; the problem is kept."""
        try:
            self._connect_now()
        except GpurackError as error:
            self._forget_connection()
            for problem in error.problems:
                whole = problem if problem.host else problem.on(self.host.name)
                current().fail(Failed(host=self.host.name, operation="connect", problem=whole))
            first = error.problems[0]
            raise ConnectError(f"{first.code}  {first.what}: {first.found}") from error

    def _connect_now(self) -> None:
        node = node_of(self.host)
        self.client = open_connection(node.site, node.name, node.host.address)
        try:
            self.escalation = find_escalation(self.transport, node.site, node.name)
            # Whoever decides now must not decide from what a transaction is just about to change.
            answer = self.ask(look_script(), limit=TRANSACTION_LIMIT + CONNECT_LIMIT, heard=self._ticks)
        except (ConnectionLost, TookTooLong) as error:
            raise Lost(_died(error)) from error
        self.seen_holder = next(
            (line for line in answer.out.split("\n") if line.startswith("run ")), NO_HOLDER
        )
        if answer.code != 0:
            raise Lost(
                Problem(
                    code="E-LOCK-04",
                    what="an earlier run left something at work that does not end",
                    found="; ".join(answer.tail),
                    next="look at it on the host: systemctl status 'gpurack-*'",
                )
            )
        current().emit(HostConnected(host=self.host.name))

    def disconnect(self) -> None:
        """Close the connection; whatever still runs for us on the host ends with it."""
        self.get_file_transfer_connection.cache.clear()
        self._forget_connection()

    def _forget_connection(self) -> None:
        if self.client:
            self.client.close()
        self.client = None

    @property
    def transport(self) -> Transport:
        transport = self.client.get_transport() if self.client else None
        if transport is None:
            raise ConnectionLost("there is no connection")
        return transport

    # ---------------------------------------------------------------------------------- commands
    def ask(self, script: str, *, payload: bytes = b"", limit: float, heard: Heard | None = None) -> Answer:
        """Run `script` as root and wait for its end; see `channel.ask`."""
        return ask(
            self.transport, script, payload=payload, escalation=self.escalation, limit=limit, heard=heard
        )

    def perform(self, given: Order) -> Answer:
        """Carry out one order of a decision, with signs of life."""
        verbose = self.state.print_output

        def heard(error: bool, line: str) -> None:  # noqa: ARG001
            if line.startswith(f"{TICK} "):
                seconds, _, rest = line.removeprefix(f"{TICK} ").partition(" ")
                what = given.awaits or given.phrase
                within = given.within or int(given.limit)
                current().emit(
                    Waiting(
                        host=self.host.name,
                        reason=f"{what} ({rest})" if rest else what,
                        seconds=int(seconds),
                        deadline=within,
                    )
                )
            elif verbose:
                echo(f"{self.host.print_prefix}{line}", err=True)

        answer = self.ask(given.script, payload=given.payload, limit=given.limit, heard=heard)
        return Answer(answer.code, tuple(one for one in answer.lines if not one[1].startswith(f"{TICK} ")))

    def journal(self, unit: str | None) -> tuple[str, ...]:
        """The last lines of `unit`'s journal on the host; none when there are none to be had."""
        if not unit:
            return ()
        script = f"journalctl --no-pager --quiet --output=short-iso --lines={JOURNAL_LINES} --unit='{unit}'"
        try:
            answer = self.ask(script, limit=20)
        except OSError:
            return ()
        return tuple(answer.out.split("\n")) if answer.code == 0 and answer.out else ()

    def keep_running(
        self, script: str, *, until: threading.Event, limit: float, heard: Heard
    ) -> Answer | None:
        """Start `script` and leave it running until the connection ends, once `heard` has set `until`.

        Its answer if it ended before that.
        """
        ended: list[Answer | Exception] = []

        def talk() -> None:
            try:
                year = 365 * 24 * 3600.0
                ended.append(self.ask(script, limit=year, heard=heard))
            except Exception as error:  # noqa: BLE001 - whoever waits must hear of it
                ended.append(error)

        thread = threading.Thread(target=talk, daemon=True)
        thread.start()
        end = time.monotonic() + limit
        while not until.wait(0.05) and not ended and time.monotonic() < end:
            pass
        if until.is_set():
            return None
        if not ended:
            raise Lost(Problem(code="E-LOCK-03", what="the lock of this host could not be taken in time"))
        if isinstance(ended[0], Exception):
            raise Lost(_died(ended[0])) from ended[0]
        return ended[0]

    def run_shell_command(
        self,
        command: StringCommand | str,
        print_output: bool = False,
        print_input: bool = False,
        **arguments: Any,
    ) -> tuple[bool, CommandOutput]:
        """pyinfra's way to run a command, for its own facts and operations; with a limit of our own."""
        limit = arguments.pop("_timeout", None) or COMMAND_LIMIT
        given = arguments.pop("_stdin", None)
        codes = arguments.pop("_success_exit_codes", None) or (0,)
        arguments.pop("_get_pty", None)
        if not arguments.get("_sudo_user"):
            # The connection is root's already. Another user is reached from root, which needs no password.
            arguments["_sudo"] = False
        arguments["_sudo_password"] = None
        unix = make_unix_command(
            command if isinstance(command, StringCommand) else StringCommand(command), **arguments
        )
        if print_input:
            echo(f"{self.host.print_prefix}>>> {unix}", err=True)

        def heard(error: bool, line: str) -> None:  # noqa: ARG001
            echo(f"{self.host.print_prefix}{line}", err=True)

        answer = self.ask(
            unix.get_raw_value(), payload=_stdin(given), limit=limit, heard=heard if print_output else None
        )
        lines = [OutputLine("stderr" if error else "stdout", line) for error, line in answer.lines]
        return answer.code in codes, CommandOutput(lines)

    def _ticks(self, error: bool, line: str) -> None:
        if not error and line.startswith(f"{TICK} "):
            _, seconds, reason = line.split(" ", 2)
            current().emit(
                Waiting(host=self.host.name, reason=reason, seconds=int(seconds), deadline=TRANSACTION_LIMIT)
            )


def connector_of(host: Host) -> GpurackConnector:
    """The connector of `host`. `Lost` when it is somebody else's."""
    connector = host.connector
    if not isinstance(connector, GpurackConnector):
        raise Lost(
            Problem(
                code="E-RUN-02",
                what="this host is not reached through gpurack's connector",
                host=host.name,
                next="use an inventory shim such as inventories/prod (@gpurack/...)",
            )
        )
    return connector


def _render(error: GpurackError) -> str:
    return "\n".join(str(problem) for problem in error.problems)


def _data(site: Site, document: str, name: str, address: str) -> dict[str, Any]:
    """Plain values only: pyinfra prints them as JSON. Nothing here is a secret."""
    data: dict[str, Any] = {
        "ssh_hostname": address,
        "ssh_port": site.ssh.port,
        "ssh_user": site.ssh.user,
        "ssh_known_hosts_file": str(known_hosts(site)),
        "ssh_strict_host_key_checking": "yes",
        "ssh_config_file": "/dev/null",
        "gpurack": {"site": document, "node": name},
    }
    if site.ssh.key:
        data["ssh_key"] = str(beside(site, site.ssh.key))
    if site.ssh.sudo:
        data["_sudo"] = True
    return data


def _died(error: BaseException) -> Problem:
    return Problem(
        code="E-SSH-05",
        what="the connection was lost",
        found=str(error),
        next="look whether the host is up, then run the same command again",
    )


def _stdin(given: Any) -> bytes:
    if given is None:
        return b""
    if hasattr(given, "read"):
        given = given.read()
    if isinstance(given, bytes):
        return given
    lines = [given] if isinstance(given, str) else list(cast("list[str]", given))
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines).encode()
