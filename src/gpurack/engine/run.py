"""What one run knows: its id, its site, what is live, what is owed, what failed, and who hears of it."""

from __future__ import annotations

import os
import pwd
import secrets
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pyinfra.context import ctx_host, ctx_state

from gpurack import site as sites
from gpurack.engine.redaction import conceal
from gpurack.errors import BadInput, Problem
from gpurack.report.events import Event, Failed, Noted, Owed
from gpurack.site.models import Node, Role, Site

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

T = TypeVar("T")


class Run:
    """One run of pyinfra against one site. Made on first use; there is one per process."""

    def __init__(self) -> None:
        moment = datetime.now(UTC)
        self.id = f"{moment:%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
        self.began = moment
        self.clock = time.monotonic()
        self.site: Site | None = None
        self.interrupted: int | None = None
        self.pauses = True  # a person looks at the plan, or nothing but the plan is wanted
        self.events: list[Event] = []
        self.listeners: list[Callable[[Event], None]] = []
        self.live: dict[str, tuple[bool, str]] = {}
        self.owed: dict[tuple[str, str], Owed] = {}
        self.failed: dict[str, list[Failed]] = {}
        self._lock = threading.RLock()
        self._said: set[Owed] = set()
        self._noted: set[tuple[str, str]] = set()
        self._shared: dict[str, dict[str, Any]] = {}
        self._once: dict[str, tuple[bool, Any]] = {}
        self._once_locks: dict[str, Any] = {}
        self._at_end: list[Callable[[], None]] = []

    def emit(self, event: Event) -> None:
        self.events.append(event)
        for listener in self.listeners:
            listener(event)

    def note(self, host: str, text: str) -> None:
        """Say `text` about `host`, once per run."""
        if (host, text) not in self._noted:
            self._noted.add((host, text))
            self.emit(Noted(host=host, text=text))

    def owe(self, item: Owed) -> None:
        if item not in self._said:
            self._said.add(item)
            self.emit(item)
        self.owed[item.host, item.operation] = item

    def fail(self, item: Failed) -> None:
        known = self.failed.setdefault(item.host, [])
        if all(other.problem != item.problem for other in known):
            known.append(item)
            self.emit(item)

    def shared(self, key: str) -> dict[str, Any]:
        return self._shared.setdefault(key, {})

    def once(self, key: str, function: Callable[[], T]) -> T:
        with self._lock:
            gate = self._once_locks.setdefault(key, threading.RLock())
        with gate:
            if key not in self._once:
                try:
                    self._once[key] = (True, function())
                except Exception as error:  # noqa: BLE001 - raised again for each host
                    self._once[key] = (False, error)
            good, value = self._once[key]
        if not good:
            raise value
        return cast("T", value)

    def at_end(self, function: Callable[[], None]) -> None:
        self._at_end.append(function)

    def wind_down(self) -> None:
        """Call what `at_end` collected, last first; one that fails does not keep the others from running."""
        while self._at_end:
            function = self._at_end.pop()
            try:
                function()
            except Exception as error:  # noqa: BLE001 - the others must have their turn
                self.note("controller", f"cleaning up failed: {type(error).__name__}: {error}")


@cache
def current() -> Run:
    """The run of this process."""
    return Run()


# ------------------------------------------------------------------------------------ what the host is
def this_host() -> Host:
    """pyinfra's host that the calling code works for."""
    # The object itself, not pyinfra's proxy for it: that one means nothing in another thread.
    return cast("Host", ctx_host.get())  # type: ignore[no-untyped-call]


def this_node() -> Node:
    """The host that the calling code works for, as the site document describes it."""
    return node_of(this_host())


def concerns(role: Role) -> bool:
    """Whether a deploy for hosts of `role` has work on this host; one of another role is named as skipped."""
    node = this_node()
    if node.role != role:
        current().note(node.name, f"skipped: its role is {node.role}, this deploy is for {role} hosts")
    return node.role == role


def node_of(host: Host) -> Node:
    place = host.data.gpurack
    return _node(place["site"], place["node"])


@cache
def _node(file: str, name: str) -> Node:
    return sites.load(Path(file)).node(name)


def executing() -> bool:
    """Whether operations are carried out now (False while pyinfra prepares, and always with `--dry`)."""
    state: State | None = ctx_state.get()  # type: ignore[no-untyped-call]
    return state is not None and state.is_executing


def shared(key: str) -> dict[str, Any]:
    """A dict by host name that lives as long as the run, for judgements across hosts.

    One operation collects, the next one judges: in execute pyinfra waits for all hosts between two.
    """
    return current().shared(key)


def once(key: str, function: Callable[[], T]) -> T:
    """The result of `function`, which runs once per run on the controller, whichever host comes first.

    An exception is raised again for every host that asks.
    """
    return current().once(key, function)


def at_end(function: Callable[[], None]) -> None:
    """Call `function` when the run ends: success, failure, Ctrl-C, all hosts lost (not after SIGKILL)."""
    current().at_end(function)


def set_live(live: bool, reason: str) -> None:
    """Record whether this host serves workloads now. A host of which nothing is recorded counts as live."""
    current().live[this_host().name] = (live, reason)


def liveness(host: str) -> tuple[bool, str]:
    """Whether `host` serves workloads, and how we know."""
    return current().live.get(host, (True, "nobody has asked yet, which counts as live"))


def resolve(reference: str) -> str:
    """The secret that `reference` (`env:`, `file:`, `command:`) names; masked in all output from now on.

    `BadInput` when it can't be read.
    """
    from gpurack.site.secrets import read_reference

    return conceal(current().once(f"secret {reference}", lambda: read_reference(reference)))


# ------------------------------------------------------------------------------------ on the controller
def state_dir(site: Site | None = None) -> Path:
    """The folder of `site` (of this run's site by default) on the controller, made with mode 0700.

    `<repository>/.gpurack/<site name>`: the repository is the nearest folder above the document that holds
    `.git` or `pyproject.toml`; without one, the folder of the document, or above its `inventories`.
    """
    site = site or current().site or this_node().site
    document = Path(site.file).resolve()
    marks = (".git", "pyproject.toml")
    above = (folder for folder in document.parents if any((folder / mark).exists() for mark in marks))
    near = document.parent.parent if document.parent.name == "inventories" else document.parent
    root = next(above, near) / ".gpurack"
    folder = root / site.name
    try:
        for each in (root, folder):
            each.mkdir(mode=0o700, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise BadInput(
            Problem(
                code="E-RUN-01",
                what=f"the state folder of site {site.name} can't be made: {error.strerror}",
                found=str(folder),
                next="give this user write access to the repository, or put the site document elsewhere",
            )
        ) from error
    return folder


def known_hosts(site: Site) -> Path:
    """The host keys that this site trusts; never the user's own file."""
    given = site.ssh.known_hosts
    return beside(site, given) if given else state_dir(site) / "known_hosts"


def beside(site: Site, path: str) -> Path:
    """`path` of the site document: `~` unfolded, relative ones counted from the document's folder."""
    return Path(site.file).resolve().parent / Path(path).expanduser()


def command_line() -> tuple[str, ...]:
    """How this process was started."""
    return (Path(sys.argv[0]).name, *sys.argv[1:])


def operator() -> str:
    """Who runs this, for the lock on hosts: user, machine and process."""
    try:
        user = os.environ.get("SUDO_USER") or pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    return f"{user}@{os.uname().nodename} (pid {os.getpid()})"
