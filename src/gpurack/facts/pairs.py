"""The answer format of most probes: one `key=value` per line, keys may repeat."""

from __future__ import annotations

from collections import defaultdict


class Pairs:
    """`key=value` lines.

    A line without `=`, and a key that is missing where one is needed, is a `ValueError`: half an answer must
    never read as "nothing there".
    """

    def __init__(self, text: str) -> None:
        self._values: dict[str, list[str]] = defaultdict(list)
        for line in text.splitlines():
            if not line:
                continue
            key, separator, value = line.partition("=")
            if not separator:
                raise ValueError(f"could not parse the line {line!r}")
            self._values[key].append(value)

    def one(self, key: str) -> str:
        """The only value of `key`, which may be empty."""
        values = self._values.get(key, [])
        if len(values) != 1:
            raise ValueError(f"{len(values)} values for {key!r}, wanted one")
        return values[0]

    def some(self, key: str) -> str:
        """The only value of `key`, not empty."""
        value = self.one(key)
        if not value:
            raise ValueError(f"{key!r} is empty")
        return value

    def all(self, key: str) -> tuple[str, ...]:
        """Every value of `key`, in order."""
        return tuple(self._values.get(key, ()))

    def flag(self, key: str) -> bool:
        """`yes` or `no`."""
        value = self.one(key)
        if value not in ("yes", "no"):
            raise ValueError(f"{key!r} is {value!r}, neither yes nor no")
        return value == "yes"
