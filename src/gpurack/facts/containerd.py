"""containerd as it is on a host: programs, processes, files, what it says of them, and what CRI answers."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import Any

from gpurack.decide.containerd.candidates import BINARY, SOCKET, UNIT
from gpurack.decide.containerd.config import CERTS, ROOT
from gpurack.decide.containerd.decision import NOTE
from gpurack.decide.containerd.models import (
    Binary,
    ConfigFile,
    Cri,
    Daemon,
    Digest,
    Ran,
    Service,
    Snapshot,
    Version,
)
from gpurack.decide.containerd.unit import BUNDLE, DROP_IN, ENVIRONMENT
from gpurack.facts.probe import Probe, in_c_locale

ETC = "/etc/containerd"

# Few processes for many files: when each changed, then whose the lines are and the lines.
_SHOW = """stat -Lc 'file=%.9Z %n' "$@"; awk 'FNR == 1 { print "in=" FILENAME } { print "text=" $0 }' "$@" """

# One answer of `key=value` lines. Files that may hold logins answer with their hash alone: no secret of ours
# travels back.
_SCRIPT = rf"""
put() {{ printf '%s=%s\n' "$1" "$2"; }}
put now "$(date +%s.%N)"
put uptime "$(cut -d' ' -f1 /proc/uptime)"
put hertz "$(getconf CLK_TCK)"
programs=$(printf '%s:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin\n' "$PATH" | tr : '\n' |
while read -r dir; do
  if test -f "$dir/containerd" && test -x "$dir/containerd"; then readlink -f "$dir/containerd"; fi
done | sort -u)
printf '%s\n' "$programs" | while read -r path; do
  test -n "$path" || continue
  owner=
  if test "$programs" != {BINARY}; then owner=$(dpkg -S "$path" 2>/dev/null | head -n1 | cut -d: -f1); fi
  version=$("$path" --version 2>/dev/null | cut -d' ' -f3)
  printf 'binary=%s\t%s\t%s\n' "$path" "$version" "$owner"
done
grep -HoE '^ExecStart=[-@:+!]*[^ ]*/containerd( |$)' /etc/systemd/system/*.service \
  /run/systemd/system/*.service /usr/lib/systemd/system/*.service /lib/systemd/system/*.service 2>/dev/null |
  sed 's/^/exec=/'
systemctl show {UNIT} -p LoadState -p ActiveState -p UnitFileState -p NeedDaemonReload -p MainPID \
  -p DropInPaths | sed 's/^/unit_/'
names=$(grep -HxE 'containerd|kubelet' /proc/[0-9]*/comm 2>/dev/null)
others=$(printf '%s\n' "$names" | grep -c ':containerd$')
for proc in $(printf '%s\n' "$names" | sed -n 's|/comm:containerd$||p'); do
  put pid "${{proc#/proc/}}"
  put exe "$(readlink "$proc/exe")"
  put arguments "$(tr '\000\n' '\t ' <"$proc/cmdline")"
  put ticks "$(sed 's/.*) //' "$proc/stat" | cut -d' ' -f20)"
  put unit "$(grep -oE '[^/]+\.service' "$proc/cgroup" | tail -n1)"
  put memlock "$(sed -n 's/^Max locked memory *\([^ ]*\) .*/\1/p' "$proc/limits")"
done
if test "$others" -gt 1 || test "$programs" != {BINARY}; then  # only then somebody asks whose socket is whose
  ss -xlpnH 2>/dev/null | grep '"containerd"' | sed 's/^/socket=/'
fi
set -- $(find -L {ETC} -maxdepth 3 -name '*.toml' -type f ! -path '{CERTS}/*' 2>/dev/null)
if test $# -gt 0; then {_SHOW}; fi
set --
for file in {CERTS}/*/* {DROP_IN} {ENVIRONMENT} {BUNDLE} /etc/crictl.yaml; do
  if test -f "$file"; then set -- "$@" "$file"; fi
done
if test $# -gt 0; then
  stat -Lc 'state=%a %.9Z %n' "$@"
  sha256sum -- "$@" | sed 's/^/sha256=/'
  awk 'FNR == 1 && /^# Managed by gpurack/ {{ print "ours=" FILENAME }}' "$@"
fi
if test -r {NOTE}; then put ran "$(cat {NOTE})"; fi
kubelet=$(printf '%s\n' "$names" | sed -n 's|/comm:kubelet$||p' | head -n1)
if test -n "$kubelet" || test -e /var/lib/kubelet/config.yaml; then put kubelet yes; else put kubelet no; fi
if test -n "$kubelet"; then tr '\000' '\n' <"$kubelet/cmdline" | sed 's/^/kubelet_argument=/'; fi
grep -oE -- '--container-runtime-endpoint=[^" ]+' /var/lib/kubelet/kubeadm-flags.env 2>/dev/null |
  sed 's/^/kubelet_argument=/'
sed -n 's/^containerRuntimeEndpoint: */kubelet_file=/p' /var/lib/kubelet/config.yaml 2>/dev/null
put containers "$(ls /run/containerd/io.containerd.runtime.v2.task/k8s.io 2>/dev/null | wc -l)"
if ! test -S {SOCKET}; then put cri_error 'no socket {SOCKET}'
elif ! command -v crictl >/dev/null; then put cri_error 'crictl is not installed'
elif info=$(timeout 10 crictl --runtime-endpoint unix://{SOCKET} --timeout 8s info 2>&1); then
  printf '%s\n' "$info" | sed 's/^/cri=/'
else printf '%s\n' "$info" | sed 's/^/cri_error=/'
fi
"""


class ContainerdSnapshot(Probe[Snapshot]):
    """Everything about containerd that a decision needs, in one round trip; a host without it answers too."""

    script = _SCRIPT

    def parse(self, text: str) -> Snapshot:
        return parse(text)


class ContainerdSays(Probe[tuple[str, ...]]):
    """What containerd itself says of the files that lie there now: unknown keys, broken files. Empty is good.

    Read only when something is about to change: it costs a tenth of a second.
    """

    prefetch = False
    script = f"""if test -x {BINARY} && test -f {ROOT}; then
  {BINARY} --config {ROOT} config dump 2>&1 >/dev/null | head -n 100
fi"""

    def parse(self, text: str) -> tuple[str, ...]:
        return tuple(line for line in text.split("\n") if line)


class ConfigFiles(Probe[dict[str, ConfigFile]]):
    """Files that imports name outside `/etc/containerd`. + patterns: absolute paths, with `*`."""

    def command(self, patterns: tuple[str, ...]) -> str:  # type: ignore[override]
        safe = " ".join(re.sub(r"([^A-Za-z0-9_./*?\[\]-])", r"\\\1", pattern) for pattern in patterns)
        there = f'for file in {safe}; do if test -f "$file"; then set -- "$@" "$file"; fi; done'
        return in_c_locale(f"set --; {there}; if test $# -gt 0; then {_SHOW}; fi")

    def parse(self, text: str) -> dict[str, ConfigFile]:
        return parse_files(text)


def parse_files(text: str) -> dict[str, ConfigFile]:
    """`file=` lines (when it changed), and the lines of each file after its `in=`, by path."""
    changed: dict[str, float] = {}
    lines: dict[str, list[str]] = defaultdict(list)
    path = ""
    for line in text.split("\n"):
        key, _, value = line.partition("=")
        if key == "file":
            moment, _, name = value.partition(" ")
            changed[name] = float(moment)
        elif key == "in":
            path = value
        elif key == "text":
            lines[path].append(value + "\n")
    return {
        name: ConfigFile(path=name, text="".join(lines[name]), changed=moment)
        for name, moment in changed.items()
    }


def parse(text: str) -> Snapshot:
    """Parse the answer of `ContainerdSnapshot`; `ValueError` when anything that is always said is missing."""
    values: dict[str, list[str]] = defaultdict(list)
    daemons: list[dict[str, str]] = []
    for line in text.split("\n"):
        if not line:
            continue
        key, separator, value = line.partition("=")
        if not separator:
            raise ValueError(f"could not parse the line {line!r}")
        if key == "pid":
            daemons.append({})
        if key in ("pid", "exe", "arguments", "ticks", "unit", "memlock"):
            daemons[-1][key] = value
        values[key].append(value)
    for key in ("now", "uptime", "hertz", "unit_LoadState", "kubelet", "containers"):
        if len(values[key]) != 1:
            raise ValueError(f"{len(values[key])} values for {key!r}, wanted one")
    now = float(values["now"][0])
    booted = now - float(values["uptime"][0])
    return Snapshot(
        now=now,
        binaries=tuple(_binary(value) for value in values["binary"]),
        units=_units(values["exec"]),
        daemons=tuple(_daemon(one, values, booted) for one in daemons),
        service=_service(values),
        files=parse_files(text),
        digests=_digests(values),
        kubelet_endpoint=_endpoint(values) if values["kubelet"][0] == "yes" else None,
        containers=int(values["containers"][0]),
        ran=_ran(values["ran"]),
        cri=_cri(values),
    )


def _binary(value: str) -> Binary:
    path, version, owner = value.split("\t")
    return Binary(path=path, version=parse_version(version), owner=owner or None)


def parse_version(text: str) -> Version | None:
    """`v2.2.9+unknown` -> (2, 2, 9)."""
    found = re.match(r"v?(\d+)\.(\d+)\.(\d+)", text)
    return tuple(int(part) for part in found.groups()) if found else None


def _units(values: list[str]) -> dict[str, str]:
    units: dict[str, str] = {}
    for value in values:
        path, _, command = value.partition(":ExecStart=")
        units.setdefault(path.rpartition("/")[2], command.strip().lstrip("-@:+!"))
    return units


def _service(values: dict[str, list[str]]) -> Service:
    def one(key: str) -> str:
        return next(iter(values[f"unit_{key}"]), "")

    return Service(
        found=one("LoadState") == "loaded",
        active=one("ActiveState") in ("active", "activating", "reloading"),
        enabled=one("UnitFileState") == "enabled",
        stale=one("NeedDaemonReload") == "yes",
        drop_ins=tuple(one("DropInPaths").split()),
        main_pid=int(one("MainPID") or 0),
    )


def _daemon(one: dict[str, str], values: dict[str, list[str]], booted: float) -> Daemon:
    pid = int(one["pid"])
    ticks = int(one["ticks"])
    return Daemon(
        pid=pid,
        exe=one["exe"].removesuffix(" (deleted)"),
        arguments=tuple(one["arguments"].rstrip("\t").split("\t")),
        ticks=ticks,
        started=booted + ticks / int(values["hertz"][0]),
        unit=one["unit"] or None,
        sockets=tuple(_socket(line) for line in values["socket"] if f"pid={pid}," in line),
        memlock=one["memlock"] or None,
    )


def _socket(line: str) -> str:
    return next((part for part in line.split() if part.startswith(("/", "@"))), "?")


def _digests(values: dict[str, list[str]]) -> dict[str, Digest]:
    hashes = {path: sha256 for sha256, path in (value.split("  ", 1) for value in values["sha256"])}
    digests = {}
    for value in values["state"]:
        mode, changed, path = value.split(" ", 2)
        digests[path] = Digest(
            path=path,
            sha256=hashes[path],
            mode=int(mode, 8),
            changed=float(changed),
            ours=path in values["ours"],
        )
    return digests


def _endpoint(values: dict[str, list[str]]) -> str:
    """kubelet's own order: its command line, then its file, then the default."""
    flag = "--container-runtime-endpoint"
    arguments = values["kubelet_argument"]
    for at, argument in enumerate(arguments):
        if argument.startswith(flag + "="):
            return argument.partition("=")[2]
        if argument == flag and at + 1 < len(arguments):
            return arguments[at + 1]
    written = next(iter(values["kubelet_file"]), "").strip("\"' ")
    return written or f"unix://{SOCKET}"


def _ran(values: list[str]) -> Ran | None:
    """A note that was cut short counts as none: then the dates of the files decide."""
    parts = values[0].split() if values else []
    if len(parts) != 3 or not (parts[0].isdigit() and parts[1].isdigit()):
        return None
    return Ran(pid=int(parts[0]), ticks=int(parts[1]), fingerprint=parts[2])


def _cri(values: dict[str, list[str]]) -> Cri:
    if values["cri_error"]:
        return Cri(error=" ".join(values["cri_error"]))
    lines = values["cri"]
    start = next((at for at, line in enumerate(lines) if line.startswith("{")), None)
    if start is None:
        raise ValueError("crictl info answered without JSON")
    answer: dict[str, Any] = json.loads("\n".join(lines[start:]))
    ready: dict[str, Any] = next(
        (one for one in answer["status"]["conditions"] if one["type"] == "RuntimeReady"), {}
    )
    containerd: dict[str, Any] = answer.get("config", {}).get("containerd", {})
    runtimes: dict[str, Any] = containerd.get("runtimes") or {}
    return Cri(
        ready=ready.get("status") is True,
        reason=" ".join(filter(None, (ready.get("reason"), ready.get("message")))),
        default_runtime=str(containerd.get("defaultRuntimeName", "")),
        systemd_cgroup={
            name: (one.get("options") or {}).get("SystemdCgroup") is True
            for name, one in runtimes.items()
            if one.get("runtimeType") == "io.containerd.runc.v2"
        },
    )
