"""Changing keys in a TOML file that others wrote: their keys, order and comments stay (O-14, O-15, O-17)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from gpurack.decide.containerd.tables import Key, Table, parse

HEADER = "# Managed by gpurack (role containerd); changes here are put back.\n"


def with_keys(text: str, changes: Mapping[Key, Any]) -> tuple[str, bool]:
    """`text` with `changes` made, and whether its comments and layout were kept.

    The result is read back: if in-place editing of an unusual layout went wrong, the file is written anew
    from its values, which are never lost.
    """
    found = parse(text, "")
    new = {key[0]: value for key, value in changes.items() if len(key) == 1 and key[0] not in found}
    wanted = _changed(found, changes)
    try:
        document = tomlkit.parse(_with_new_first(text, new))
        for key, value in changes.items():
            _put(document, key, value)
        edited = tomlkit.dumps(document)
        if parse(edited, "") == wanted:
            return edited, True
    except (TOMLKitError, TypeError, ValueError, KeyError, IndexError, AttributeError):
        pass  # tomlkit's in-place editing knows limits; the values are known, so nothing is lost
    return fresh(wanted), False


def fresh(table: Mapping[str, Any], header: str = "") -> str:
    """A new file with the values of `table`; scalars first, as TOML needs it."""
    document = tomlkit.document()
    for key, value in _ordered(table).items():
        document[key] = value
    return header + tomlkit.dumps(document)


def nested(values: Mapping[Key, Any]) -> Table:
    """Flat keys as nested tables."""
    table: Table = {}
    for key, value in values.items():
        at = table
        for part in key[:-1]:
            at = at.setdefault(part, {})
        at[key[-1]] = value
    return table


def _ordered(table: Mapping[str, Any]) -> Table:
    plain = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    return plain | {key: _ordered(value) for key, value in table.items() if isinstance(value, Mapping)}


def _changed(table: Table, changes: Mapping[Key, Any]) -> Table:
    for key, value in changes.items():
        at = table
        for part in key[:-1]:
            if not isinstance(at.get(part), dict):
                at[part] = {}
            at = at[part]
        at[key[-1]] = value
    return table


def _put(document: Any, key: Key, value: Any) -> None:
    at = document
    for part in key[:-1]:
        if part not in at:
            at[part] = tomlkit.table(is_super_table=True)
        at = at[part]
    last = key[-1]
    if isinstance(value, list) and isinstance(at.get(last), list):
        _put_list(at[last], value)
    else:
        at[last] = value


def _put_list(found: Any, wanted: list[Any]) -> None:
    """Takes away and appends instead of assigning: comments and layout of the list stay."""
    for item in [item for item in found if item not in wanted]:
        found.remove(item)
    for item in wanted:
        if item not in found:
            found.append(item)


def _with_new_first(text: str, values: Mapping[str, Any]) -> str:
    """New top-level keys go before all that is said: behind a table they would belong to it."""
    if not values:
        return text
    lines = [line + "\n" for line in text.rstrip("\n").split("\n")] if text else []
    spoken = (n for n, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#"))
    at = next(spoken, len(lines))
    return "".join([*lines[:at], tomlkit.dumps(dict(values)), *lines[at:]])
