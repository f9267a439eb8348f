"""Which containerd is ours to manage: exactly one, the one behind kubelet's socket (O-19, R82)."""

from __future__ import annotations

from collections.abc import Iterable

from gpurack.decide.containerd.config import ROOT
from gpurack.decide.containerd.models import Snapshot
from gpurack.errors import Problem

UNIT = "containerd.service"
SOCKET = "/run/containerd/containerd.sock"
BINARY = "/usr/bin/containerd"  # where every package of it puts the program


def problems_of(found: Snapshot) -> tuple[Problem, ...]:
    """Refusals about who serves CRI on this host. Never restart the other one."""
    endpoint = _path(found.kubelet_endpoint)
    if endpoint and endpoint != SOCKET:
        return (
            Problem(
                code="E-CTRD-11",
                what=f"kubelet uses {endpoint}, which is not the socket of {UNIT}",
                found=_listed(found),
                wanted=f"kubelet on {SOCKET}",
                rule="O-19: configuration belongs to the process behind kubelet's socket",
                next="leave this host to the distribution that set it up, or remove that with its kubelet",
            ),
        )
    others = _others(found)
    if others and (endpoint is None or found.units.get(UNIT, BINARY) != BINARY):
        return (
            Problem(
                code="E-CTRD-10",
                what=f"{', '.join(others)}: containerd from another source is on this host",
                found=_listed(found),
                wanted=f"one: {BINARY} in {UNIT}",
                rule="O-19, R82: one source of containerd per host",
                next=f"remove {', '.join(others)} with whatever brought it, then run again",
            ),
        )
    daemon = found.daemon
    if daemon and daemon.config != ROOT:
        return (
            Problem(
                code="E-CTRD-10",
                what=f"{UNIT} reads {daemon.config}, not {ROOT}",
                found=" ".join((daemon.exe, *daemon.arguments[1:])),
                rule="O-19: the config path comes from the running process",
                next=f"remove --config from the unit's ExecStart and move the settings to {ROOT}",
            ),
        )
    return ()


def notes_of(found: Snapshot) -> tuple[str, ...]:
    """Another containerd beside the one that kubelet uses is left alone, and said."""
    others = _others(found)
    if not others or found.kubelet_endpoint is None:
        return ()
    return (f"{', '.join(others)} is left alone: kubelet uses {SOCKET}",)


def _others(found: Snapshot) -> tuple[str, ...]:
    paths = [binary.path for binary in found.binaries]
    paths += [daemon.exe for daemon in found.daemons]
    paths += list(found.units.values())
    # A single one elsewhere (a tarball in /usr/local) counts: with the package there would be two.
    return tuple(dict.fromkeys(path for path in paths if path != BINARY))


def _path(endpoint: str | None) -> str | None:
    # /var/run is a link to /run, and the default that kubeadm itself writes.
    path = endpoint.removeprefix("unix://") if endpoint else None
    return "/run/" + path.removeprefix("/var/run/") if path and path.startswith("/var/run/") else path


def _listed(found: Snapshot) -> str:
    lines: list[str] = []
    for path in _all_paths(found):
        version, owner = next(((b.version, b.owner) for b in found.binaries if b.path == path), (None, None))
        units = [unit for unit, exe in found.units.items() if exe == path]
        sockets = [socket for daemon in found.daemons if daemon.exe == path for socket in daemon.sockets]
        number = "v" + ".".join(map(str, version)) if version else "unknown version"
        parts = [path, number, *(f"unit {u}" for u in units), *(f"socket {s}" for s in sockets)]
        lines.append(" ".join([*parts, *([f"package {owner}"] if owner else [])]))
    if found.kubelet_endpoint:
        lines.append(f"kubelet: {found.kubelet_endpoint}")
    return "; ".join(lines)


def _all_paths(found: Snapshot) -> Iterable[str]:
    return dict.fromkeys(
        [
            *(binary.path for binary in found.binaries),
            *(daemon.exe for daemon in found.daemons),
            *found.units.values(),
        ]
    )
