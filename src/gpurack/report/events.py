"""What happened in a run, as frozen data. The engine emits it, renderers consume it; nobody parses text.

Every event is safe to show: commands, file contents and secrets are not part of any.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpurack.errors import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBegan:
    """+ hosts: of the document, in its order
    + accepted: ids of the gates that the site document accepts; shown in every report"""

    run: str
    site: str
    file: str
    command: tuple[str, ...]
    dry: bool
    accepted: tuple[str, ...]
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HostConnected:
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A decision with steps was taken (`dry`: would be)."""

    host: str
    operation: str
    reason: str
    disruption: str
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDone:
    host: str
    operation: str
    step: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Owed:
    """A change that a live host has to wait for."""

    host: str
    operation: str
    reason: str
    disruption: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """Something a person should know that changes nothing."""

    host: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A sign of life of something long."""

    host: str
    reason: str
    seconds: int
    deadline: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A host failed.

    + problem: code, cause, next command
    + journal: last lines of the unit concerned
    + left: what was done and not done when it failed
    + log: file with everything the failed command said
    """

    host: str
    operation: str
    problem: Problem
    journal: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    log: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBroke:
    """Something ended the run as a whole before its end; told after the hosts were let go."""

    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    """+ exit_code: as the process ends; + seconds: wall time."""

    exit_code: int
    seconds: float


Event = RunBegan | HostConnected | Changed | StepDone | Owed | Noted | Waiting | Failed | RunBroke | RunEnded
