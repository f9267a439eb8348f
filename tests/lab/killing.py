"""How kill tests act: SIGKILL to the controller at a named moment, and what may be left afterwards."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.lab import harness


class Controller:
    """A pyinfra run in its own process group, so that SIGKILL reaches all of it at once."""

    def __init__(self, inventory: str, deploy: str, *flags: str) -> None:
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            [str(harness.BIN / "pyinfra"), "--yes", *flags, inventory, deploy],
            cwd=harness.REPOSITORY,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        self.lines.extend(self._process.stdout)

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def says(self, words: str) -> bool:
        return any(words in line for line in self.lines)

    def ends(self, *, within: float) -> int:
        """The exit code, once everything that the run printed is in `lines`."""
        code = self._process.wait(timeout=within)
        self._reader.join(timeout=5)
        return code

    def kill(self) -> None:
        """SIGKILL, to every process of the run."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(timeout=5)


def kill_when_said(words: str, inventory: str, deploy: str, *flags: str, deadline: float = 300) -> None:
    """Kill the controller as soon as it prints `words`."""
    controller = Controller(inventory, deploy, *flags)
    end = time.monotonic() + deadline
    while not controller.says(words):
        if controller.ended or time.monotonic() > end:
            controller.kill()
            pytest.fail(f"never printed: {words!r}\n{''.join(controller.lines)[-3000:]}")
        time.sleep(0.02)
    controller.kill()


def kill_when_seen(
    condition: str, host: str, inventory: str, deploy: str, *flags: str, site: Path, deadline: float = 300
) -> None:
    """Kill the controller as soon as the shell `condition` holds on `host`."""
    watch = f"while ! ( {condition} ) >/dev/null 2>&1; do sleep 0.02; done; echo seen"
    controller = Controller(inventory, deploy, *flags)
    with subprocess.Popen(
        harness.ssh_argv(host, watch, site=site), stdout=subprocess.PIPE, text=True
    ) as watcher:
        end = time.monotonic() + deadline
        while watcher.poll() is None and not controller.ended and time.monotonic() < end:
            time.sleep(0.01)
        seen = watcher.poll() == 0 and not controller.ended
        controller.kill()
        watcher.kill()
    if not seen:
        pytest.fail(f"never seen: {condition!r}\n{''.join(controller.lines)[-3000:]}")


# What a killed run may not leave behind once a later run has converged.
HELD = "containerd.io cri-tools kubeadm kubectl kubelet kubernetes-cni"
LEFTOVERS = rf"""
find /etc /usr/local /var/lib/kubelet /var/lib/gpurack /opt /tmp /root -xdev -name '.gpurack.*' 2>/dev/null
ls /etc/kubernetes/bootstrap-kubelet.conf /run/gpurack/*.yaml /run/gpurack/*.sh /run/gpurack/*.new \
  /var/lib/gpurack/*.unfinished 2>/dev/null
systemctl list-units --all --plain --no-legend 'gpurack-*' | grep -E 'running|failed' | grep -v routes
sort /etc/fstab /etc/hosts /etc/default/kubelet 2>/dev/null | grep -v '^#' | grep -v '^$' | uniq -d
# The lock goes with the connection that holds it; sshd needs a moment to see that.
flock -w 5 /run/gpurack/lock true || echo "the lock is held: $(cat /run/gpurack/holder)"
dpkg --audit
for package in {HELD}; do apt-mark showhold | grep -qx "$package" || echo "$package is not held"; done
"""


def assert_clean(host: str, *, site: Path) -> None:
    """No temporary or bootstrap file, unit of ours, duplicate line, lock, half a package, cordon, token."""
    left = harness.ssh(host, LEFTOVERS, site=site).out.split("\n")
    assert [line for line in left if line.strip()] == []
    cordoned = [
        node["metadata"]["name"]
        for node in harness.objects("nodes", site=site)
        if node["spec"].get("unschedulable")
    ]
    assert cordoned == []
    tokens = harness.objects(
        "secrets", "-n", "kube-system", "--field-selector", "type=bootstrap.kubernetes.io/token", site=site
    )
    ours = [token for token in tokens if b"gpurack" in _description(token)]
    assert ours == []


def _description(token: dict[str, dict[str, str]]) -> bytes:
    return base64.b64decode(token["data"].get("description", ""))
