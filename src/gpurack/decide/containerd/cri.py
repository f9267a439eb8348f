"""What the CRI plugin makes of an effective configuration (v2.2.9 internal/cri/config/config.go).

`config dump` accepts all of these; the plugin then fails to load, or pods do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpurack.decide.containerd import schema, tables
from gpurack.decide.containerd.models import ConfigFile, Version
from gpurack.decide.containerd.tables import Key, Table
from gpurack.errors import Problem, Where


def problems_of(
    version: Version, files: Mapping[str, ConfigFile], parsed: Mapping[str, Table], effective: Table
) -> list[Problem]:
    """Refusals about the merged tables, each with the file that says so."""
    number = schema.wanted_by(version)
    containerd = (*schema.runtime_table(number), "containerd")
    runtimes: Table = tables.get(effective, (*containerd, "runtimes")) or {}
    default = tables.get(effective, (*containerd, "default_runtime_name")) or "runc"
    problems = [
        _problem(
            "E-CTRD-06",
            f"runtime {name} has no runtime_type",
            (*containerd, "runtimes", name),
            (files, parsed),
            rule="O-86, R90: pods of it fail with `container.Runtime.Name must be set`",
            next=f'add runtime_type = "{schema.RUNC}" to that table, or remove the runtime',
        )
        for name, runtime in runtimes.items()
        if not (isinstance(runtime, Mapping) and runtime.get("runtime_type"))
    ]
    if default not in runtimes:
        problems.append(
            _problem(
                "E-CTRD-07",
                f"the default runtime {default} is not defined",
                (*containerd, "default_runtime_name"),
                (files, parsed),
                rule="the CRI plugin does not load without its default runtime",
                next=f"define runtimes.{default} (as the toolkit does), or remove default_runtime_name",
            )
        )
    elif default != "runc" and _cgroupfs(runtimes[default]):
        problems.append(
            _problem(
                "E-CTRD-18",
                f"the default runtime {default} runs cgroupfs",
                (*containerd, "runtimes", default, "options", "SystemdCgroup"),
                (files, parsed),
                rule="R96: kubelet takes its cgroup driver from the default runtime",
                next=f"set options.SystemdCgroup = true for {default}; the toolkit copies it from runc",
            )
        )
    registry = (*schema.images_table(number), "registry")
    if tables.get(effective, (*registry, "mirrors")):
        problems.append(
            _problem(
                "E-CTRD-08",
                "registry.mirrors is set beside config_path",
                (*registry, "mirrors"),
                (files, parsed),
                rule="R100: the CRI plugin does not load with both",
                next="move the mirrors to sources.registries of the site document and remove the table",
            )
        )
    cni = (*schema.runtime_table(number), "cni")
    bin_dirs = tables.get(effective, (*cni, "bin_dirs"))
    if tables.get(effective, (*cni, "bin_dir")) and bin_dirs and bin_dirs != ["/opt/cni/bin"]:
        problems.append(
            _problem(
                "E-CTRD-09",
                "cni.bin_dir and cni.bin_dirs are both set",
                (*cni, "bin_dir"),
                (files, parsed),
                rule="R98: the CRI plugin does not load with both",
                next="keep bin_dirs and remove bin_dir",
            )
        )
    return problems


def notes_of(version: Version, effective: Table) -> tuple[str, ...]:
    """What works today and will bite."""
    number = schema.wanted_by(version)
    runtimes: Table = tables.get(effective, (*schema.runtime_table(number), "containerd", "runtimes")) or {}
    registry: Table = tables.get(effective, (*schema.images_table(number), "registry")) or {}
    cgroupfs = sorted(name for name, one in runtimes.items() if name != "runc" and _cgroupfs(one))
    notes = [f"runtime {name} runs cgroupfs under a systemd kubelet (R96)" for name in cgroupfs]
    notes += [
        f"registry.{name} is deprecated and makes containerd pull without its transfer service"
        for name in ("configs", "auths")
        if registry.get(name)
    ]
    return tuple(notes)


def _cgroupfs(runtime: Any) -> bool:
    """Whether it is a runc-type runtime without the systemd driver."""
    if not isinstance(runtime, Mapping) or runtime.get("runtime_type") != schema.RUNC:
        return False
    return tables.get(runtime, ("options", "SystemdCgroup")) is not True


def _problem(
    code: str,
    what: str,
    key: Key,
    sources: tuple[Mapping[str, ConfigFile], Mapping[str, Table]],
    *,
    rule: str,
    next: str,  # noqa: A002
) -> Problem:
    files, parsed = sources
    path, line = _place(key, files, parsed)
    where = Where(path, line, tables.shown(key))
    return Problem(code=code, what=what, where=where, rule=rule, next=next)


def _place(
    key: Key, files: Mapping[str, ConfigFile], parsed: Mapping[str, Table]
) -> tuple[str | None, int | None]:
    """The file that holds `key`, or the nearest table above it, and the line there."""
    for end in range(len(key), 2, -1):
        for path, table in parsed.items():
            if path in files and tables.get(table, key[:end]) is not None:
                return path, tables.line_of(files[path].text, key[:end])
    return None, None
