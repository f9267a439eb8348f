"""Snapshots for the tests: a host as it is right before and right after our work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from gpurack.decide.containerd import config, unit
from gpurack.decide.containerd.decision import fingerprint
from gpurack.decide.containerd.models import (
    Binary,
    ConfigFile,
    Cri,
    Daemon,
    Digest,
    Service,
    Snapshot,
    Wanted,
)
from gpurack.decide.containerd.registries import sha256

WANTED = Wanted(version=(2, 2, 9), sandbox="registry.k8s.io/pause:3.10.1")
FIXTURES = Path(__file__).parent / "fixtures"


def fixture(name: str) -> str:
    return (FIXTURES / name).read_text()


def files(**texts: str) -> dict[str, ConfigFile]:
    """`root=...` is the root file; `conf_99_nvidia` is `/etc/containerd/conf.d/99-nvidia.toml`."""
    found = {}
    for name, text in texts.items():
        path = (
            config.ROOT
            if name == "root"
            else f"{config.CONF_D}/{name.removeprefix('conf_').replace('_', '-')}.toml"
        )
        found[path] = ConfigFile(path=path, text=text, changed=50.0)
    return found


def snapshot(given: dict[str, ConfigFile] | None = None, **changes: Any) -> Snapshot:
    """One healthy containerd of the package, started at 100 s, looked at at 1000 s."""
    daemon = Daemon(
        pid=7,
        exe="/usr/bin/containerd",
        arguments=("/usr/bin/containerd",),
        ticks=77,
        started=100.0,
        unit="containerd.service",
        sockets=("/run/containerd/containerd.sock",),
        memlock="unlimited",
    )
    healthy = Snapshot(
        now=1000.0,
        binaries=(Binary(path="/usr/bin/containerd", version=(2, 2, 9)),),
        units={"containerd.service": "/usr/bin/containerd"},
        daemons=(daemon,),
        service=Service(found=True, active=True, enabled=True, main_pid=7),
        files=given or {},
        cri=Cri(ready=True, default_runtime="runc", systemd_cgroup={"runc": True}),
    )
    return replace(healthy, **changes)


def as_wanted(wanted: Wanted = WANTED, given: dict[str, ConfigFile] | None = None) -> Snapshot:
    """The host after our work on `given`, containerd restarted since."""
    plan = config.plan(wanted, given or {})
    assert not plan.refused, plan.refused
    done = {**(given or {}), **{p: ConfigFile(path=p, text=t, changed=50.0) for p, t in plan.texts.items()}}
    digests = {
        path: Digest(path=path, sha256=sha256(text), mode=mode, changed=50.0, ours=True)
        for path, (text, mode) in unit.wanted_files(wanted).items()
        if text is not None
    }
    service = replace(snapshot().service, drop_ins=(unit.DROP_IN,))
    return snapshot(done, digests=digests, service=service)


def fingerprint_of(found: Snapshot, wanted: Wanted = WANTED) -> str:
    return fingerprint(config.plan(wanted, found.files).after, unit.hashes_wanted(wanted))
