"""Reading TOML the way containerd does, and saying where it is wrong."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from gpurack.errors import Problem, Where

Table = dict[str, Any]
Key = tuple[str, ...]

_HEADER = re.compile(r"^\s*\[(?!\[)(?P<name>.+?)\]\s*(#.*)?$")
_NAME = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
_PAIR = re.compile(rf"^\s*(?P<name>{_NAME}(?:\s*\.\s*{_NAME})*)\s*=")
_PLACE = re.compile(r"\(at line (\d+), column (\d+)\)")


class Broken(ValueError):
    """A file that containerd would not start with."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(str(problem))


def parse(text: str, file: str) -> Table:
    """The tables of `text`. Raises `Broken` with file and line; both lines if something is there twice."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = _PLACE.search(str(error))
        line = int(place.group(1)) if place else None
        twice = next(_twice(text), None)
        if twice:
            name, first, second = twice
            raise Broken(
                Problem(
                    code="E-CTRD-02",
                    what=f"{file} has {name} twice, on lines {first} and {second}",
                    where=Where(file, second),
                    found=f"first on line {first}, again on line {second}",
                    rule="O-18: containerd does not start with a table or key that is there twice",
                    next="merge the two into one, then run again",
                )
            ) from None
        raise Broken(
            Problem(
                code="E-CTRD-01",
                what=f"{file} is not TOML: {_PLACE.sub('', str(error)).strip()}",
                where=Where(file, line if line is not None else text.count("\n") + 1),
                rule="containerd does not start with a broken file, wherever it is imported from",
                next="repair or remove the file, then run again",
            )
        ) from None


def _twice(text: str) -> Iterator[tuple[str, int, int]]:
    """(name, first line, second line) of tables and keys that are written more than once."""
    seen: dict[Key, int] = {}
    table: Key = ()
    for number, line in _plain_lines(text):
        if header := _HEADER.match(line):
            name = _key(header.group("name"))
            if name is None:
                continue
            table, key, shown = name, name, f"table [{header.group('name')}]"
        elif pair := _PAIR.match(line):
            name = _key(pair.group("name"))
            if name is None:
                continue
            key, shown = (*table, "=", *name), f"key {pair.group('name')}"
        else:
            if line.lstrip().startswith("[["):
                table = (f"[[{number}", *table)  # each element of an array of tables is a table of its own
            continue
        if key in seen:
            yield shown, seen[key], number
        seen[key] = number


def _plain_lines(text: str) -> Iterator[tuple[int, str]]:
    """Numbered lines, without those inside a multi-line string."""
    inside: str | None = None
    for number, line in enumerate(text.split("\n"), 1):
        if inside is None:
            yield number, line
        for fence in ('"""', "'''"):
            if inside in (None, fence) and line.count(fence) % 2:
                inside = None if inside else fence
                break


def _key(text: str) -> Key | None:
    """`plugins."a.b".c` -> ("plugins", "a.b", "c"); None if it is no key."""
    try:
        at: Any = tomllib.loads(f"[{text}]")
    except tomllib.TOMLDecodeError:
        return None
    parts = []
    while at:
        (name, at), *_ = at.items()
        parts.append(name)
    return tuple(parts)


def get(table: Mapping[str, Any], key: Key) -> Any:
    """The value at `key`, or None."""
    at: Any = table
    for part in key:
        if not isinstance(at, Mapping) or part not in at:
            return None
        at = at[part]
    return at


def line_of(text: str, key: Key) -> int | None:
    """The line that sets `key` or something in it, else the nearest table above it; None if there is none."""
    table: Key = ()
    best: tuple[int, int] | None = None
    for number, line in _plain_lines(text):
        if header := _HEADER.match(line):
            table = _key(header.group("name")) or ()
            full = table
        elif pair := _PAIR.match(line):
            full = (*table, *(_key(pair.group("name")) or ()))
        else:
            continue
        if full[: len(key)] == key:
            return number
        if full and full == key[: len(full)] and (best is None or len(full) > best[0]):
            best = (len(full), number)
    return best[1] if best else None


def shown(key: Key) -> str:
    """A key as a person would write it."""
    return ".".join(part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else f"'{part}'" for part in key)
