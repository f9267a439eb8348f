"""What went wrong, in five things that a person can act on.

One root class, `GpurackError`, carries one or more `Problem`s: validation reports all of them at once.
Codes are stable: scripts may match on them; a code is never reused for another meaning.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Where:
    """A place that a person can open: `inventories/prod.yaml:42 pools.h100.numa.memory`."""

    file: str | None = None
    line: int | None = None
    field: str | None = None

    def __str__(self) -> str:
        place = self.file or ""
        if self.line is not None:
            place += f":{self.line}"
        return " ".join(part for part in (place, self.field) if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong.

    + code: stable, `E-<AREA>-<nn>`
    + what: one sentence
    + host: the host it concerns, if one
    + where: file, line, field
    + found, wanted: values as a person would write them; never a secret
    + rule: the rule or document it follows from (`R4: ...`, `O-20`)
    + next: what to do now
    """

    code: str
    what: str
    host: str | None = None
    where: Where | None = None
    found: str | None = None
    wanted: str | None = None
    rule: str | None = None
    next: str | None = None

    def on(self, host: str) -> Problem:
        """The same problem, on `host`."""
        return replace(self, host=host)

    def __str__(self) -> str:
        head = f"{self.code}  " + (f"{self.host}: " if self.host else "") + self.what
        rows = (
            ("found", self.found),
            ("wanted", self.wanted),
            ("where", str(self.where) if self.where else None),
            ("rule", self.rule),
            ("next", self.next),
        )
        return "\n".join([head, *(f"  {label:<7} {text}" for label, text in rows if text)])


class GpurackError(Exception):
    """The root of every error that gpurack raises on purpose."""

    def __init__(self, problems: Problem | Iterable[Problem]) -> None:
        self.problems = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class BadInput(GpurackError):
    """What a person wrote is wrong; nothing was contacted (exit code 2)."""


class Refused(GpurackError):
    """The host or the cluster is not in a state that allows the change (exit code 1 or 4)."""


class Lost(GpurackError):
    """A fact could not be read, so nothing may be decided or written on that host."""
