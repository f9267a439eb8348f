"""From what containerd or a pod says to what it means (O-16, O-86)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from gpurack.decide.containerd import schema, tables
from gpurack.decide.containerd.models import ConfigFile, Snapshot
from gpurack.decide.containerd.tables import Broken, Key
from gpurack.errors import Problem, Where

_UNKNOWN = re.compile(
    r'msg="Ignoring unknown key in TOML(?P<plugin> for plugin)?".*?\bkey=(?P<key>"[^"]*"|\S+)'
)
_PLUGIN = re.compile(r"\bplugin=(\S+)")
_FILE = re.compile(r"\bfile=(\S+)")
_ROW = re.compile(r"\brow=(\d+)")


def unknown_keys(judged: Iterable[str], files: Mapping[str, ConfigFile]) -> tuple[Problem, ...]:
    """Keys that containerd says it ignores, each with the file that has it."""
    problems = []
    for line in judged:
        found = _UNKNOWN.search(line)
        if not found:
            continue
        path: Key = tuple(found.group("key").strip('"').split())
        plugin = _PLUGIN.search(line)
        if found.group("plugin") and plugin:
            path = ("plugins", plugin.group(1), *path)
        problems.append(
            Problem(
                code="E-CTRD-13",
                what=f"containerd does not know {tables.shown(path)} and would ignore it",
                where=_where(line, path, files),
                rule="an ignored key is a lost setting; containerd only warns of it",
                next="correct the spelling, or remove the key, then run again",
            )
        )
    return tuple(problems)


def _where(line: str, key: Key, files: Mapping[str, ConfigFile]) -> Where:
    file, row = _FILE.search(line), _ROW.search(line)
    if file:
        return Where(file.group(1), int(row.group(1)) if row else None, tables.shown(key))
    for path, one in files.items():
        try:
            table = tables.parse(one.text, path)
        except Broken:
            continue
        if tables.get(table, key) is not None:
            return Where(path, tables.line_of(one.text, key), tables.shown(key))
    return Where(field=tables.shown(key))


def explain(error: str, found: Snapshot) -> Problem:
    """Why CRI does not answer, in the order in which causes are worth checking (O-16)."""
    if "unknown service runtime.v1.RuntimeService" in error:
        return _no_service(error, found)
    if "container.Runtime.Name must be set" in error:
        return Problem(
            code="E-CTRD-06",
            what="a runtime has no runtime_type",
            found=error,
            rule="O-86, R90: the toolkit copied a runtime table without its type",
            next="look for a runtimes table without runtime_type in `containerd config dump`",
        )
    return Problem(
        code="E-CTRD-17",
        what="CRI does not answer",
        found=error or "no answer on /run/containerd/containerd.sock",
        rule="R94: nothing that needs the runtime may go on before it answers",
        next="journalctl -u containerd -n 50",
    )


def _no_service(error: str, found: Snapshot) -> Problem:
    for path, one in found.files.items():
        try:
            disabled = tables.parse(one.text, path).get("disabled_plugins", [])
        except Broken as broken:
            return broken.problem
        if schema.SWITCHES.intersection(disabled):
            line = tables.line_of(one.text, ("disabled_plugins",))
            return Problem(
                code="E-CTRD-17",
                what=f"{path} disables the CRI plugin",
                where=Where(path, line, "disabled_plugins"),
                found=error,
                rule="O-16, R83: packaged files do; only the file itself can take it back",
                next="run again: gpurack removes that entry and restarts containerd",
            )
    version = next((one.version for one in found.binaries if one.version), None)
    if version and version < (1, 6):
        return Problem(
            code="E-CTRD-17",
            what=f"containerd {'.'.join(map(str, version))} is too old to serve CRI v1",
            found=error,
            rule="O-16: CRI v1 came with containerd 1.6",
            next="install the pinned containerd.io",
        )
    return Problem(
        code="E-CTRD-17",
        what="the CRI plugin did not load",
        found=error,
        rule="O-16: it is enabled, so its configuration or something it needs failed",
        next="ctr plugins ls | grep cri; journalctl -u containerd | grep 'failed to load plugin'",
    )
