"""A Python module started in network, mount and cgroup names of its own, beside the tests' rack."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from gpurack.lab import cgroups, machine
from tests.lab import harness

_ENTER = """
mount --make-rprivate /
mkdir -p /var/lib/gpurack/lab /run/netns
mount --bind "$1" /var/lib/gpurack/lab
mount -t tmpfs tmpfs /run/netns
ip link set lo up
shift
exec "$@"
"""


def run(
    module: str,
    argument: str,
    *,
    folder: Path,
    cgroup: str,
    timeout: float,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `module` to its end; what it left is removed in any case.

    + folder: what it sees as the lab's folder; + cgroup: its name in place of the lab's
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one at a time on a machine: folder and cgroups have fixed names
        folder.mkdir(parents=True, exist_ok=True)
        command = ["unshare", "--net", "--mount", "sh", "-ec", _ENTER, "sh", str(folder)]
        try:
            return subprocess.run(
                [*command, sys.executable, "-m", module, argument],
                env={**os.environ, **(env or {})},
                cwd=harness.REPOSITORY,
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
            )
        finally:
            kept, cgroups.OURS = cgroups.OURS, cgroup
            for name in cgroups.names():
                cgroups.kill(name)
            cgroups.remove()
            cgroups.OURS = kept
            shutil.rmtree(folder)


def take_names(cgroup: str) -> None:
    """First thing in such a module: its cgroups have their own name, and the machine's settings stay."""
    cgroups.OURS = cgroup
    machine.SYSCTLS = ()  # the rack beside this one depends on them
