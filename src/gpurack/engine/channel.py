"""One command on one ssh connection, bounded in time; its remote process group never outlives it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from paramiko import Channel, ChannelException, SSHException, Transport

from gpurack.defaults import READ_LIMIT
from gpurack.engine.wire import CUT_SHORT, PLAIN, Escalation, wire


class ConnectionLost(OSError):
    """The connection ended before the command did: nobody knows how far it came."""


class TookTooLong(TimeoutError):
    """The time limit passed; the remote process group was ended. `answer` holds what it said until then."""

    def __init__(self, seconds: float, answer: Answer) -> None:
        super().__init__(f"no end after {seconds:.0f} s")
        self.answer = answer


@dataclass(frozen=True, slots=True)
class Answer:
    """+ lines: standard output (False) and standard error (True) as they came."""

    code: int
    lines: tuple[tuple[bool, str], ...]

    @property
    def out(self) -> str:
        return "\n".join(line for error, line in self.lines if not error)

    @property
    def err(self) -> str:
        return "\n".join(line for error, line in self.lines if error)

    @property
    def tail(self) -> tuple[str, ...]:
        """The lines that explain a failure best: the last of standard error, or else of standard output."""
        said = [line for error, line in self.lines if error and line.strip()]
        said = said or [line for _, line in self.lines if line.strip()]
        return tuple(said[-5:])


Heard = Callable[[bool, str], None]


def ask(
    transport: Transport,
    script: str,
    *,
    payload: bytes = b"",
    escalation: Escalation = PLAIN,
    limit: float,
    heard: Heard | None = None,
) -> Answer:
    """Run `script` on the host and wait for its end.

    + payload: its standard input
    + limit: seconds
    + heard: called with each line as it comes (True: standard error)

    `TookTooLong` past the limit, `ConnectionLost` when the connection ends first.
    """
    command, given = wire(script, payload, escalation)
    end = time.monotonic() + limit
    lines: list[tuple[bool, str]] = []
    try:
        # Logins hang where logind or PAM does; the time for a long command is not for that.
        patience = min(limit, READ_LIMIT)
        channel = transport.open_session(timeout=patience)
    except (SSHException, EOFError, OSError) as error:
        if transport.is_active() and not isinstance(error, ChannelException):  # neither gone nor refused
            found = f"it answers, but opened no session within {patience:.0f} s: logins hang there"
            raise ConnectionLost(found) from error
        raise ConnectionLost(f"the connection is gone: {error or type(error).__name__}") from error
    try:
        channel.exec_command(command)
        reader = threading.Thread(target=_listen, args=(channel, True, lines, heard, end), daemon=True)
        reader.start()
        with contextlib.suppress(OSError):  # it may end before it has read everything; its exit code tells
            channel.settimeout(max(0.1, end - time.monotonic()))
            channel.sendall(given)
        _listen(channel, False, lines, heard, end)
        reader.join(max(0.1, end - time.monotonic()))
        ended = channel.status_event.wait(max(0.1, end - time.monotonic()))
        if not ended:
            raise TookTooLong(limit, Answer(-1, tuple(lines)))
        code = channel.recv_exit_status()
    except TimeoutError:
        raise TookTooLong(limit, Answer(-1, tuple(lines))) from None
    except (SSHException, EOFError) as error:
        raise ConnectionLost(f"the connection is gone: {error or type(error).__name__}") from error
    finally:
        # The end of its standard input is what ends the remote process group.
        channel.close()
    if code in {-1, CUT_SHORT}:
        raise ConnectionLost("the connection ended in the middle of a command")
    return Answer(code, tuple(lines))


def _listen(
    channel: Channel, error: bool, lines: list[tuple[bool, str]], heard: Heard | None, end: float
) -> None:
    receive = channel.recv_stderr if error else channel.recv
    rest = b""

    def take(raw: bytes) -> None:
        line = raw.decode("utf-8", errors="replace").rstrip("\r")
        lines.append((error, line))
        if heard:
            heard(error, line)

    while True:
        channel.settimeout(max(0.1, end - time.monotonic()))
        try:
            data = receive(65536)
        except TimeoutError:
            if error:
                break  # the reader of standard output says so
            raise
        if not data:
            break
        *whole, rest = (rest + data).split(b"\n")
        for raw in whole:
            take(raw)
    if rest:
        take(rest)
