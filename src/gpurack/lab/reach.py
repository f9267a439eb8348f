"""The way into a host: ssh with the lab's key and strict host keys; waiting for it, with signs of life."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterable

from gpurack.errors import Problem, Refused
from gpurack.lab.process import Progress
from gpurack.lab.state import KEY, KNOWN_HOSTS, RackHost

SIGN_OF_LIFE = 5.0  # seconds
POLL = 0.3
DEADLINES = {
    "container": 60.0,
    "vm": 420.0,
}  # seconds to ssh; measured 2-4, and 70-100 under emulation on two CPUs


def argv(host: RackHost, *command: str, patience: int = 10) -> list[str]:
    """The ssh command line to run `command` (a shell, when empty) on the host as root."""
    options = (
        "BatchMode=yes",
        "StrictHostKeyChecking=yes",
        f"UserKnownHostsFile={KNOWN_HOSTS}",
        "GlobalKnownHostsFile=/dev/null",
        "IdentitiesOnly=yes",
        "LogLevel=ERROR",
        f"ConnectTimeout={patience}",
    )
    flags = [part for option in options for part in ("-o", option)]
    return ["ssh", "-F", "none", *flags, "-i", str(KEY), f"root@{host.address}", *command]


def ask(host: RackHost, script: str, timeout: float = 30.0, patience: int = 10) -> str | None:
    """Output of a script on the host; none when it could not be reached within `patience`, failed, or took
    longer than `timeout` (seconds)."""
    try:
        done = subprocess.run(
            argv(host, script, patience=patience),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    return done.stdout if done.returncode == 0 else None


class Stopped(Refused):
    """The host ended while it was waited for."""


def wait(
    host: RackHost,
    progress: Progress,
    *,
    after_boot: str | None = None,
    runs: Callable[[], bool] = lambda: True,
) -> float:
    """Wait until ssh answers and systemd has finished booting; the seconds it took.

    + after_boot: a boot id that must be gone by then (a reboot)
    + runs: asked all the time; `Stopped` when it says no. Refused at the deadline.
    """
    begun = told = time.monotonic()
    limit = DEADLINES[host.kind]
    script = "cat /proc/sys/kernel/random/boot_id; systemctl is-system-running --wait || :"
    while True:
        answer = (ask(host, script, timeout=limit, patience=5) or "").split()
        if answer and answer[0] != after_boot:
            if answer[-1] == "degraded":
                units = ask(host, "systemctl --failed --no-legend --plain | cut -d' ' -f1") or ""
                progress(f"{host.name} is up, with failed units: {' '.join(units.split())}")
            return time.monotonic() - begun
        if not runs():
            console = host.folder / "console.log"
            said = console.read_text(errors="replace").split("\n")[-4:] if console.exists() else []
            raise Stopped(
                Problem(
                    code="E-LAB-14",
                    host=host.name,
                    what="it stopped while it was expected to boot",
                    found=" | ".join(line.strip() for line in said if line.strip()) or None,
                    next=f"gpurack lab logs {host.name}; then gpurack lab reset {host.name}",
                )
            )
        now = time.monotonic()
        if now - begun > limit:
            raise Refused(
                Problem(
                    code="E-LAB-08",
                    host=host.name,
                    what=f"ssh did not answer within {limit:.0f} s of its boot",
                    next=f"gpurack lab logs {host.name}; then gpurack lab reset {host.name}",
                )
            )
        if now - told >= SIGN_OF_LIFE:
            told = now
            progress(f"waiting for ssh of {host.name} ({now - begun:.0f} s of {limit:.0f} s)")
        time.sleep(POLL)


def known_hosts(rack: Iterable[RackHost]) -> str:
    """Host keys of the rack as known_hosts lines, by name and address; empty for hosts that have none yet."""
    lines = []
    for host in rack:
        file = host.identity / "ssh_host_ed25519_key.pub"
        if file.exists():
            kind, key, *_ = file.read_text().split()
            lines.append(f"{host.name},{host.address} {kind} {key}\n")
    return "".join(lines)
