"""The configuration that containerd really runs: root file, imports, and the merge rule of its version.

Read from containerd v2.2.9 `cmd/containerd/server/config/config.go` and held against the real
`containerd config dump` by tests/lab/test_containerd_claims.py.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

from gpurack.decide.containerd.models import ConfigFile, Version
from gpurack.decide.containerd.tables import Table, parse
from gpurack.errors import Problem, Where

_LISTS = ("disabled_plugins", "required_plugins", "imports")  # appended, without doubles
_PER_KEY = ("timeouts", "proxy_plugins", "stream_processors")  # a later entry replaces the whole earlier one
_STRUCTS = ("grpc", "ttrpc", "debug", "metrics", "cgroup")  # fixed fields: a zero does not override


def absolute(pattern: str, parent: str) -> str:
    """An entry of `imports` in file `parent`, as containerd resolves it."""
    cleaned = posixpath.normpath(pattern)
    return cleaned if cleaned.startswith("/") else posixpath.join(posixpath.dirname(parent), cleaned)


def matches(pattern: str, path: str) -> bool:
    """Go's `filepath.Match`: `*` and `?` stop at a slash, a leading dot is not special."""
    if "*" not in pattern:
        return pattern == path  # containerd globs only what has a star
    parts = re.split(r"(\*|\?|\[[^\]]*\]|\\.)", pattern)
    regex = "".join(_regex(part) for part in parts if part)
    return re.fullmatch(regex, path) is not None


def _regex(part: str) -> str:
    if part == "*":
        return "[^/]*"
    if part == "?":
        return "[^/]"
    if part.startswith("[") and part.endswith("]"):
        return part
    return re.escape(part[1:] if part.startswith("\\") and len(part) > 1 else part)


def load_order(root: str, files: Mapping[str, ConfigFile]) -> tuple[tuple[str, ...], tuple[Problem, ...]]:
    """Files in the order containerd reads them, root first, and imports that name a missing file.

    `config dump` says nothing about a missing import; the daemon does not start (v2.2.9 command/main.go).
    Raises `Broken` for a file that is not TOML.
    """
    order: list[str] = []
    missing: list[Problem] = []
    pending = [root] if root in files else []
    while pending:
        path = pending.pop(0)
        if path in order:
            continue
        order.append(path)
        for entry in parse(files[path].text, path).get("imports", []):
            pattern = absolute(str(entry), path)
            if "*" in pattern:
                found = sorted((f for f in files if matches(pattern, f)), key=str.encode)
                pending += found
            elif pattern in files:
                pending.append(pattern)
            else:
                missing.append(
                    Problem(
                        code="E-CTRD-05",
                        what=f"{path} imports {pattern}, which is not there",
                        where=Where(path, field="imports"),
                        rule="the daemon does not start without a file that is imported by name; "
                        "`containerd config dump` hides it",
                        next=f"create {pattern} or remove it from imports",
                    )
                )
    return tuple(order), tuple(missing)


def outside(root: str, files: Mapping[str, ConfigFile], folder: str) -> tuple[str, ...]:
    """Import patterns that lie outside `folder` and match nothing read so far: read those files as well."""
    patterns: list[str] = []
    for path in load_order(root, files)[0]:
        for entry in parse(files[path].text, path).get("imports", []):
            pattern = absolute(str(entry), path)
            if not pattern.startswith(folder + "/") and not any(matches(pattern, f) for f in files):
                patterns.append(pattern)
    return tuple(dict.fromkeys(patterns))


def merged(version: Version, tables: Iterable[Table]) -> Table:
    """What `tables`, in load order, add up to (R86). All of one schema.

    + version: 2.x merges plugin tables key by key; 1.x replaces a whole plugin section (O-13)
    """
    total: Table = {}
    for table in tables:
        for key, value in table.items():
            if key in _LISTS:
                have = total.setdefault(key, [])
                for item in value:
                    if item not in have:
                        have.append(item)
            elif key in _PER_KEY and isinstance(value, dict):
                total.setdefault(key, {}).update(deepcopy(value))
            elif key == "plugins" and isinstance(value, dict):
                if version >= (2,):
                    _deep(total.setdefault(key, {}), value)
                else:
                    total.setdefault(key, {}).update(deepcopy(value))
            elif key in _STRUCTS and isinstance(value, dict):
                total.setdefault(key, {}).update({k: deepcopy(v) for k, v in value.items() if v})
            elif value or key not in total:
                total[key] = deepcopy(value)
    return total


def _deep(into: Table, table: Mapping[str, Any]) -> None:
    for key, value in table.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            _deep(into[key], value)
        else:
            into[key] = deepcopy(value)


def effective(version: Version, root: str, files: Mapping[str, ConfigFile]) -> Table:
    """The merged tables of everything that `root` loads. Raises `Broken`."""
    order, _ = load_order(root, files)
    return merged(version, (parse(files[path].text, path) for path in order))
