"""pydantic's errors, said as problems with file, line, rule and next step."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from gpurack.errors import Problem
from gpurack.site.document import Data, Document, Path_, dotted

_WANTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "frozen_set_type": "a list",
    "dict_type": "a map",
    "model_type": "a map",
    "model_attributes_type": "a map",
}

# What a field takes beside its words.
_MORE: dict[Path_, list[str]] = {("cluster", "cni"): ["{manifest: {file: ..., sha256: ...}}"]}

# Names that other tools use for what has another name, or no place, here.
_ELSEWHERE = {
    "reservedMemory": "leave it out: it is computed from the reservations, to the byte (R2)",
    "reserved_memory": "leave it out: it is computed from the reservations, to the byte (R2)",
    "cpuManagerPolicy": "write numa.cpu",
    "memoryManagerPolicy": "write numa.memory",
    "topologyManagerPolicy": "write numa.topology",
    "topologyManagerScope": "write numa.scope",
    "reservedSystemCPUs": "write numa.reserved.cpus",
    "evictionHard": "write numa.reserved.eviction_memory",
    "systemReserved": "write numa.reserved.system_memory",
    "kubeReserved": "write numa.reserved.kube_memory",
}


def validate(
    annotation: Any,
    data: Data,
    path: Path_,
    document: Document,
    *,
    stand_ins: Mapping[str, Data] | None = None,
) -> Any:
    """`data` as an instance of `annotation`, or None after its problems were added to the document's.

    + stand_ins: if given, fields that failed are replaced by these or by their defaults, and the rest is
      returned, so that the checks find what else is wrong; the problems stay, so it never becomes a site
    """
    try:
        return _parse(annotation, data)
    except ValidationError as error:
        details = error.errors(include_url=False)
        # An item that failed does not count, so that its list seems too short as well.
        inside = {detail["loc"][:-1] for detail in details}
        told = (
            _problem(detail, annotation, path, document)
            for detail in details
            if detail["type"] != "too_short" or detail["loc"] not in inside
        )
        document.problems += list(dict.fromkeys(told))
        failed = {str(detail["loc"][0]) for detail in details if detail["loc"]}
    if stand_ins is None or not isinstance(data, dict) or not failed:
        return None
    rest = {key: value for key, value in data.items() if key not in failed}
    try:
        return _parse(annotation, {**rest, **{key: stand_ins[key] for key in failed & stand_ins.keys()}})
    except ValidationError:
        return None


def _parse(annotation: Any, data: Data) -> Any:
    # JSON mode is the strict one that still takes a list for a tuple and text for an address.
    return TypeAdapter(annotation).validate_json(json.dumps(data), strict=True)


def complain(error: PydanticCustomError, path: Path_, document: Document) -> None:
    """Add a fault that was raised outside of a model."""
    document.problems.append(_custom(error.type, dict(error.context or {}), path, document))


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known name that `word` is most likely meant to be."""
    names = list(known)
    plain = {re.sub(r"[-_ ]", "", name).casefold(): name for name in names}
    same = plain.get(re.sub(r"[-_ ]", "", word).casefold())
    return same or next(iter(difflib.get_close_matches(word, names, n=1, cutoff=0.6)), None)


def unknown_key(key: str, known: Iterable[str], path: Path_, document: Document) -> Problem:
    names = sorted(known)
    near = nearest(key, names)
    step = _ELSEWHERE.get(key) or (f"write {near}" if near else None)
    return Problem(
        code="E-SITE-04",
        what=f"unknown key {key!r}",
        where=document.where(path),
        wanted=f"one of {', '.join(names)}" if names and not near else None,
        next=step,
    )


def _problem(detail: ErrorDetails, annotation: Any, base: Path_, document: Document) -> Problem:
    kind, location = detail["type"], detail["loc"]
    path = _known(base, location, document, keep_last=kind == "missing")
    where = document.where(path)
    field = str(path[-1]) if path else ""
    if kind.startswith("E-"):
        return _custom(kind, dict(detail.get("ctx", {})), path, document)
    if kind == "extra_forbidden":
        return unknown_key(field, _keys_at(annotation, location[:-1]), path, document)
    if kind == "missing":
        return Problem(code="E-SITE-05", what=f"{dotted(path)} is missing", where=where, next=f"add {field}:")
    value, spot = detail["input"], document.spot(path)
    found = _written(value, spot.text)
    if kind == "literal_error":
        return _not_allowed(str(detail["ctx"]["expected"]), value, path, document)
    if kind == "string_type" and type(value) in (int, float):
        text = spot.text or str(value)
        return Problem(
            code="E-SITE-08",
            what=f"{dotted(path)} must be text, but YAML reads a number",
            where=where,
            found=f"{text}, which is the number {value}",
            rule="O-56: a version read as a number loses its zeros" if path[0] == "stack" else None,
            next=f'write "{text}"',
        )
    if kind == "string_type" and isinstance(value, bool):
        step = f'write "{spot.text or str(value).lower()}"'
        return Problem(
            code="E-SITE-06", what=f"{dotted(path)} must be text", where=where, found=found, next=step
        )
    if kind == "string_type" and isinstance(value, list):
        step = "put it in quotes: YAML reads a leading [ as a list"
        return Problem(
            code="E-SITE-06", what=f"{dotted(path)} must be text", where=where, found=found, next=step
        )
    if kind in _WANTED:
        return Problem(
            code="E-SITE-06",
            what=f"{dotted(path)} has the wrong type",
            where=where,
            found=found,
            wanted=_WANTED[kind],
        )
    return Problem(code="E-SITE-07", what=f"{dotted(path)}: {detail['msg']}", where=where, found=found)


def _custom(code: str, context: dict[str, Any], path: Path_, document: Document) -> Problem:
    texts = {name: str(context[name]) for name in ("found", "wanted", "rule", "next") if name in context}
    return Problem(code=code, what=str(context["what"]), where=document.where(path), **texts)


def _not_allowed(expected: str, value: object, path: Path_, document: Document) -> Problem:
    allowed = re.findall(r"'([^']*)'", expected)
    text = value if isinstance(value, str) else str(value)
    near = nearest(text, allowed)
    capitals = near is not None and near.casefold() == text.casefold()
    what = f"{dotted(path)} is {text!r}: wrong capitals" if capitals else f"{dotted(path)} can't be {text!r}"
    return Problem(
        code="E-SITE-07",
        what=what,
        where=document.where(path),
        wanted=near if capitals else " | ".join(allowed + _MORE.get(path, [])),
        rule="O-07: kubelet compares the spelling" if capitals and "numa" in path else None,
        next=f"write {near}" if near else None,
    )


def _known(base: Path_, location: tuple[int | str, ...], document: Document, *, keep_last: bool) -> Path_:
    """The path as the document has it; pydantic also names union branches and `[key]`."""
    path = base
    for index, part in enumerate(location):
        below = (*path, part)
        if below in document.spots or (keep_last and index == len(location) - 1):
            path = below
    return path


def _keys_at(annotation: Any, location: tuple[int | str, ...]) -> set[str]:
    """The keys that the model at `location` below `annotation` has."""
    kinds = _models(annotation)
    for part in location:
        below: list[Any] = []
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                below += (
                    _models(kind.model_fields[str(part)].annotation) if part in kind.model_fields else [kind]
                )
            else:
                below += [other for arg in get_args(kind) for other in _models(arg)]
        kinds = below
    return {
        name
        for kind in kinds
        if isinstance(kind, type) and issubclass(kind, BaseModel)
        for name in kind.model_fields
    }


def _models(annotation: Any) -> list[Any]:
    """The models and containers that `annotation` may be, without `Annotated` and unions around them."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _models(get_args(annotation)[0])
    if origin is Union or (origin is not None and origin.__name__ == "UnionType"):
        return [kind for arg in get_args(annotation) for kind in _models(arg)]
    if origin in (dict, tuple) or (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        return [annotation]
    return []


def _written(value: object, text: str | None) -> str:
    if text is not None:
        return text or "nothing"
    if isinstance(value, dict | list):
        return "a map" if isinstance(value, dict) else "a list"
    return str(value)
