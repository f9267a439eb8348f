"""Three real sshd on loopback, each in a mount namespace of its own, and the stock pyinfra command."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PORT = 22622
NET = f"127.77.{os.getpid() % 250}"  # another session may test at the same time
HOSTS = {"cp-1": f"{NET}.11", "gpu-1": f"{NET}.12", "gpu-2": f"{NET}.13"}

DOCUMENT = """\
name: bench
accept: [os-debian-12]
ssh: {user: root, port: %(port)d, key: ../key}
stack:
  kubernetes: 1.34.4
  containerd: 2.2.9
  packages:
    kubelet: 1.34.4-1.1
    kubeadm: 1.34.4-1.1
    kubectl: 1.34.4-1.1
    cri_tools: 1.34.0-1.1
    kubernetes_cni: 1.7.1-1.1
    containerd_io: 2.2.9-1~debian.12~bookworm
  images: {pause: "3.10.1", etcd: 3.6.5-0, coredns: v1.12.1}
cluster:
  name: bench
  endpoint: %(net)s.11:6443
  pod_cidrs: [10.244.0.0/16]
  service_cidrs: [10.96.0.0/16]
  cni: external
pools:
  small:
    platform: lab-container
    stage: lab
    hardware: {gpus: {count: 4}}
hosts:
  - {name: cp-1, address: %(net)s.11, role: control-plane}
  - {name: gpu-1, address: %(net)s.12, pool: small}
  - {name: gpu-2, address: %(net)s.13, pool: small}
"""

PREAMBLE = """\
from pyinfra.api.operation import operation
from pyinfra.context import host
from gpurack.decide.decision import *
from gpurack.engine import *
from gpurack.errors import *
from gpurack.facts.probe import Probe

NODE = this_node().name
BASE = {base!r}
"""


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str
    report: dict[str, Any]


class Trio:
    """+ base: the folder that each host has for itself, under the same name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.base = folder / "host"
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        self.runs: list[subprocess.Popen[str]] = []
        self.document = folder / "inventories" / "bench.yaml"
        self.state = folder / ".gpurack" / "bench"

    def start(self) -> None:
        for name in ("inventories", "host"):
            (self.folder / name).mkdir()
        self.key("key")
        shutil.copy(self.folder / "key.pub", self.folder / "authorized")
        self.document.write_text(DOCUMENT % {"port": PORT, "net": NET})
        (self.folder / "inventories" / "bench").write_text('bench = [f"@gpurack/{__file__}.yaml"]\n')
        for name in HOSTS:
            self.key(f"{name}.key")
            self.boot(name)
        self.trust()

    def key(self, name: str) -> None:
        file = self.folder / name
        file.unlink(missing_ok=True)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file], check=True)

    def boot(self, name: str) -> None:
        config = self.folder / f"{name}.conf"
        config.write_text(
            textwrap.dedent(f"""\
            ListenAddress {HOSTS[name]}:{PORT}
            HostKey {self.folder}/{name}.key
            PidFile none
            AuthorizedKeysFile {self.folder}/authorized
            PasswordAuthentication no
            KbdInteractiveAuthentication no
            UsePAM no
            StrictModes no
            PermitRootLogin prohibit-password
            LogLevel ERROR
            """)
        )
        mounts = "; ".join(
            f"mkdir -p {place} && mount -t tmpfs -o size=4m tmpfs {place}"
            for place in ("/run/gpurack", "/var/log/gpurack", self.base)
        )
        daemon = f"exec /usr/sbin/sshd -D -e -f {config}"
        command = [
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-ec",
            f"{mounts}; mkdir -p /run/sshd; {daemon}",
        ]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.daemons[name] = subprocess.Popen(command, stderr=log, start_new_session=True)
        for _ in range(100):
            probe = subprocess.run(
                ["ssh-keyscan", "-T", "1", "-p", str(PORT), HOSTS[name]], capture_output=True, check=False
            )
            if probe.stdout:
                return
            time.sleep(0.05)
        raise RuntimeError((self.folder / f"{name}.log").read_text())

    def trust(self) -> None:
        self.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        lines = []
        for name, address in HOSTS.items():
            kind, blob, *_ = (self.folder / f"{name}.key.pub").read_text().split()
            lines.append(f"[{address}]:{PORT} {kind} {blob}\n")
        (self.state / "known_hosts").write_text("".join(lines))

    def stop(self) -> None:
        self.end_runs()
        for daemon in self.daemons.values():
            daemon.kill()
            daemon.wait()

    # ------------------------------------------------------------------------------------ use
    def on(self, name: str, path: str) -> Path:
        """The file `path` of host `name`, seen from here."""
        return Path(f"/proc/{self.daemons[name].pid}/root{self.base}/{path}")

    def clean(self) -> None:
        self.end_runs()
        for name in HOSTS:
            for file in self.on(name, ".").iterdir():
                shutil.rmtree(file) if file.is_dir() else file.unlink()

    def end_runs(self) -> None:
        """What a failed test left at work would hold the lock of its host for the next one."""
        while self.runs:
            run = self.runs.pop()
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
                run.communicate()

    def wipe(self, name: str, path: str) -> None:
        shutil.rmtree(self.on(name, path))

    @contextlib.contextmanager
    def full(self, name: str) -> Iterator[None]:
        """The disk of host `name` has no room for more than a few kilobytes."""
        ballast = self.on(name, "ballast")
        ballast.write_bytes(b"x" * 3_500_000)
        yield
        ballast.unlink()

    def deploy(self, body: str, name: str = "deploy.py") -> str:
        file = self.folder / name
        file.write_text(PREAMBLE.format(base=str(self.base)) + textwrap.dedent(body))
        return file.name

    def popen(self, *arguments: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        run = subprocess.Popen(
            [sys.executable, "-m", "pyinfra", *arguments],
            cwd=self.folder,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.runs.append(run)
        return run

    def pyinfra(self, *arguments: str, env: dict[str, str] | None = None) -> Result:
        return self.finish(self.popen(*arguments, env=env))

    def run(self, body: str, *arguments: str, env: dict[str, str] | None = None) -> Result:
        return self.pyinfra("inventories/bench", self.deploy(body), *(arguments or ("--yes",)), env=env)

    def finish(self, process: subprocess.Popen[str]) -> Result:
        try:
            out, err = process.communicate(timeout=150)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
        said = re.search(r"^report: (.+\.json)$", err, re.MULTILINE)
        report = json.loads(Path(said[1]).read_text()) if said else {}
        return Result(process.returncode, out, err, report)
