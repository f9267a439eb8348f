"""What goes over the wire, run by a real shell here."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpurack.engine.wire import CUT_SHORT, Escalation, wire


def run(
    script: str, payload: bytes = b"", shell: str = "sh", before: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    command, given_ = wire(script, payload)
    process = subprocess.Popen(
        [shell, "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin
    assert process.stdout
    assert process.stderr
    process.stdin.write(before + given_)
    process.stdin.flush()  # and left open, as a connection is
    out, err = process.stdout.read(), process.stderr.read()
    code = process.wait()
    process.stdin.close()
    process.stdout.close()
    process.stderr.close()
    return subprocess.CompletedProcess(command, code, out, err)


@settings(max_examples=25, deadline=None)
@given(payload=st.binary(max_size=5000))
def test_any_payload_arrives_to_the_byte(payload: bytes) -> None:
    assert run("cat", payload).stdout == payload


@pytest.mark.parametrize("code", [0, 1, 77, 255])
def test_the_exit_code_is_the_scripts(code: int) -> None:
    assert run(f"exit {code}").returncode == code


def test_a_script_may_hold_quotes_here_documents_and_megabytes() -> None:
    script = "case 'a\"b' in a*) cat <<'E'\nit's $HOME\nE\n;; esac\n: " + "x" * 300_000
    assert run(script).stdout == b"it's $HOME\n"


def test_the_command_line_is_short_and_shows_neither_script_nor_payload_nor_password() -> None:
    command, _ = wire("echo s3cret " + "x" * 9999, b"s3cret", Escalation("password", "s3cret"))
    assert "s3cret" not in command
    assert len(command) < 1000


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_it_runs_in_english_in_the_root_folder_whatever_the_login_shell(shell: str) -> None:
    path = 'case ":$PATH:" in *:/usr/sbin:*) echo found;; esac'
    out = run(f'echo "$LC_ALL $LANGUAGE $(pwd) $(umask)"; {path}', shell=shell)
    assert out.stdout == b"C C / 0022\nfound\n"


def test_o_80_sudo_is_never_asked_in_a_way_that_prompts() -> None:
    assert Escalation("sudo").prefix() == "sudo -n -H "
    assert Escalation("password", "x").prefix() == "sudo -k -S -H -p '' "
    assert wire("true", escalation=Escalation("password", "x"))[1].startswith(b"x\ngpurack\n")


def test_o_81_an_early_sudo_rs_is_not_given_an_option_it_does_not_know() -> None:
    assert "-p" not in Escalation("password", "x", prompt=False).prefix()


def test_a_password_line_that_sudo_did_not_want_is_not_taken_for_the_script() -> None:
    found = run("cat", b"payload", before=b"not asked for\n")
    assert (found.returncode, found.stdout) == (0, b"payload")


def test_a_connection_that_ends_too_early_runs_nothing(tmp_path: Path) -> None:
    command, given_ = wire(f"touch {tmp_path}/ran")
    process = subprocess.run(["sh", "-c", command], input=given_[:-5], capture_output=True, check=False)
    assert process.returncode == CUT_SHORT
    assert not list(tmp_path.iterdir())


def test_the_end_of_input_ends_the_whole_group() -> None:
    command, given_ = wire("trap '' TERM; sleep 60 & echo $$; exec sleep 60")
    process = subprocess.Popen(["sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin
    assert process.stdout
    process.stdin.write(given_)
    process.stdin.flush()
    group = int(process.stdout.readline())
    os.killpg(group, 0)
    process.stdin.close()
    for _ in range(100):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            break
        time.sleep(0.05)
    with pytest.raises(ProcessLookupError):
        os.killpg(group, 0)
    process.stdout.close()
    process.wait()
