"""YAML with line numbers: what a person wrote, where each value stands, and nothing guessed.

Only the words and digits of YAML's JSON-like core become numbers and booleans: `true`, `34`, `1.34`. What
YAML 1.1 would also turn into something else (`off`, `0755`, `12:30`, dates) stays the text that was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from gpurack.errors import BadInput, Problem, Where

Path_ = tuple[str | int, ...]
Data = None | bool | int | float | str | list["Data"] | dict[str, "Data"]

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml where it was built in: ten times faster
_NULL = re.compile(r"~|null|Null|NULL|")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)", re.ASCII)
_FLOAT = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?", re.ASCII)
_TAG = "tag:yaml.org,2002:"
_MOST_VALUES = 2_000_000  # an alias that contains aliases can unfold without end


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a value stands, and its text when it is a scalar."""

    file: str
    line: int
    text: str | None = None


@dataclass(slots=True)
class Document:
    """The data of one YAML file, and the spot of each value by its path (`("pools", "h100", "stage")`)."""

    file: str
    data: dict[str, Data]
    spots: dict[Path_, Spot] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def spot(self, path: Path_) -> Spot:
        """The spot of the value at `path`, or of the nearest one around it."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.spots:
                return self.spots[path[:end]]
        return Spot(self.file, 1)

    def where(self, path: Path_) -> Where:
        spot = self.spot(path)
        return Where(file=spot.file, line=spot.line, field=dotted(path) or None)

    def graft(self, path: Path_, other: Document) -> None:
        """Take `other`'s problems and the spots of its values, which now stand under `path`."""
        self.problems += other.problems
        self.spots |= {path + below: spot for below, spot in other.spots.items()}


def dotted(path: Path_) -> str:
    """`("hosts", 2, "address")` as a person says it: `hosts[2].address`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def shown(path: Path) -> str:
    """A path as a person would type it here: relative if it lies below the working directory."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)


def read_document(path: Path) -> Document:
    """The YAML map in the file at `path`; `BadInput` when it is missing, unreadable or no YAML map.

    Duplicate keys and unknown tags are collected in `problems`, so that they are shown with all the others.
    """
    name = shown(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadInput(_missing(path, name)) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"byte {error.start} is not UTF-8 text"
        raise BadInput(
            Problem(code="E-SITE-01", what=f"the document can't be read: {reason}", where=Where(file=name))
        ) from None
    try:
        root = yaml.compose(text, Loader=_LOADER)
    except yaml.YAMLError as error:
        raise BadInput(_broken(error, name)) from None
    document = Document(name, {})
    if root is None:
        data: Data = None
    else:
        data = _Builder(document).value(root, ())
    if not isinstance(data, dict):
        what = "the document is empty" if root is None else "the document is no map of keys"
        raise BadInput(
            Problem(
                code="E-SITE-02",
                what=what,
                where=Where(file=name, line=1),
                wanted="a map that begins with keys such as cluster, pools, hosts",
                next="inventories/prod.yaml is a commented example",
            )
        )
    document.data = data
    return document


def _missing(path: Path, name: str) -> Problem:
    near = sorted(other.name for other in path.parent.glob("*.yaml")) if path.parent.is_dir() else []
    return Problem(
        code="E-SITE-01",
        what="there is no such document",
        where=Where(file=name),
        found=f"{shown(path.parent)} holds {', '.join(near)}" if near else None,
        next="name an existing site document"
        if near
        else "inventories/prod.yaml is an example to start from",
    )


def _broken(error: yaml.YAMLError, name: str) -> Problem:
    line, what, step = None, "this is no valid YAML", None
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else None
        what += f": {error.problem or error.context}"
        if "\\t" in what:
            step = "indent with spaces; YAML allows no tabs"
    elif isinstance(error, yaml.reader.ReaderError):
        what += f": a character that YAML does not allow at position {error.position}"
    return Problem(code="E-SITE-02", what=what, where=Where(file=name, line=line), next=step)


class _Builder:
    def __init__(self, document: Document) -> None:
        self.document = document
        self.open: set[int] = set()

    def value(self, node: yaml.Node, path: Path_) -> Data:
        if len(self.document.spots) > _MOST_VALUES or id(node) in self.open:
            raise BadInput(self.problem("E-SITE-02", "an alias unfolds without end", node, path))
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node, path)
        if not node.tag.startswith(_TAG):
            self.document.problems.append(self.problem("E-SITE-02", f"unknown tag {node.tag}", node, path))
        self.open.add(id(node))
        try:
            if isinstance(node, yaml.SequenceNode):
                return [self.item(child, (*path, index)) for index, child in enumerate(node.value)]
            assert isinstance(node, yaml.MappingNode)  # noqa: S101  the third and last kind of node
            return self.mapping(node, path)
        finally:
            self.open.discard(id(node))

    def item(self, node: yaml.Node, path: Path_) -> Data:
        self.document.spots[path] = self.at(node, node)
        return self.value(node, path)

    def mapping(self, node: yaml.MappingNode, path: Path_) -> dict[str, Data]:
        data: dict[str, Data] = {}
        for key, child in self.pairs(node, path):
            name = key.value if isinstance(key, yaml.ScalarNode) else ""
            if not isinstance(key, yaml.ScalarNode):
                self.document.problems.append(self.problem("E-SITE-02", "a key must be a word", key, path))
                continue
            below = (*path, name)
            if name in data:
                first = self.document.spots[below]
                self.document.problems.append(
                    Problem(
                        code="E-SITE-03",
                        what=f"the key {name!r} stands here twice",
                        where=Where(
                            file=self.document.file, line=key.start_mark.line + 1, field=dotted(below)
                        ),
                        found=f"first on line {first.line}",
                        next="keep one of the two",
                    )
                )
                continue
            self.document.spots[below] = self.at(key, child)
            data[name] = self.value(child, below)
        return data

    def pairs(self, node: yaml.MappingNode, path: Path_) -> Iterator[tuple[yaml.Node, yaml.Node]]:
        """The node's own pairs, then those that `<<` merges in and that it does not have itself."""
        merged: list[yaml.Node] = []
        own: set[str] = set()
        for key, child in node.value:
            if key.tag == _TAG + "merge":
                merged += child.value if isinstance(child, yaml.SequenceNode) else [child]
            else:
                own.add(str(key.value))
                yield key, child
        for other in merged:
            if not isinstance(other, yaml.MappingNode) or id(other) in self.open:
                self.document.problems.append(self.problem("E-SITE-02", "<< wants a map", other, path))
                continue
            for key, child in self.pairs(other, path):
                if str(key.value) not in own:
                    own.add(str(key.value))
                    yield key, child

    def scalar(self, node: yaml.ScalarNode, path: Path_) -> Data:
        text: str = node.value
        kind = node.tag.removeprefix(_TAG)
        if kind == node.tag or kind in ("binary", "python"):
            self.document.problems.append(self.problem("E-SITE-02", f"unknown tag {node.tag}", node, path))
            return text
        if kind == "str" or node.style:  # a style means quotes or a block: text as it stands
            return text
        if kind == "null" and _NULL.fullmatch(text):
            return None
        if kind == "bool" and _BOOL.fullmatch(text):
            return text.lower() == "true"
        if kind == "int" and _INT.fullmatch(text) and len(text) < 20:
            return int(text)
        if kind == "float" and _FLOAT.fullmatch(text):
            return float(text)
        return text

    def at(self, place: yaml.Node, value: yaml.Node) -> Spot:
        text = value.value if isinstance(value, yaml.ScalarNode) else None
        return Spot(self.document.file, place.start_mark.line + 1, text)

    def problem(self, code: str, what: str, node: yaml.Node, path: Path_) -> Problem:
        where = Where(file=self.document.file, line=node.start_mark.line + 1, field=dotted(path) or None)
        return Problem(code=code, what=what, where=where)
