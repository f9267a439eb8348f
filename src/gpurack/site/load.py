"""From the path of a site document to a validated `Site`, or to all of its problems at once.

Each section and each entry of `pools`, `racks` and `hosts` is validated on its own, so that one mistake hides
no other; what compares sections runs on whatever could be read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic_core import PydanticCustomError

from gpurack.decide.gates import GATES
from gpurack.errors import BadInput, Problem, Where
from gpurack.site import checks, upstream
from gpurack.site.complaints import complain, nearest, unknown_key, validate
from gpurack.site.document import Data, Document, Path_, read_document
from gpurack.site.draft import Draft
from gpurack.site.fields import parse_address
from gpurack.site.files import Files
from gpurack.site.models import Cluster, Host, HostEntry, Pool, Rack, Site, Sources, Ssh, Stack
from gpurack.site.ranges import spread, unfold

_KEYS = ("name", "accept", "ssh", "stack", "sources", "cluster", "pools", "racks", "hosts")
# What stands in for a field that failed while the checks look at the rest; no check complains about these.
_STACK: dict[str, Data] = {"images": {"pause": "0", "etcd": "0", "coredns": "0"}}
_CLUSTER: dict[str, Data] = {"name": "unknown", "endpoint": "unknown.invalid:6443", "cni": "external"}
_POOL: dict[str, Data] = {"platform": "unknown", "hardware": {"gpus": {"count": 0}}}
_SITE_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class _Kept:
    site: Site
    files: tuple[tuple[Path, int, int], ...]


_kept: dict[tuple[Path, bool], _Kept] = {}


def load(path: str | Path, *, files: bool = True) -> Site:
    """The site in the document at `path`; its shim (`inventories/prod`) names the same document.

    + files: whether the files that the document names (keys, certificates ...) must exist and fit. The lab
      makes those files, so it passes False; paths and references then stay as they were written

    `BadInput` with every problem of the document. Remembered until one of the files it was read from changes.
    """
    document_path = _document_path(Path(path))
    kept = _kept.get((document_path, files))
    if kept and all(_stamp(file) == (file, *rest) for file, *rest in kept.files):
        return kept.site
    draft = _read(document_path)
    checks.run(draft)
    resolve = Files(draft.document, document_path.parent)
    if files and draft.ssh and draft.sources and draft.cluster:
        draft.ssh, draft.sources, draft.cluster = resolve.all(draft.ssh, draft.sources, draft.cluster)
    problems = list(dict.fromkeys(draft.document.problems + resolve.problems))
    if problems:
        hidden = checks.secrets.texts(draft.document)
        raise BadInput(_without(hidden, problem) for problem in sorted(problems, key=_order))
    site = _site(draft, document_path)
    stamps = (_stamp(file) for file in (document_path, *draft.read, *resolve.read))
    _kept[document_path, files] = _Kept(site, tuple(stamp for stamp in stamps if stamp))
    return site


def _document_path(path: Path) -> Path:
    path = path.expanduser().absolute()
    if path.suffix not in (".yaml", ".yml"):
        beside = path.with_name(path.name + ".yaml")
        if beside.exists() or not path.is_file():
            path = beside
    return path.resolve()


def _stamp(path: Path) -> tuple[Path, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return path, status.st_mtime_ns, status.st_size


def _order(problem: Problem) -> tuple[str, int]:
    where = problem.where or Where()
    return where.file or "", where.line or 0


def _without(hidden: frozenset[str], problem: Problem) -> Problem:
    """The problem, with no secret in it that stands in the document in clear."""
    for text in hidden:
        if text in str(problem):
            said = {name: getattr(problem, name) for name in ("what", "found", "wanted", "next", "host")}
            shown = {name: value.replace(text, "(not shown)") for name, value in said.items() if value}
            problem = replace(problem, **shown)
    return problem


def _site(draft: Draft, path: Path) -> Site:
    if not (draft.ssh and draft.stack and draft.sources and draft.cluster):
        raise AssertionError("a section is missing although no problem was found")
    return Site(
        name=draft.name,
        file=str(path),
        accept=draft.accept,
        ssh=draft.ssh,
        stack=draft.stack,
        sources=draft.sources,
        cluster=draft.cluster,
        pools=draft.pools,
        racks=draft.racks,
        hosts=tuple(draft.hosts),
        notes=tuple(draft.notes),
    )


def _read(path: Path) -> Draft:
    document = read_document(path)
    data = document.data
    draft = Draft(document, path)
    document.problems += [unknown_key(key, _KEYS, (key,), document) for key in data if key not in _KEYS]
    draft.name = _name(data.get("name", path.stem), document)
    draft.accept = _accept(data.get("accept", []), document)
    draft.ssh = validate(Ssh, data.get("ssh", {}), ("ssh",), document, stand_ins={})
    stack = _stack_data(draft)
    if stack is not None:
        draft.stack = validate(Stack, stack, ("stack",), document, stand_ins=_STACK)
    draft.sources = validate(
        Sources, _with_upstream(data.get("sources", {}), stack), ("sources",), document, stand_ins={}
    )
    if "cluster" in data:
        draft.cluster = validate(Cluster, data["cluster"], ("cluster",), document, stand_ins=_CLUSTER)
    else:
        document.problems.append(_missing("cluster", document))
    draft.pools = _entries(Pool, "pools", document, _POOL)
    draft.racks = _entries(Rack, "racks", document, {})
    _hosts(draft)
    return draft


def _missing(key: str, document: Document) -> Problem:
    return Problem(code="E-SITE-05", what=f"{key} is missing", where=document.where(()), next=f"add {key}:")


def _name(data: Data, document: Document) -> str:
    if isinstance(data, str) and _SITE_NAME.fullmatch(data.replace("_", "-")):
        return data
    document.problems.append(
        Problem(
            code="E-SITE-07",
            what="the site needs a name that can be a folder's",
            where=document.where(("name",)),
            found=str(data),
            wanted="lower-case letters, digits, - and _, at most 40",
            next=f"write name: {re.sub('[^a-z0-9_]+', '-', str(data).lower()).strip('-_')[:40] or 'prod'}",
        )
    )
    return ""


def _accept(data: Data, document: Document) -> frozenset[str]:
    ids: tuple[str, ...] = validate(tuple[str, ...], data, ("accept",), document) or ()
    for index, gate in enumerate(ids):
        if gate not in GATES:
            near = nearest(gate, GATES)
            problem = Problem(
                code="E-SITE-72",
                what=f"nothing called {gate!r} can be accepted",
                where=document.where(("accept", index)),
                wanted=None if near else ", ".join(sorted(GATES)),
                next=f"write {near}" if near else None,
            )
            document.problems.append(problem)
    return frozenset(ids)


def _stack_data(draft: Draft) -> dict[str, Data] | None:
    """The stack as written here, or in the file that is named here."""
    document = draft.document
    data = document.data.get("stack")
    if isinstance(data, dict):
        return data
    if not isinstance(data, str):
        document.problems.append(_missing("stack", document))
        return None
    path = draft.path.parent / data
    draft.read.append(path)
    try:
        other = read_document(path)
    except BadInput as error:
        where = document.where(("stack",))
        document.problems += [
            Problem(
                code=p.code, what=f"stack {data}: {p.what}", where=where if p.code == "E-SITE-01" else p.where
            )
            for p in error.problems
        ]
        return None
    document.graft(("stack",), other)
    return other.data


def _with_upstream(sources: Data, stack: dict[str, Data] | None) -> Data:
    if not isinstance(sources, dict):
        return {} if sources is None else sources
    return {**upstream.sources(stack.get("kubernetes") if stack else None), **sources}


def _entries(model: type[Any], key: str, document: Document, stand_ins: dict[str, Data]) -> dict[str, Any]:
    data = document.data.get(key) or {}
    if not isinstance(data, dict):
        validate(dict[str, Any], data, (key,), document)
        return {}
    read = {
        name: validate(model, value, (key, name), document, stand_ins=stand_ins)
        for name, value in data.items()
    }
    return {name: entry for name, entry in read.items() if entry is not None}


def _hosts(draft: Draft) -> None:
    document = draft.document
    data = document.data.get("hosts")
    if not isinstance(data, list) or not data:
        if data:
            validate(list[HostEntry], data, ("hosts",), document)
        else:
            document.problems.append(
                Problem(
                    code="E-SITE-05",
                    what="the document names no host",
                    where=document.where(("hosts",)),
                    next="add hosts: with a name, an address and a pool each",
                )
            )
        return
    for index, value in enumerate(data):
        entry = validate(HostEntry, value, ("hosts", index), document)
        if entry is None:
            continue
        hosts = _unfold(entry, ("hosts", index), draft)
        draft.hosts += hosts
        draft.entries += [index] * len(hosts)


def _unfold(entry: HostEntry, path: Path_, draft: Draft) -> list[Host]:
    """The hosts that an entry stands for."""
    field_name = "name"
    try:
        names = unfold(entry.name)
        field_name = "address"
        columns = [spread(text, len(names), entry.name, "address") for text in entry.address]
        field_name = "position"
        positions: tuple[str | None, ...] = (None,) * len(names)
        if entry.position is not None:
            positions = spread(entry.position, len(names), entry.name, "position")
        field_name = "address"
        addresses = [tuple(parse_address(column[i]) for column in columns) for i in range(len(names))]
    except PydanticCustomError as error:
        complain(error, (*path, field_name), draft.document)
        return []
    return [
        Host(
            name=_node_name(name, draft),
            addresses=addresses[i],
            role=entry.role,
            pool=entry.pool,
            rack=entry.rack,
            position=positions[i],
        )
        for i, name in enumerate(names)
    ]


def _node_name(name: str, draft: Draft) -> str:
    """The name that kubelet and kubeadm make of it: in lower case (R55, O-31)."""
    if name != name.lower():
        draft.notes.append(
            f"host {name} becomes node {name.lower()}: Kubernetes knows lower case only (O-31)"
        )
    return name.lower()
