"""Logins, certificates and trust as we lay them down, against the lab's registry behind TLS and login."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from gpurack.decide.containerd import edit, registries
from gpurack.decide.containerd.models import Login, RegistryHosts
from gpurack.decide.decision import Write
from gpurack.lab import components
from tests.lab.test_containerd_claims import await_socket, start, write

pytestmark = pytest.mark.lab


def test_our_hosts_file_logs_in_over_tls_and_without_its_login_or_certificate_it_does_not(
    tmp_path: Path, bare_rack: Path
) -> None:
    """The lab's registry wants both. Nothing of it is in the root file, so nothing restarts for it (R100)."""
    assert bare_rack
    fetch_with_login(components.ensure(["containerd"], print)["containerd"], tmp_path)


def fetch_with_login(program: Path, folder: Path) -> None:
    """Pull the pause image from the lab's TLS registry, then again with a part of hosts.toml missing."""
    home = Path("/var/lib/gpurack/lab/mirror")
    login = Login(user="rack", password=(home / "registry" / "password").read_text().strip())
    ca = (home / "keys" / "registry-ca.pem").read_text()
    whole = RegistryHosts(name="registry.k8s.io", mirrors=("https://10.77.0.2:5443",), ca=ca, login=login)
    write(folder, "config.toml", "version = 3\n")
    started = start(program, folder)
    try:
        await_socket(started, folder)
        assert _fetch(program, folder, whole) == ""
        assert "no basic auth credentials" in _fetch(program, folder, replace(whole, login=None))
        assert "unknown authority" in _fetch(program, folder, replace(whole, ca=None))
        write(folder, "trust/gpurack.pem", edit.HEADER + ca)  # what the environment file of a ca_bundle does
        trusting = {"SSL_CERT_DIR": f"/etc/ssl/certs:{folder}/trust"}
        assert _fetch(program, folder, replace(whole, ca=None), trusting) == ""
        assert _fetch(program, folder, whole) == ""
    finally:
        started.terminate()
        started.communicate(timeout=20)


def _fetch(
    program: Path, folder: Path, registry: RegistryHosts, environment: dict[str, str] | None = None
) -> str:
    """What `ctr` complains about; empty when the image came."""
    for path, step in (
        (step.path, step) for step in registries.serve([registry], {}).steps if isinstance(step, Write)
    ):
        write(
            folder,
            path.removeprefix("/etc/containerd/"),
            step.content.replace("/etc/containerd", str(folder)),
        )
    ctr = [program.with_name("ctr"), "--address", folder / "s.sock", "content"]
    hosts = ["--hosts-dir", folder / "certs.d"]
    done = subprocess.run(
        [*ctr, "fetch", *hosts, "registry.k8s.io/pause:3.10.1"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **(environment or {})},
    )
    assert login_of(registry) not in done.stdout + done.stderr
    return done.stderr if done.returncode else ""


def login_of(registry: RegistryHosts) -> str:
    return registry.login.password if registry.login else "no login"
