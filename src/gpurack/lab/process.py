"""Tools run by name; long-lived processes started, and ended by recorded pid, never anything else."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from gpurack.errors import Problem, Refused

Progress = Callable[[str], None]
T = TypeVar("T")


class Background(Generic[T]):
    """`function` in a thread that does not outlive the program: Ctrl-C ends a wait for it at once."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._value: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._value.append(self._function())
        except BaseException as error:  # noqa: BLE001  whatever it is, it is the waiter's
            self._error = error

    def result(self) -> T:
        """What the function returned, or its exception."""
        while self._thread.is_alive():
            self._thread.join(0.2)  # a join without limit would not hear Ctrl-C
        if self._error is not None:
            raise self._error
        return self._value[0]


def environment(**more: str) -> dict[str, str]:
    """For tools of the machine: their own words untranslated, and found where a user's PATH does not look."""
    path = os.environ.get("PATH", "/usr/bin:/bin")
    return {**os.environ, "LC_ALL": "C.UTF-8", "PATH": f"{path}:/usr/sbin:/sbin", **more}


def tool(*argv: str | Path, check: bool = True, stdin: str | None = None, timeout: float = 600) -> str:
    """Output of a finished tool. Refused with its last words when it fails and `check` is on."""
    done = subprocess.run(
        [str(part) for part in argv],
        capture_output=True,
        text=True,
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        timeout=timeout,
        check=False,
        errors="replace",
        env=environment(),
    )
    if check and done.returncode != 0:
        words = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise Refused(
            Problem(
                code="E-LAB-02",
                what=f"{argv[0]} failed (exit {done.returncode})",
                found="; ".join(words[-3:]) or "no output",
                wanted=" ".join(str(part) for part in argv),
                next="read the words above; `gpurack lab down` cleans up",
            )
        )
    return done.stdout


def start(argv: Sequence[str], log: Path, more: Mapping[str, str] | None = None) -> int:
    """Start `argv` in a session of its own, output to `log`; its pid. It outlives this process."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environment(**(more or {})),
        )
    return child.pid


def alive(pid: int | None, starttime: int | None = None) -> bool:
    """Whether `pid` runs (a zombie does not) and, when `starttime` is given, is still the same process."""
    if not pid:
        return False
    fields = _stat(pid)
    return fields is not None and fields[0] not in "ZX" and starttime in (None, int(fields[19]))


def started(pid: int) -> int | None:
    """Start time in clock ticks since boot: with the pid it names a process for good."""
    fields = _stat(pid)
    return int(fields[19]) if fields else None


def children(pid: int) -> tuple[int, ...]:
    """Living direct children."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = _stat(int(entry.name))
            if fields and int(fields[1]) == pid and fields[0] not in "ZX":
                found.append(int(entry.name))
    return tuple(sorted(found))


def end(pid: int, first: int, patience: float) -> None:
    """Send `first`, wait up to `patience` seconds (0: do not even send it), then SIGKILL. Returns when the
    process is gone."""
    for number, wait in ((first, patience), (signal.SIGKILL, 10.0)):
        if wait <= 0:
            continue
        if not alive(pid):
            break
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            break
        gone(pid, wait)
    reap(pid)


def gone(pid: int, wait: float) -> bool:
    """Whether the process ended within `wait` seconds."""
    until = time.monotonic() + wait
    while alive(pid):
        if time.monotonic() > until:
            return False
        reap(pid)
        time.sleep(0.05)
    return True


def reap(pid: int) -> None:
    """Collect the process if it is a dead child of ours, so that it leaves no zombie."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except (ChildProcessError, OSError):
        return


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat after the name, which may itself hold spaces and brackets."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
