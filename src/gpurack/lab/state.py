"""Where the rack keeps its things, what it remembers between runs, and the lock that one run holds.

Everything under `ROOT` belongs to the rack and may be deleted while it is down. What was built
once lies in the cache.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gpurack.errors import Problem, Refused

Kind = Literal["container", "vm"]

ROOT = Path("/var/lib/gpurack/lab")
SSH = ROOT / "ssh"
KEY = SSH / "id_ed25519"
KNOWN_HOSTS = SSH / "known_hosts"

_AFTERLIFE = 5.0  # seconds


@dataclass(frozen=True, slots=True)
class RackHost:
    """One host to be. + gpus: simulated NVIDIA functions it gets (0: none)."""

    name: str
    address: str
    kind: Kind
    gpus: int = 0

    @property
    def folder(self) -> Path:
        return ROOT / "hosts" / self.name

    @property
    def identity(self) -> Path:
        """What outlives a reset: host keys, firmware UUID, the frozen memory figures."""
        return self.folder / "identity"


def remember(host: RackHost, **facts: Any) -> None:
    """Add `facts` to what is known of the host (pids, cgroup roots, options), atomically."""
    known = recall(host.name) | {
        "name": host.name,
        "address": host.address,
        "kind": host.kind,
        "gpus": host.gpus,
        **facts,
    }
    host.folder.mkdir(parents=True, exist_ok=True)
    file = host.folder / "host.json"
    temporary = file.with_suffix(".new")
    temporary.write_text(json.dumps(known, indent=1) + "\n")
    temporary.replace(file)


def recall(name: str) -> dict[str, Any]:
    """What was remembered of the host; empty when nothing was, or when a killed run left half a file."""
    try:
        known = json.loads((ROOT / "hosts" / name / "host.json").read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def known() -> tuple[RackHost, ...]:
    """Every host that the rack remembers, by name."""
    found = []
    for folder in sorted((ROOT / "hosts").glob("*")):
        facts = recall(folder.name)
        if facts:
            found.append(RackHost(facts["name"], facts["address"], facts["kind"], facts["gpus"]))
    return tuple(found)


@contextmanager
def locked(name: str = "rack", wait: bool = False) -> Iterator[None]:
    """Hold the machine-wide lock `name`: two runs never boot or stop the same rack. Refused, with the
    holder's pid, when another one has it and `wait` is off. The kernel frees it when the holder dies."""
    ROOT.mkdir(parents=True, exist_ok=True)
    with (ROOT / f"{name}.lock").open("a+") as file:
        until = time.monotonic() + _AFTERLIFE
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
                break
            except BlockingIOError:
                file.seek(0)
                holder = file.read().strip()
                # a program that a killed run was just starting holds the lock for a moment more
                if Path("/proc", holder or "none").exists() or time.monotonic() > until:
                    raise Refused(
                        Problem(
                            code="E-LAB-01",
                            what="another run is changing the rack",
                            found=f"process {holder or 'unknown'}",
                            next="wait for it to end, then run this again",
                        )
                    ) from None
                time.sleep(0.05)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
