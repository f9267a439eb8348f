"""What the host's shell gets, run here by a real /bin/sh with stand-ins for apt and dpkg on its PATH."""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path

import pytest

from gpurack.decide import apt_run
from gpurack.decide.decision import Transact

PINS = {"kubelet": "1.33.2-1.1"}


def tools(folder: Path, apt_status: int = 0) -> Path:
    """apt-get fails as told, apt-mark and dpkg-query say yes; each call is written to `calls`."""
    said = '"$(basename "$0") $* stdin=$(readlink /proc/self/fd/0) $NEEDRESTART_SUSPEND"'
    script = f"#!/bin/sh\necho {said} >>CALLS\n"
    for name, rest in {
        "apt-get": f"echo apt was here; exit {apt_status}\n",
        "apt-mark": "",
        "dpkg": "",
        "dpkg-query": 'case "$*" in *kubectl*) exit 1;; esac; printf installed\n',
    }.items():
        (folder / name).write_text(script.replace("CALLS", str(folder / "calls")) + rest)
        (folder / name).chmod(0o755)
    return folder


def run(script: str, folder: Path) -> tuple[str, list[str]]:
    done = subprocess.run(
        ["/bin/sh", "-c", script],
        env={"PATH": f"{folder}:/usr/bin:/bin"},
        input="a question's answer\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    return done.stdout, (folder / "calls").read_text().splitlines()


def called(calls: list[str], tool: str) -> list[str]:
    return [call for call in calls if call.startswith(f"{tool} ")]


@pytest.mark.parametrize("apt_status", [0, 100])
def test_o_23_packages_are_held_again_whatever_comes_of_the_install(tmp_path: Path, apt_status: int) -> None:
    script = apt_run.install(PINS, release=["kubelet"], hold=["kubelet", "kubectl"], finish=False)
    out, calls = run(script, tools(tmp_path, apt_status))
    order = [call.split()[1] for call in calls if call.startswith("apt-mark")]
    assert order == ["unhold", "hold"]
    held = called(calls, "apt-mark")[-1]
    assert held.startswith("apt-mark hold kubelet ")  # kubectl is not there, so it is not held
    assert out.splitlines()[-1] == f"gpurack-result={apt_status}"


def test_o_24_variables_are_set_inside_and_nobody_can_be_asked(tmp_path: Path) -> None:
    _, calls = run(apt_run.install(PINS, release=[], hold=["kubelet"], finish=True), tools(tmp_path))
    (call,) = called(calls, "apt-get")
    assert "stdin=/dev/null 1" in call
    assert " -y " in call
    assert "stdin=/dev/null 1" in called(calls, "dpkg")[0]


def test_o_24_both_calls_have_a_time_limit() -> None:
    assert isinstance(apt_run.update(), Transact)
    assert 0 < apt_run.update().deadline <= 3600


def test_o_27_what_the_host_has_is_kept(tmp_path: Path) -> None:
    _, calls = run(apt_run.install(PINS, release=[], hold=["kubelet"], finish=False), tools(tmp_path))
    assert "Dpkg::Options::=--force-confold" in called(calls, "apt-get")[0]


@pytest.mark.parametrize(
    "word", ["unauthenticated", "trusted=yes", "allow-downgrades", "allow-remove", "force-yes"]
)
def test_o_21_no_script_weakens_apt(word: str) -> None:
    script = apt_run.install(PINS, release=[], hold=["kubelet"], finish=True) + apt_run.update().script
    assert word not in script.lower()


def test_o_22_apt_waits_for_the_lock_of_dpkg() -> None:
    assert "DPkg::Lock::Timeout=" in apt_run.install(PINS, release=[], hold=[], finish=False)
    assert "DPkg::Lock::Timeout=" in apt_run.update().script


def test_o_22_the_probe_names_the_holder_and_is_quiet_without_one(tmp_path: Path) -> None:
    lock = tmp_path / "lock-frontend"
    probe = apt_run.LOCK_PROBE.replace("/var/lib/dpkg/lock-frontend", str(lock))
    with lock.open("w") as held:
        fcntl.lockf(held, fcntl.LOCK_EX)
        busy = subprocess.run(["/bin/sh", "-c", probe], capture_output=True, text=True, check=False)
        assert busy.returncode == 1
        assert f"{lock} is held by process {os.getpid()} (" in busy.stdout
        fcntl.lockf(held, fcntl.LOCK_UN)
        free = subprocess.run(["/bin/sh", "-c", probe], capture_output=True, text=True, check=False)
    assert (free.returncode, free.stdout) == (0, "")
