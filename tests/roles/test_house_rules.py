"""What every role, deploy and operation keeps to, read from its source: pyinfra traps that no run shows."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
ROLES = sorted(REPOSITORY.glob("roles/*/__init__.py"))
DEPLOYS = sorted(REPOSITORY.glob("deploys/*.py"))
OPERATIONS = sorted(REPOSITORY.glob("src/gpurack/operations/*.py"))
PRODUCT = sorted(path for path in REPOSITORY.glob("src/gpurack/**/*.py") if "lab" not in path.parts)

# pyinfra arguments that choose hosts at random or call a failed wait a success (pyinfra.md 3).
FORBIDDEN = {"_run_once", "_serial", "_retry_until", "_ignore_errors"}


def named(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


def functions(path: Path) -> Iterator[ast.FunctionDef]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return (node for node in tree.body if isinstance(node, ast.FunctionDef))


def decorators(function: ast.FunctionDef) -> list[str]:
    return [ast.unparse(one).split("(")[0] for one in function.decorator_list]


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


@pytest.mark.parametrize("path", ROLES, ids=named)
def test_a_role_shows_only_deploys_that_take_keywords(path: Path) -> None:
    shown = [function for function in functions(path) if not function.name.startswith("_")]
    assert shown
    for function in shown:
        assert decorators(function) == ["deploy"], function.name
        assert not function.args.args, f"{function.name} takes positional arguments"
        assert ast.get_docstring(function), f"{function.name} promises nothing"


@pytest.mark.parametrize("path", ROLES, ids=named)
def test_each_operation_of_a_role_is_named_and_has_a_line_of_its_own(path: Path) -> None:
    lines: list[int] = []
    for function in functions(path):
        for call in calls(ast.Module(body=function.body, type_ignores=[])):
            given = {keyword.arg for keyword in call.keywords}
            assert not call.args, f"line {call.lineno}: pyinfra's operations take keywords"
            assert "name" in given, f"line {call.lineno}: an unnamed operation prints its arguments"
            assert not given & FORBIDDEN
            lines.append(call.lineno)
    assert len(lines) == len(set(lines)), "two operations on one line become one"


@pytest.mark.parametrize("path", DEPLOYS, ids=named)
def test_a_deploy_is_a_table_of_contents(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    assert len(text.splitlines()) <= 25
    assert ast.get_docstring(tree)
    assert not any(
        isinstance(node, ast.For | ast.While | ast.FunctionDef | ast.Try) for node in ast.walk(tree)
    )


@pytest.mark.parametrize("path", OPERATIONS, ids=named)
def test_no_exception_leaves_an_operation(path: Path) -> None:
    for function in functions(path):
        if "operation" in decorators(function):
            assert decorators(function) == ["operation", "guarded"], function.name
            assert not function.args.args, f"{function.name} takes positional arguments"


@pytest.mark.parametrize("path", [*ROLES, *OPERATIONS], ids=named)
def test_facts_are_read_only_by_read(path: Path) -> None:
    used = {
        call.func.attr for call in calls(ast.parse(path.read_text())) if isinstance(call.func, ast.Attribute)
    }
    assert not used & {"get_fact", "sleep"}


@pytest.mark.parametrize("path", PRODUCT, ids=named)
def test_a_module_is_short_or_says_why_not(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 400
