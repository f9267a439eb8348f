"""What could be read of a site document so far; the checks look at this and add problems."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from gpurack.errors import Problem
from gpurack.site.document import Document, Path_
from gpurack.site.models import Cluster, Host, Pool, Rack, Sources, Ssh, Stack


@dataclass(slots=True)
class Draft:
    """`entries[i]` is the index in the document of `hosts[i]`: a range has many hosts and one entry."""

    document: Document
    path: Path
    name: str = ""
    accept: frozenset[str] = frozenset()
    ssh: Ssh | None = None
    stack: Stack | None = None
    sources: Sources | None = None
    cluster: Cluster | None = None
    pools: dict[str, Pool] = field(default_factory=dict)
    racks: dict[str, Rack] = field(default_factory=dict)
    hosts: list[Host] = field(default_factory=list)
    entries: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    read: list[Path] = field(default_factory=list)

    def add(self, code: str, what: str, path: Path_, **texts: str | None) -> None:
        """A problem with the value at `path`; `texts`: found, wanted, rule, next, host."""
        where = self.document.where(path)
        self.document.problems.append(Problem(code=code, what=what, where=where, **texts))

    @property
    def complete(self) -> bool:
        """Whether every entry of `hosts` could be read; only then can a host be missing."""
        data = self.document.data.get("hosts")
        return isinstance(data, list) and len(data) == len(set(self.entries))

    def entry(self, index: int) -> Path_:
        """The path of the entry that host `index` comes from."""
        return ("hosts", self.entries[index])
