"""`gpurack check` as a program: what it prints, what it exits with, and that it never shows a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gpurack import cli
from gpurack.cli.exit_codes import ExitCode, exit_code
from gpurack.errors import BadInput, GpurackError, Lost, Problem, Refused

ROOT = Path(__file__).parents[3]


def gpurack(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from gpurack.cli import main; main()", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_good_document_exits_0_and_says_what_it_holds() -> None:
    done = gpurack("check", "inventories/prod")
    assert (done.returncode, done.stderr) == (0, "")
    assert "site prod is good: 3 control-plane, 8 gpu" in done.stdout


def test_a_bad_document_exits_2_with_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("name: x\nhosts: []\nracs: {}\n", encoding="utf-8")
    done = gpurack("check", str(path))
    assert done.returncode == 2
    assert f"{path}:3 racs" in done.stderr
    assert "write racks" in done.stderr
    assert "Traceback" not in done.stderr


def test_json_goes_to_standard_output_with_the_same_exit_code(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("name: x\nracs: {}\n", encoding="utf-8")
    done = gpurack("check", str(path), "--json")
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["good"]) == (2, False)
    assert {"file": str(path), "line": 2, "field": "racs"} in [
        problem["where"] for problem in answer["problems"]
    ]
    good = gpurack("check", "inventories/prod", "--json")
    assert (good.returncode, json.loads(good.stdout)["good"]) == (0, True)


def test_a_missing_document_and_a_mistyped_command_exit_2() -> None:
    for words in (("check", "inventories/nothing"), ("check",), ("chek", "inventories/prod")):
        done = gpurack(*words)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr


def test_help_names_the_commands_of_other_packages_too() -> None:
    done = gpurack("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert [word for word in ("check", "hosts", "lab") if word in done.stdout.split()] == [
        "check",
        "hosts",
        "lab",
    ]
    for words in (("hosts", "trust"), ("lab", "up")):
        assert gpurack(*words, "--help").returncode == 0


def test_check_imports_neither_pyinfra_nor_kubernetes() -> None:
    code = (
        "import sys; sys.argv = ['gpurack', 'check', 'inventories/prod']\n"
        "from gpurack.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sorted({'pyinfra', 'kubernetes', 'paramiko', 'gevent'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("error", "code"),
    [(BadInput, 2), (Refused, 4), (Lost, 6), (GpurackError, 1)],
)
def test_each_kind_of_error_has_its_exit_code(error: type[GpurackError], code: int) -> None:
    assert exit_code(error(Problem(code="E-SITE-01", what="x"))) == code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KeyError("boom"), ExitCode.FAILED),
        (Refused(Problem(code="E-SITE-01", what="no")), ExitCode.REFUSED),
        (KeyboardInterrupt(), ExitCode.INTERRUPTED),
    ],
)
def test_whatever_happens_inside_ends_in_sentences(
    error: BaseException,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("gpurack.cli.check.load", fail)
    monkeypatch.setattr(sys, "argv", ["gpurack", "check", "inventories/prod"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == code
    shown = capsys.readouterr()
    assert "Traceback" not in shown.err + shown.out
    logs = [path.read_text(encoding="utf-8") for path in tmp_path.glob("gpurack-*.log")]
    assert ["boom" in log for log in logs] == ([True] if isinstance(error, KeyError) else [])
