"""Long-running processes of the mirror, inside the rack's network: started, found again, stopped.

Each is recorded with its process id and start time, so that a recycled id is never taken for ours and never
killed. One that runs in a namespace that was since made anew counts as not running, and is replaced.
"""

from __future__ import annotations

import json
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from gpurack import defaults
from gpurack.errors import Problem, Refused
from gpurack.lab import process

# what the lab's own servers talk to is never behind the proxy of the machine
NO_PROXY = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """+ port: where it listens once it is ready; + settings: its configuration, a change restarts it."""

    name: str
    command: tuple[str, ...]
    port: int
    settings: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where daemons run and leave their traces. + namespace: a name under /run/netns."""

    namespace: str
    run: Path
    log: Path

    def wrap(self, words: list[str]) -> list[str]:
        """The command, inside the namespace."""
        return ["ip", "netns", "exec", self.namespace, *words]

    def exists(self) -> bool:
        return Path("/run/netns", self.namespace).exists()


def start(place: Place, daemons: tuple[Daemon, ...]) -> tuple[str, ...]:
    """Start what is not running as described; wait until all listen. Names of those started.

    Raises Refused: E-LAB-26 no namespace; E-LAB-29 one that ends or does not listen in time.
    """
    if not place.exists():
        raise Refused(
            Problem(
                code="E-LAB-26",
                what="The rack's network is not up, so the site mirror has no place to run.",
                wanted=f"network namespace {place.namespace}",
                next="gpurack lab up",
            )
        )
    place.run.mkdir(parents=True, exist_ok=True)
    place.log.mkdir(parents=True, exist_ok=True)
    fresh = tuple(daemon for daemon in daemons if not _as_described(place, daemon))
    children = []
    for daemon in fresh:
        stop_one(place, daemon.name)
        children.append((daemon, _spawn(place, daemon)))
    deadline = time.monotonic() + defaults.LAB_SERVER_DEADLINE
    for daemon, child in children:
        _await(place, daemon, child, deadline)
    return tuple(daemon.name for daemon in fresh)


def stop(place: Place) -> tuple[str, ...]:
    """Stop everything that is recorded; names of what was still running."""
    names = sorted(path.stem for path in place.run.glob("*.json")) if place.run.is_dir() else []
    return tuple(name for name in names if stop_one(place, name))


def running(place: Place) -> dict[str, int]:
    """Process ids by name, of what is recorded, alive and in the present namespace."""
    found = {}
    for path in sorted(place.run.glob("*.json")) if place.run.is_dir() else ():
        record = _record(path)
        if record is not None and _inside(place, record.pid):
            found[path.stem] = record.pid
    return found


def stop_one(place: Place, name: str) -> bool:
    """True when it was running. TERM, then KILL after a grace."""
    path = place.run / f"{name}.json"
    record = _record(path)
    if record is not None:
        process.end(record.pid, signal.SIGTERM, defaults.LAB_SERVER_GRACE)
    path.unlink(missing_ok=True)
    return record is not None


# ---------------------------------------------------------------------------------------------- details
@dataclass(frozen=True, slots=True)
class _Record:
    pid: int
    described: str


def _record(path: Path) -> _Record | None:
    """None when there is none, it was cut short, or the process is gone (its id may live on as another's)."""
    try:
        record = json.loads(path.read_text())
        pid, start_time, described = int(record["pid"]), int(record["started"]), str(record["described"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return _Record(pid, described) if process.alive(pid, start_time) else None


def _spawn(place: Place, daemon: Daemon) -> int:
    """`ip netns exec` becomes the daemon by exec, so the process is the daemon itself."""
    pid = process.start(place.wrap(list(daemon.command)), place.log / f"{daemon.name}.log", NO_PROXY)
    record = {"pid": pid, "started": process.started(pid), "described": _description(daemon)}
    scratch = place.run / f".{daemon.name}.new"
    scratch.write_text(json.dumps(record) + "\n")
    scratch.rename(place.run / f"{daemon.name}.json")
    return pid


def _await(place: Place, daemon: Daemon, pid: int, deadline: float) -> None:
    while not (_inside(place, pid) and daemon.port in _listening(pid)):
        ended = not process.alive(pid)
        if ended or time.monotonic() > deadline:
            stop_one(place, daemon.name)
            log = place.log / f"{daemon.name}.log"
            last = [line for line in log.read_text(errors="replace").splitlines() if line.strip()][-2:]
            raise Refused(
                Problem(
                    code="E-LAB-29",
                    what=f"The mirror's {daemon.name} "
                    + ("ended at once." if ended else f"does not listen on port {daemon.port}."),
                    found=" | ".join(last) or None,
                    next=f"Read {log}.",
                )
            )
        time.sleep(0.05)


def _as_described(place: Place, daemon: Daemon) -> bool:
    record = _record(place.run / f"{daemon.name}.json")
    if record is None or record.described != _description(daemon):
        return False
    return _inside(place, record.pid) and daemon.port in _listening(record.pid)


def _description(daemon: Daemon) -> str:
    return "\n".join((*daemon.command, str(daemon.port), daemon.settings))


def _inside(place: Place, pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/ns/net").stat().st_ino == Path("/run/netns", place.namespace).stat().st_ino
    except OSError:
        return False


def _listening(pid: int) -> set[int]:
    """TCP ports that this very process listens on: another's socket on the same port does not count."""
    try:
        links = [str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()]
        rows = [
            row.split()
            for table in ("tcp", "tcp6")
            for row in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
        ]
    except OSError:  # it ended meanwhile
        return set()
    own = {link.removeprefix("socket:[").removesuffix("]") for link in links if link.startswith("socket:")}
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and row[9] in own}
