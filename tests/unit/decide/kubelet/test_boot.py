"""The boot guard, run for real in a folder of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpurack.decide.kubelet import boot
from gpurack.decide.kubelet.snapshot import CPU_STATE, MEMORY_STATE, STATE_DIR


class Host:
    """A folder that has kubelet's state, and the guard with its paths moved into it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        text = boot.GUARD_TEXT
        for path in (STATE_DIR, "/var/lib/gpurack", "/proc/sys/kernel/random/boot_id"):
            assert path in text
            text = text.replace(path, f"{root}{path}")
        (root / "guard").write_text(text)
        self.at(STATE_DIR).mkdir(parents=True)
        self.boot("first")

    def at(self, path: str) -> Path:
        return Path(f"{self.root}{path}")

    def boot(self, name: str) -> None:
        path = self.at("/proc/sys/kernel/random/boot_id")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name}\n")

    def pin(self) -> None:
        for path in (CPU_STATE, MEMORY_STATE, f"{STATE_DIR}/dra_manager_state"):
            self.at(path).write_text("{}")

    def start(self) -> int:
        return subprocess.run(["dash", f"{self.root}/guard"], check=False, capture_output=True).returncode

    @property
    def state(self) -> set[str]:
        return {path.name for path in self.at(STATE_DIR).iterdir()}


ALL = {"cpu_manager_state", "memory_manager_state", "dra_manager_state"}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_new_boot_drops_the_two_state_files_and_no_other(host: Host) -> None:
    assert host.start() == 0
    host.pin()
    host.boot("second")
    assert host.start() == 0
    assert host.state == {"dra_manager_state"}
    assert host.at(boot.STORED).read_text() == "second\n"


def test_a_mere_restart_keeps_all_state(host: Host) -> None:
    assert host.start() == 0
    host.pin()
    assert host.start() == 0
    assert host.state == ALL


def test_without_a_stored_boot_id_nothing_is_known_and_nothing_removed(host: Host) -> None:
    host.pin()
    assert host.start() == 0
    assert host.state == ALL
    assert host.at(boot.STORED).read_text() == "first\n"


def test_a_guard_that_cannot_store_the_id_stops_kubelet(host: Host) -> None:
    assert host.start() == 0
    host.at(f"{boot.STORED}.new").mkdir()
    host.boot("second")
    assert host.start() != 0
    assert host.at(boot.STORED).read_text() == "first\n"


def test_a_guard_that_died_half_way_finishes_at_the_next_start(host: Host) -> None:
    assert host.start() == 0
    host.pin()
    host.at(f"{boot.STORED}.new").mkdir()
    host.boot("second")
    assert host.start() != 0
    host.at(f"{boot.STORED}.new").rmdir()
    assert host.start() == 0
    assert host.state == {"dra_manager_state"}


def test_the_unit_runs_the_guard_before_kubelet_and_a_failure_counts() -> None:
    assert f"ExecStartPre={boot.GUARD}\n" in boot.UNIT_TEXT
