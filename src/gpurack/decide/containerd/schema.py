"""Schema versions of containerd's files: which one a release wants, where keys live, what may be mixed.

R88, R98 and the lab's findings: on 2.0-2.2 a file without `version` is read as schema 3, and tables of
another schema are ignored with no more than a warning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpurack.decide.containerd.models import Version
from gpurack.decide.containerd.tables import Key, Table, get, line_of, shown
from gpurack.errors import Problem, Where

CRI = "io.containerd.grpc.v1.cri"  # all of CRI in schema 2; only its streaming server from schema 3
RUNTIME = "io.containerd.cri.v1.runtime"
IMAGES = "io.containerd.cri.v1.images"
SWITCHES = frozenset({"cri", CRI, RUNTIME, IMAGES})  # any of them in disabled_plugins takes CRI away

RUNC = "io.containerd.runc.v2"

_SERVER = frozenset(
    {
        "disable_tcp_service",
        "stream_server_address",
        "stream_server_port",
        "stream_idle_timeout",
        "enable_tls_streaming",
        "x509_key_pair_streaming",
    }
)
_IMAGE_KEYS = (
    "registry",
    "image_decryption",
    "max_concurrent_downloads",
    "image_pull_progress_timeout",
    "image_pull_with_sync_fs",
    "stats_collect_period",
)
_SNAPSHOT_KEYS = ("snapshotter", "disable_snapshot_annotations", "discard_unpacked_layers")

# Names that schema 1 allowed without their type (containerd v2.2.9 config.go, v1MigratePluginName).
_SHORT = {
    "cri": CRI,
    "cgroups": "io.containerd.monitor.v1.cgroups",
    "linux": "io.containerd.runtime.v1.linux",
    "scheduler": "io.containerd.gc.v1.scheduler",
    "bolt": "io.containerd.metadata.v1.bolt",
    "task": "io.containerd.runtime.v2.task",
    "opt": "io.containerd.internal.v1.opt",
    "restart": "io.containerd.internal.v1.restart",
    "tracing": "io.containerd.internal.v1.tracing",
    "otlp": "io.containerd.tracing.processor.v1.otlp",
    **{name: f"io.containerd.snapshotter.v1.{name}" for name in ("aufs", "btrfs", "devmapper", "native")},
    **{name: f"io.containerd.snapshotter.v1.{name}" for name in ("overlayfs", "zfs")},
}


def wanted_by(version: Version) -> int:
    """The schema that files of ours have under containerd `version`."""
    if version < (2,):
        return 2
    return 3 if version < (2, 3) else 4


def runtime_table(schema: int) -> Key:
    """Where runtimes and CNI live."""
    return ("plugins", CRI) if schema < 3 else ("plugins", RUNTIME)


def images_table(schema: int) -> Key:
    """Where the registry and snapshotter keys live."""
    return ("plugins", CRI) if schema < 3 else ("plugins", IMAGES)


def sandbox_key(schema: int) -> Key:
    """Where the pause container's image is named and pinned (R99)."""
    if schema < 3:
        return ("plugins", CRI, "sandbox_image")
    return ("plugins", IMAGES, "pinned_images", "sandbox")


def read_as(table: Mapping[str, Any], version: Version) -> int | None:
    """The schema under which containerd `version` reads a file; None: by what it holds (1.x, 2.3 again)."""
    stated = table.get("version")
    if isinstance(stated, int) and stated > 1:
        return stated
    return 3 if (2,) <= version < (2, 3) else None


def long_name(name: str) -> str:
    """A plugin's full name: short ones are fatal as soon as a file states its version."""
    if "." in name:
        return name
    if name.endswith("-service"):
        return f"io.containerd.service.v1.{name}"
    return _SHORT.get(name, f"io.containerd.grpc.v1.{name}")


def problems_of(path: str, text: str, table: Table, version: Version) -> tuple[Problem, ...]:
    """What is wrong with one file under containerd `version`, whatever else is loaded."""
    newest = wanted_by(version)
    schema = read_as(table, version)
    release = ".".join(map(str, version))
    if schema is not None and schema > newest:
        return (
            Problem(
                code="E-CTRD-04",
                what=f"{path} has schema {schema}; containerd {release} stops at it",
                where=Where(path, line_of(text, ("version",)), "version"),
                found=f"version = {schema}",
                wanted=f"version = {newest} or lower",
                rule="R88: expected containerd config version equal to or less than the release's own",
                next=f"have whoever wrote {path} write schema {newest}, or remove it",
            ),
        )
    misplaced = _misplaced(table, schema)
    return tuple(
        Problem(
            code="E-CTRD-03",
            what=f"{path} is read as schema {schema or newest} but holds {shown(key)} of another schema; "
            "containerd ignores it",
            where=Where(path, line_of(text, key), shown(key)),
            found=f"version = {table.get('version', '(none)')}",
            wanted=f"tables of schema {schema or newest}",
            rule="R88, R98: tables of another schema are dropped with a warning at most",
            next="state the version that they belong to (`version = 2` is migrated), or move the tables",
        )
        for key in misplaced
    )


def _misplaced(table: Table, schema: int | None) -> list[Key]:
    plugins = table.get("plugins") or {}
    if schema is None:
        return [
            ("plugins", name) for name in plugins if "." not in name
        ]  # lost once the file states a version
    if schema < 3:
        return [("plugins", name) for name in (RUNTIME, IMAGES) if name in plugins]
    cri = plugins.get(CRI)
    if not isinstance(cri, Mapping):
        return []
    return [("plugins", CRI, key) for key in cri if key not in _SERVER]


def mixed(root: str, tables: Mapping[str, Table], version: Version) -> tuple[Problem, ...]:
    """Refusals about files whose schemas do not go together (O-12, R88, R89). `root` is among `tables`."""
    base = read_as(tables[root], version)
    found: list[Problem] = []
    for path, table in tables.items():
        schema = read_as(table, version)
        if path == root or base is None or schema is None or schema == base:
            continue
        if version >= (2, 3) and schema < base:
            continue  # 2.3 migrates each older file by itself
        fate = "does not start" if version >= (2, 3) else "drops the tables of one of them"
        found.append(
            Problem(
                code="E-CTRD-03",
                what=f"{path} has schema {schema}, {root} has schema {base}: containerd {fate}",
                where=Where(path, field="version"),
                found=f"{root}: {_stated(tables[root])}; {path}: {_stated(table)}",
                wanted=f"schema {wanted_by(version)} in both",
                rule="O-12, R88, R89: root file and imports share one schema",
                next=f"remove {path} or have it written in schema {base}; for the GPU Operator's toolkit set "
                "RUNTIME_CONFIG_SOURCE=file",
            )
        )
    return tuple(found)


def _stated(table: Mapping[str, Any]) -> str:
    return f"version = {table['version']}" if "version" in table else "no version"


def left_behind(table: Table) -> tuple[Key, ...]:
    """Top-level tables that schema 4 does not read any more (containerd main, serviceMigrate)."""
    server = [(name,) for name in ("grpc", "ttrpc", "metrics") if table.get(name)]
    debug = [("debug", key) for key in ("address", "uid", "gid") if get(table, ("debug", key))]
    return (*server, *debug)


def raised(table: Table, schema: int) -> Table:
    """`table`, a whole schema 2 file, as schema 3 or later: what containerd does in memory at each start.

    Source: v2.2.9 plugins/cri/{cri.go,runtime/plugin.go,images/plugin.go}.
    """
    plugins: Table = dict(table.get("plugins") or {})
    old: Table = plugins.pop(CRI, {})
    server = {key: value for key, value in old.items() if key in _SERVER}
    images = {key: old[key] for key in _IMAGE_KEYS if key in old}
    if "sandbox_image" in old:
        images["pinned_images"] = {"sandbox": old["sandbox_image"]}
    containerd = dict(old.get("containerd") or {})
    images |= {key: containerd.pop(key) for key in _SNAPSHOT_KEYS if key in containerd}
    moved = {*_SERVER, *_IMAGE_KEYS, "sandbox_image", "containerd"}
    runtime = {key: value for key, value in old.items() if key not in moved}
    if "runtimes" in containerd:
        containerd["runtimes"] = {name: _renamed(one) for name, one in containerd["runtimes"].items()}
    if containerd:
        runtime["containerd"] = containerd
    for name, value in ((CRI, server), (RUNTIME, runtime), (IMAGES, images)):
        if value:
            plugins[name] = value
    return {**table, "version": schema, "plugins": plugins}


def _renamed(runtime: Table) -> Table:
    if "sandbox_mode" not in runtime or "sandboxer" in runtime:
        return runtime
    return {"sandboxer" if key == "sandbox_mode" else key: value for key, value in runtime.items()}


def full_names(names: Iterable[str]) -> list[str]:
    return [long_name(name) for name in names]
