"""The rack itself: idempotent, repaired after a crash, gone without a trace. Mostly on a rack of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpurack.lab import rack as racks
from tests.lab import harness, private_rack

pytestmark = pytest.mark.lab


@pytest.mark.parametrize(
    "scenario",
    [
        "real_hosts",
        "hardware",
        "air_gapped",
        "again",
        "reset_one",
        "cut_power",
        "nothing_left",
        "mirror_too",
        "down_twice",
        "ghost",
        "ghost_down",
        "killed_run",
        "not_ours",
    ],
)
def test_rack(scenario: str) -> None:
    done = private_rack.run(scenario)
    assert done.returncode == 0, f"{scenario}: {done.stdout[-3000:]}\n{done.stderr[-3000:]}"


def test_status_names_what_differs_from_production(bare_rack: Path) -> None:
    found = harness.gpurack("lab", "status", "--json", "--site", bare_rack).ok()
    for named in ("os-debian-12", "simulated-gpus", "frozen-meminfo"):
        assert named in found.out


@pytest.mark.usefixtures("bare_rack")
def test_unknown_host_is_one_sentence() -> None:
    ran = harness.gpurack("lab", "ssh", "gpu-99", "--", "true")
    assert ran.rc == 4
    assert "gpu-99" in ran.err
    assert "Traceback" not in ran.text


@pytest.mark.usefixtures("bare_rack")
def test_ssh_ends_with_the_exit_code_of_the_command() -> None:
    assert harness.gpurack("lab", "ssh", "gpu-1", "--", "exit", "7").rc == 7
    assert harness.gpurack("lab", "ssh", "--all", "--", "true").rc == 0


@pytest.mark.vm
def test_guest_has_two_numa_nodes_and_its_own_kernel(bare_rack: Path) -> None:
    asked = harness.ssh(
        "gpu-3",
        "cat /sys/devices/system/node/online; stat -fc %T /sys/fs/cgroup; "
        "cd /sys/bus/pci/devices; for f in */gpurack-simulated; do cat ${f%/*}/numa_node; done",
        site=bare_rack,
    ).ok()
    assert asked.out.split() == ["0-1", "cgroup2fs", "0", "0", "1", "1"]


@pytest.mark.vm
def test_rebooted_guest_has_another_boot_id(bare_rack: Path) -> None:
    read = "cat /proc/sys/kernel/random/boot_id"
    before = harness.ssh("gpu-3", read, site=bare_rack).ok().out
    racks.reboot("gpu-3", print)
    assert harness.ssh("gpu-3", read, site=bare_rack).ok().out != before
