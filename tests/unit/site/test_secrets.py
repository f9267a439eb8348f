from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from gpurack.errors import BadInput
from gpurack.site.secrets import clear_secret, is_reference, read_reference

VALUE = "s3cr3t-value"


@pytest.mark.parametrize("text", ["env:NAME", "file:/run/secret", "file:~/x", "command:pass show a/b"])
def test_references(text: str) -> None:
    assert is_reference(text)


@pytest.mark.parametrize(
    "text", ["", "hunter2", "env:", "env:a b", "ENV:NAME", "file:", "http://x", "vault:x"]
)
def test_everything_else_is_a_value(text: str) -> None:
    assert not is_reference(text)


def test_a_variable_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPURACK_TEST", VALUE)
    assert read_reference("env:GPURACK_TEST") == VALUE


def test_a_missing_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPURACK_TEST", raising=False)
    with pytest.raises(BadInput, match="GPURACK_TEST is not set"):
        read_reference("env:GPURACK_TEST")


def test_a_file_is_read_without_its_last_line_break(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(VALUE + "\n", encoding="utf-8")
    path.chmod(0o600)
    assert read_reference(f"file:{path}") == VALUE


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o602, 0o620])
def test_a_secret_file_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "secret"
    path.write_text(VALUE, encoding="utf-8")
    path.chmod(mode)
    with pytest.raises(BadInput) as caught:
        read_reference(f"file:{path}")
    assert caught.value.problems[0].code == "E-SITE-53"
    assert VALUE not in str(caught.value)
    assert read_reference(f"file:{path}", secret=False) == VALUE


def test_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="No such file"):
        read_reference(f"file:{tmp_path}/nothing")
    with pytest.raises(BadInput, match="Is a directory"):
        read_reference(f"file:{tmp_path}")


def test_a_command_gives_its_first_line() -> None:
    script = shlex.quote(f"print('{VALUE}'); print('more')")
    assert read_reference(f"command:{sys.executable} -c {script}") == VALUE


def test_a_failed_command_shows_none_of_its_output() -> None:
    script = shlex.quote(f"print('{VALUE}'); raise SystemExit(3)")
    with pytest.raises(BadInput, match="ended with 3") as caught:
        read_reference(f"command:{sys.executable} -c {script}")
    assert VALUE not in caught.value.problems[0].what


@pytest.mark.parametrize("command", ["command:gpurack-no-such-program", "command:'unbalanced"])
def test_a_command_that_does_not_run_is_refused(command: str) -> None:
    with pytest.raises(BadInput, match="did not run"):
        read_reference(command)


def test_an_empty_value_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPURACK_TEST", "")
    with pytest.raises(BadInput, match="empty"):
        read_reference("env:GPURACK_TEST")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("-----BEGIN RSA PRIVATE KEY-----", "a private key"),
        ("abcdef.0123456789abcdef", "a bootstrap token"),
        ("eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrOHMifQ.c2ln", "a signed token (JWT)"),
        ("ghp_" + "a1" * 18, "an access token"),
        ("nvapi-" + "a1" * 16, "an NGC API key"),
        ("AKIA" + "A1" * 8, "a cloud access key"),
        ("https://user:word@example.com/", "a password inside a URL"),
    ],
)
def test_a_secret_in_clear_is_recognised(text: str, kind: str) -> None:
    assert clear_secret(text) == kind


@pytest.mark.parametrize(
    "text",
    [
        "registry.k8s.io",
        "gpu-r07.example.com",
        "https://user@example.com/",
        "http://10.0.0.2:5000",
        "env:TOKEN",
        "1.34.4-1.1",
    ],
)
def test_what_is_no_secret_passes(text: str) -> None:
    assert clear_secret(text) is None
