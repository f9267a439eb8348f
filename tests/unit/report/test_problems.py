from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from gpurack.errors import Problem, Where
from gpurack.report.problems import print_json, problem_as_data, show_problems

PROBLEM = Problem(
    code="E-SITE-07",
    what="it can't be [bold]x[/bold]",
    host="gpu-1",
    where=Where(file="inventories/prod.yaml", line=42, field="pools.h100.stage"),
    found="x",
    wanted="production",
    rule="R4",
    next="write production",
)


def shown(width: int) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    show_problems([PROBLEM], heading="prod can't be used", console=console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_problem_is_shown_as_its_five_things() -> None:
    assert shown(200).splitlines() == [
        "E-SITE-07  gpu-1: it can't be [bold]x[/bold]",
        "  found   x",
        "  wanted  production",
        "  where   inventories/prod.yaml:42 pools.h100.stage",
        "  rule    R4",
        "  next    write production",
        "prod can't be used: 1 problem; nothing was contacted",
    ]


def test_a_narrow_terminal_loses_no_word() -> None:
    assert shown(30).split() == shown(200).split()


def test_a_log_gets_one_line_each_however_long(capsys: pytest.CaptureFixture[str]) -> None:
    show_problems([Problem(code="E-SITE-01", what="word " * 60)])
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_data_has_stable_keys_and_leaves_out_what_is_unknown() -> None:
    assert problem_as_data(Problem(code="E-SITE-01", what="gone")) == {"code": "E-SITE-01", "what": "gone"}
    assert problem_as_data(PROBLEM)["where"] == {
        "file": "inventories/prod.yaml",
        "line": 42,
        "field": "pools.h100.stage",
    }


def test_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    print_json(document="inventories/prod", problems=[PROBLEM])
    answer = json.loads(capsys.readouterr().out)
    assert (answer["good"], len(answer["problems"])) == (False, 1)
