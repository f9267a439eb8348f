"""What the root file and our drop-in must say, and whether the merged result does.

The judge is always the EFFECTIVE configuration (R86, R91, R92): bytes are never compared, so the GPU
Operator's toolkit may re-serialise the root file as often as it likes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpurack.decide.containerd import cri, edit, merge, schema, tables
from gpurack.decide.containerd.models import ConfigFile, Version, Wanted
from gpurack.decide.containerd.tables import Broken, Key, Table
from gpurack.errors import Problem, Where

ROOT = "/etc/containerd/config.toml"
CONF_D = "/etc/containerd/conf.d"
IMPORT = f"{CONF_D}/*.toml"
# Sorts after the toolkit's 99-nvidia.toml, which freezes a copy of the whole runtime section (R91).
DROP_IN = f"{CONF_D}/zz-gpurack.toml"
CERTS = "/etc/containerd/certs.d"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What becomes of the TOML files.

    + texts: new contents by path, root file first: with it in place an older drop-in does no harm
    + kept: the old root file's text when its layout could not be kept, to be laid aside
    + unreadable: our own drop-in is not TOML any more, and goes before containerd judges anything
    + before, after: effective tables
    """

    texts: Mapping[str, str]
    reasons: tuple[str, ...] = ()
    refused: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    kept: str | None = None
    unreadable: bool = False
    order: tuple[str, ...] = ()
    before: Table
    after: Table


def wanted_keys(wanted: Wanted) -> dict[Key, Any]:
    """The keys that must hold in the effective configuration (R83, R90, R98, R99, R100)."""
    number = schema.wanted_by(wanted.version)
    runc = (*schema.runtime_table(number), "containerd", "runtimes", "runc")
    return {
        # Spelt out although it is the default: older toolkits copy this table as it stands (R90).
        (*runc, "runtime_type"): schema.RUNC,
        (*runc, "options", "SystemdCgroup"): True,
        schema.sandbox_key(number): wanted.sandbox,
        (*schema.images_table(number), "registry", "config_path"): CERTS,
    }


def plan(wanted: Wanted, files: Mapping[str, ConfigFile]) -> Plan:
    """Total: broken and mixed files become refusals with file and line."""
    unreadable = False
    if DROP_IN in files:
        try:
            tables.parse(files[DROP_IN].text, DROP_IN)
        except Broken:
            unreadable = True
            files = {path: file for path, file in files.items() if path != DROP_IN}
    try:
        return replace(_plan(wanted, files), unreadable=unreadable)
    except Broken as broken:
        return Plan(texts={}, refused=(broken.problem,), before={}, after={})


def _plan(wanted: Wanted, files: Mapping[str, ConfigFile]) -> Plan:
    version = wanted.version
    order, missing = merge.load_order(ROOT, files)
    parsed = {path: tables.parse(files[path].text, path) for path in order}
    before = merge.merged(version, parsed.values())
    refused = [*missing, *_found_wrong(version, files, parsed)]
    if refused:
        return Plan(texts={}, refused=tuple(refused), before=before, after=before, order=order)

    keys = wanted_keys(wanted)
    text = files[ROOT].text if ROOT in files else ""
    new_root, reasons, kept = _root(wanted, text, parsed.get(ROOT, {}), keys, ROOT in files)
    texts = {} if new_root == text and ROOT in files else {ROOT: new_root}
    if version >= (2,):
        drop_in = edit.nested({("version",): schema.wanted_by(version), **keys})
        if DROP_IN not in files or tables.parse(files[DROP_IN].text, DROP_IN) != drop_in:
            texts[DROP_IN] = edit.fresh(drop_in, edit.HEADER)
            reasons.append(f"{DROP_IN} is {'not as wanted' if DROP_IN in files else 'missing'}")

    after_files = {**files, **{path: ConfigFile(path=path, text=new) for path, new in texts.items()}}
    after_order, _ = merge.load_order(ROOT, after_files)
    after_tables = {path: tables.parse(after_files[path].text, path) for path in after_order}
    after = merge.merged(version, after_tables.values())
    refused = [
        *_overruled(keys, after_order, after_tables, after),
        *_swept(version, after_tables),
        *cri.problems_of(version, files, after_tables, after),  # lines as they lie on the host
    ]
    return Plan(
        texts={} if refused else texts,
        reasons=tuple(reasons),
        refused=tuple(refused),
        notes=cri.notes_of(version, after),
        kept=kept,
        order=after_order,
        before=before,
        after=after,
    )


def _found_wrong(
    version: Version, files: Mapping[str, ConfigFile], parsed: Mapping[str, Table]
) -> list[Problem]:
    """Refusals about files of others as they lie there. Our own drop-in is about to be written."""
    others = {path: table for path, table in parsed.items() if path != DROP_IN}
    problems = [
        problem
        for path, table in others.items()
        for problem in schema.problems_of(path, files[path].text, table, version)
    ]
    if ROOT not in others:
        return problems
    problems += schema.mixed(ROOT, others, version)
    number = schema.wanted_by(version)
    stated = schema.read_as(others[ROOT], version) or number
    if not problems and stated < number:
        problems += [
            Problem(
                code="E-CTRD-03",
                what=f"{path} has schema {schema.read_as(table, version)}, the root file moves to {number}",
                where=Where(path, field="version"),
                rule="R88: root file and imports share one schema",
                next=f"move {path} to schema {number}, or remove it",
            )
            for path, table in others.items()
            if path != ROOT and version < (2, 3) and schema.read_as(table, version) != number
        ]
    if number == 4 and stated < 4:
        problems += [
            Problem(
                code="E-CTRD-19",
                what=f"{ROOT} sets {tables.shown(key)}, which schema 4 does not read",
                where=Where(ROOT, tables.line_of(files[ROOT].text, key), tables.shown(key)),
                rule="containerd 2.3 moved it into a plugin of io.containerd.server.v1",
                next="move the key as `containerd config migrate` shows it, then run again",
            )
            for key in schema.left_behind(others[ROOT])
        ]
    return problems


def _root(
    wanted: Wanted, text: str, table: Table, keys: Mapping[Key, Any], exists: bool
) -> tuple[str, list[str], str | None]:
    """The root file's new text, why it changes, and the old text if its layout is lost."""
    number = schema.wanted_by(wanted.version)
    if not exists:
        first: dict[Key, Any] = {("version",): number}
        if wanted.version >= (2,):
            first[("imports",)] = [IMPORT]
        fresh = edit.nested({**first, **keys})
        return edit.fresh(fresh, edit.HEADER), [f"{ROOT} is missing"], None

    reasons: list[str] = []
    kept: str | None = None
    stated = schema.read_as(table, wanted.version)
    if table.get("version") != number:
        found = f"schema {table['version']}" if "version" in table else "no version"
        reasons.append(f"{ROOT} has {found}, containerd {'.'.join(map(str, wanted.version))} wants {number}")
    if number > 2 and (stated == 2 or (stated is None and schema.CRI in table.get("plugins", {}))):
        kept = text
        table = schema.raised(table, number)
        text = edit.fresh(table)

    changes: dict[Key, Any] = {}
    if table.get("version") != number:
        changes[("version",)] = number
    for name in ("disabled_plugins", "required_plugins"):
        names = table.get(name)
        if names is None:
            continue
        enabled = [one for one in names if name == "required_plugins" or one not in schema.SWITCHES]
        if enabled != names:
            reasons.append(f"{ROOT} disables the CRI plugin")
        if schema.full_names(enabled) != names:
            changes[(name,)] = schema.full_names(enabled)
    imports_found = table.get("imports", [])
    covered = any(merge.matches(merge.absolute(one, ROOT), DROP_IN) for one in imports_found)
    if wanted.version >= (2,) and not covered:
        changes[("imports",)] = [*imports_found, IMPORT]
        reasons.append(f"{ROOT} does not import {IMPORT}")
    for key, value in keys.items():
        found_value = tables.get(table, key)
        if not satisfied(key, found_value, value):
            changes[key] = with_others(key, found_value, value)
            reasons.append(f"{ROOT} has {key[-1]} {_shown(found_value)}, wanted {_shown(value)}")
    if not changes and kept is None:
        return text, reasons, None
    edited, layout = edit.with_keys(text, changes)
    if kept is None and not layout:
        kept = text
    return edited, reasons, kept


def satisfied(key: Key, found: Any, wanted: Any) -> bool:
    """Whether `found` is as good as `wanted`: certs.d may be followed by folders of others."""
    if key[-1] == "config_path" and isinstance(found, str):
        return bool(found.split(":")[0] == wanted)
    return type(found) is type(wanted) and bool(found == wanted)  # the type: 1 equals true in Python


def with_others(key: Key, found: Any, wanted: Any) -> Any:
    """`wanted`, with the search path of others behind ours."""
    if key[-1] == "config_path" and isinstance(found, str) and found:
        rest = [part for part in found.split(":") if part and part != wanted]
        return ":".join([wanted, *rest])
    return wanted


def _overruled(
    keys: Mapping[Key, Any], order: tuple[str, ...], parsed: Mapping[str, Table], after: Table
) -> list[Problem]:
    """Files that are loaded after ours and say otherwise."""
    problems = []
    for key, value in keys.items():
        found = tables.get(after, key)
        if satisfied(key, found, value):
            continue
        culprit = next((path for path in reversed(order) if tables.get(parsed[path], key) is not None), ROOT)
        problems.append(
            Problem(
                code="E-CTRD-15",
                what=f"{culprit} is loaded after {DROP_IN} and overrules it",
                where=Where(culprit, field=tables.shown(key)),
                found=_shown(found),
                wanted=_shown(value),
                rule="R86: the file loaded last wins",
                next=f"remove that key from {culprit}, or rename it so that it sorts before zz-gpurack.toml",
            )
        )
    return problems + [
        Problem(
            code="E-CTRD-15",
            what=f"{path} disables the CRI plugin",
            where=Where(path, field="disabled_plugins"),
            found=name,
            rule="R83, O-16: lists at the top are appended, so no other file can take the entry back",
            next=f"remove {name} from disabled_plugins in {path}",
        )
        for path, table in parsed.items()
        for name in sorted(schema.SWITCHES.intersection(table.get("disabled_plugins", [])))
    ]


def _swept(version: Version, parsed: Mapping[str, Table]) -> list[Problem]:
    """containerd 1.x: an import that wipes the section of an earlier file (O-13)."""
    if version >= (2,):
        return []
    problems = []
    seen: dict[str, str] = {}
    for path, table in parsed.items():
        for name, section in table.get("plugins", {}).items():
            earlier = _leaves(parsed[seen[name]]["plugins"][name]) if name in seen else []
            lost = sorted(set(earlier) - set(_leaves(section)))
            if lost:
                problems.append(
                    Problem(
                        code="E-CTRD-14",
                        what=f"{path} replaces the whole section {name} of {seen[name]}",
                        where=Where(path, field=f"plugins.'{name}'"),
                        found=f"lost: {', '.join(lost)}",
                        rule="O-13: containerd 1.x replaces plugin sections instead of merging them",
                        next=f"move the keys of {path} into {seen[name]} and remove {path}",
                    )
                )
            seen[name] = path
    return problems


def _leaves(table: Any, above: Key = ()) -> list[str]:
    if not isinstance(table, Mapping):
        return [tables.shown(above)]
    return [leaf for key, value in table.items() for leaf in _leaves(value, (*above, key))]


def _shown(value: Any) -> str:
    if value is None:
        return "unset"
    return str(value).lower() if isinstance(value, bool) else str(value)
