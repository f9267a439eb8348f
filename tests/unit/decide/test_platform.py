"""An operating system that is not prepared is refused with its gate; full disks are refused with why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpurack.decide import platform
from gpurack.decide.gates import GATES
from gpurack.decide.platform import Platform, Room, judge

GIB = 2**30
ROOMS = tuple(
    Room(path=path, total=100 * GIB, available=50 * GIB, inodes=1000, inodes_free=900)
    for path in (platform.LOGS, platform.IMAGES, platform.NODE, platform.APT)
)
UBUNTU = Platform(
    id="ubuntu",
    version_id="24.04",
    pretty="Ubuntu 24.04.3 LTS",
    kernel="6.8.0-88-generic",
    architecture="amd64",
    cgroup=2,
    boot_id="b5c1",
    container=None,
    machine=None,
    reboot=None,
    rooms=ROOMS,
)
DEBIAN = replace(UBUNTU, id="debian", version_id="12", pretty="Debian GNU/Linux 12 (bookworm)")


def codes(accept: set[str], found: Platform) -> list[str]:
    return [problem.code for problem in judge(frozenset(accept), found).refused]


@pytest.mark.parametrize("version", ["22.04", "24.04"])
def test_supported_ubuntu_needs_no_gate(version: str) -> None:
    assert not codes(set(), replace(UBUNTU, version_id=version))


@pytest.mark.parametrize("version", ["20.04", "25.10", "24.10", ""])
def test_other_ubuntus_are_refused(version: str) -> None:
    assert codes(set(), replace(UBUNTU, version_id=version)) == ["E-OS-01"]


def test_debian_12_needs_its_gate_and_says_so_with_it() -> None:
    assert codes(set(), DEBIAN) == ["E-OS-01"]
    assert "os-debian-12" in str(judge(frozenset(), DEBIAN).refused[0].next)
    accepted = judge(frozenset({"os-debian-12"}), DEBIAN)
    assert not accepted.refused
    assert "os-debian-12" in accepted.notes[0]


def test_no_gate_opens_another_debian() -> None:
    assert codes({"os-debian-12"}, replace(DEBIAN, version_id="11")) == ["E-OS-01"]


def test_cgroup_v1_needs_its_gate() -> None:
    old = replace(UBUNTU, cgroup=1)
    assert codes(set(), old) == ["E-OS-03"]
    assert not codes({"cgroup-v1"}, old)


def test_a_container_needs_its_gate() -> None:
    shared = replace(UBUNTU, container="systemd-nspawn")
    assert codes(set(), shared) == ["E-OS-04"]
    assert not codes({"shared-kernel"}, shared)


def test_every_gate_that_is_asked_for_exists() -> None:
    asked = {gate for gate in platform.SYSTEMS.values() if gate} | {
        platform.CGROUP_V1,
        platform.SHARED_KERNEL,
    }
    assert asked <= set(GATES)


def test_another_architecture_is_refused() -> None:
    assert codes(set(), replace(UBUNTU, architecture="riscv64")) == ["E-OS-02"]


@pytest.mark.parametrize(
    ("path", "available", "good"),
    [
        (platform.IMAGES, 15 * GIB, True),
        (platform.IMAGES, 15 * GIB - 1, False),
        (platform.NODE, 10 * GIB, True),
        (platform.NODE, 10 * GIB - 1, False),
        (platform.LOGS, GIB, True),
        (platform.LOGS, GIB - 1, False),
        (platform.APT, GIB - 1, False),
    ],
)
def test_room_below_what_kubelet_evicts_at_is_refused(path: str, available: int, good: bool) -> None:
    rooms = tuple(replace(room, available=available) if room.path == path else room for room in ROOMS)
    assert codes(set(), replace(UBUNTU, rooms=rooms)) == ([] if good else ["E-OS-05"])


def test_room_of_a_tiny_disk_is_too_little_although_its_share_is_free() -> None:
    tiny = (replace(ROOMS[1], total=16 * 2**20, available=12 * 2**20),)
    assert codes(set(), replace(UBUNTU, rooms=tiny)) == ["E-OS-05"]


def test_few_inodes_are_refused_and_a_file_system_without_inodes_is_not() -> None:
    few = (replace(ROOMS[0], inodes_free=49),)
    none = (replace(ROOMS[0], inodes=0, inodes_free=0),)
    assert codes(set(), replace(UBUNTU, rooms=few)) == ["E-OS-06"]
    assert not codes(set(), replace(UBUNTU, rooms=none))


def test_all_problems_come_at_once() -> None:
    bad = replace(DEBIAN, cgroup=1, architecture="i386", container="lxc")
    assert codes(set(), bad) == ["E-OS-01", "E-OS-02", "E-OS-03", "E-OS-04"]


def test_a_pending_reboot_is_said_with_the_packages_that_ask() -> None:
    notes = judge(frozenset(), replace(UBUNTU, reboot=("linux-base",))).notes
    assert "linux-base" in notes[0]
