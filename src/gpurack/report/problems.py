"""Problems and the answer of `gpurack check`, for a terminal (rich) and for programs (JSON)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from gpurack.decide.gates import GATES
from gpurack.errors import Problem
from gpurack.site.models import Site

_LABELS = ("found", "wanted", "where", "rule", "next")


def show_problems(
    problems: Sequence[Problem], *, heading: str | None = None, console: Console | None = None
) -> None:
    """Print each problem as its code, its sentence and up to five lines below, and how many there are."""
    console = console or _console(stderr=True)
    for problem in problems:
        subject = f"{problem.host}: " if problem.host else ""
        head = Text.assemble((problem.code, "bold red"), "  ", (subject, "bold"), problem.what)
        console.print(head)
        for label in _LABELS:
            value = getattr(problem, label)
            if value:
                style = "bold" if label == "next" else ""
                row = Text.assemble((f"{label:<7} ", "dim"), (str(value), style))
                console.print(Padding(row, (0, 0, 0, 2), expand=False))
    if heading and problems:
        count = len(problems)
        console.print(Text(f"{heading}: {count} problem{'s' * (count != 1)}; nothing was contacted", "bold"))


def show_site(site: Site, *, console: Console | None = None) -> None:
    """Print what a good document says, in a few lines: hosts, versions, accepted deviations, notes."""
    console = console or _console(stderr=False)
    roles = Counter(host.role for host in site.hosts)
    counts = ", ".join(f"{count} {role}" for role, count in sorted(roles.items()))
    console.print(Text.assemble(("site ", ""), (site.name, "bold"), f" is good: {counts}"))
    stack = site.stack
    console.print(Text(f"  stack    Kubernetes {stack.kubernetes}, containerd {stack.containerd}"))
    console.print(Text(f"  cluster  {site.cluster.name} at {site.cluster.endpoint}"))
    for name in site.pools:
        members = sum(host.pool == name for host in site.hosts)
        console.print(Text(f"  pool     {name}: {members} host{'s' * (members != 1)}"))
    for gate in sorted(site.accept):
        console.print(Text.assemble(("  accepts  ", "yellow"), f"{gate}: {GATES[gate]}"))
    for note in site.notes:
        console.print(Text.assemble(("  note     ", "yellow"), note))


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False)
    if not console.is_terminal:
        console.width = 1_000  # one line each in a log: rich would break at 80, and grep would miss
    return console


def problem_as_data(problem: Problem) -> dict[str, Any]:
    """The problem with plain types; keys without a value are left out. The keys are stable."""
    where = problem.where
    place = {"file": where.file, "line": where.line, "field": where.field} if where else None
    data = {
        "code": problem.code,
        "what": problem.what,
        "host": problem.host,
        "where": place,
        "found": problem.found,
        "wanted": problem.wanted,
        "rule": problem.rule,
        "next": problem.next,
    }
    return {key: value for key, value in data.items() if value is not None}


def print_json(*, document: str, problems: Sequence[Problem] = (), site: Site | None = None) -> None:
    """Print the answer of `gpurack check` as one JSON object on standard output."""
    answer: dict[str, Any] = {
        "document": document,
        "good": not problems,
        "problems": [problem_as_data(problem) for problem in problems],
    }
    if site is not None:
        answer |= {
            "site": site.name,
            "hosts": [host.name for host in site.hosts],
            "accepts": sorted(site.accept),
            "notes": list(site.notes),
        }
    print(json.dumps(answer, indent=2, ensure_ascii=False))
