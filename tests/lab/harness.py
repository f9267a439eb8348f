"""How lab tests act: the stock command line and ssh, as a person would, and what they compare."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpurack.site.load import load

REPOSITORY = Path(__file__).resolve().parents[2]
BIN = REPOSITORY / ".venv" / "bin"
LAB = Path("/var/lib/gpurack/lab")
# kubelet's words when its memory manager's saved state does not fit the machine.
STATE_REFUSED = "the expected machine state is different from the real one"

# Everything that a run may write on a host; a second run may not touch inode, time or size of any of it.
MANAGED = (
    "/etc/apt /etc/cni /etc/containerd /etc/crictl.yaml /etc/default /etc/fstab /etc/gpurack /etc/hosts "
    "/etc/kubernetes /etc/modules-load.d /etc/needrestart /etc/security /etc/sysctl.d /etc/systemd "
    "/usr/local/lib/gpurack /var/lib/gpurack /var/lib/kubelet/config.yaml /var/lib/kubelet/kubeadm-flags.env "
    "/var/lib/kubelet/instance-config.yaml /var/lib/kubelet/cpu_manager_state "
    "/var/lib/kubelet/memory_manager_state"
)


@dataclass(frozen=True)
class Ran:
    """A finished command."""

    rc: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err

    def ok(self) -> Ran:
        assert self.rc == 0, f"exit {self.rc}\n{self.out[-6000:]}\n{self.err[-6000:]}"
        return self


def run(*argv: str | Path, timeout: float = 900, env: dict[str, str] | None = None, stdin: str = "") -> Ran:
    """Run a local command to its end."""
    done = subprocess.run(
        [str(part) for part in argv],
        cwd=REPOSITORY,
        input=stdin,
        text=True,
        capture_output=True,
        timeout=timeout,
        env={**os.environ, **(env or {})},
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def gpurack(*args: str | Path, **options: Any) -> Ran:
    """The `gpurack` command."""
    return run(BIN / "gpurack", *args, **options)


def pyinfra(inventory: str | Path, deploy: str | Path, *flags: str, **options: Any) -> Ran:
    """Stock pyinfra, as documented."""
    return run(BIN / "pyinfra", "--yes", *flags, inventory, deploy, **options)


def changed(ran: Ran) -> dict[str, list[str]]:
    """Operations that changed something, by host, out of a run with `--json`."""
    report = json.loads(ran.out[ran.out.index("{") :])
    found: dict[str, list[str]] = {}
    for operation in report["results"]["operations"]:
        for outcome in ("success", "error"):
            for host in operation[outcome]:
                found.setdefault(host, []).append(f"{operation['name']}: {outcome}")
    return found


def ssh_argv(host: str, script: str, *, site: Path) -> list[str]:
    """The ssh command line to a host of the rack."""
    address = load(site).node(host).host.address
    options = (
        "BatchMode=yes",
        "StrictHostKeyChecking=no",
        "UserKnownHostsFile=/dev/null",
        "LogLevel=ERROR",
        "ConnectTimeout=10",
    )
    flags = [part for option in options for part in ("-o", option)]
    return ["ssh", *flags, "-i", str(LAB / "ssh" / "id_ed25519"), f"root@{address}", script]


def ssh(host: str, script: str, *, site: Path, timeout: float = 120, stdin: str = "") -> Ran:
    """Run a shell script as root on a host of the rack."""
    return run(*ssh_argv(host, script, site=site), timeout=timeout, stdin=stdin)


def until(holds: Callable[[], bool], what: str, deadline: float, every: float = 1.0) -> None:
    """Poll until `holds()`; fail with `what` at the deadline (seconds)."""
    end = time.monotonic() + deadline
    while not holds():
        assert time.monotonic() < end, f"not within {deadline:.0f} s: {what}"
        time.sleep(every)


def footprint(host: str, *, site: Path) -> dict[str, str]:
    """What must not move in a run with nothing to do: files, and the processes of the two daemons."""
    files = ssh(host, f"find {MANAGED} -printf '%p|%i %T@ %C@ %s %m\\n' 2>/dev/null; true", site=site).ok()
    found = dict(line.rsplit("|", 1) for line in files.out.splitlines())
    for unit in ("containerd", "kubelet"):
        show = ssh(
            host, f"systemctl show {unit} -p MainPID,ExecMainStartTimestampMonotonic,NRestarts", site=site
        ).ok()
        found[unit] = " ".join(show.out.split())
    return found


def kubectl(*args: str, site: Path, stdin: str = "", timeout: float = 120) -> Ran:
    """kubectl on the first control plane, with the cluster's own admin.conf."""
    control_plane = next(host.name for host in load(site).hosts if host.role == "control-plane")
    line = " ".join(_quoted(args))
    return ssh(
        control_plane,
        f"KUBECONFIG=/etc/kubernetes/admin.conf kubectl {line}",
        site=site,
        stdin=stdin,
        timeout=timeout,
    )


def objects(kind: str, *args: str, site: Path) -> list[dict[str, Any]]:
    """Objects of one kind, as the API has them."""
    return list(json.loads(kubectl("get", kind, "-o", "json", *args, site=site).ok().out)["items"])


def ready(site: Path) -> dict[str, bool]:
    """Which nodes the API calls Ready."""
    return {
        node["metadata"]["name"]: any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for condition in node["status"]["conditions"]
        )
        for node in objects("nodes", site=site)
    }


def journals(site: Path) -> Iterator[tuple[str, str]]:
    """The lines that most often explain a failed lab test, host by host."""
    for host in load(site).hosts:
        script = (
            "for u in containerd kubelet 'gpurack-*'; do echo \"== $u\"; "
            'journalctl -u "$u" -n 25 --no-pager -o short-iso 2>/dev/null | cut -c1-400; done'
        )
        yield host.name, ssh(host.name, script, site=site, timeout=30).text


def _quoted(args: tuple[str, ...]) -> Iterator[str]:
    for arg in args:
        yield "'" + arg.replace("'", "'\\''") + "'"
