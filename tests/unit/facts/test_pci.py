"""PCI facts: from sysfs values, and the same cases as lspci shows them."""

from __future__ import annotations

import re
import subprocess

import pytest

from gpurack.decide.pci import by_numa_node, normal_address, without_numa_node
from gpurack.facts.pci import DiskRoom, GpuGround, parse_machine

O_51 = """\
0000:3d:00.0 VGA compatible controller [0300]: NVIDIA Corporation Device [10de:1e30] (rev a1)
0000:3d:00.1 Audio device [0403]: NVIDIA Corporation Device [10de:10f7] (rev a1)
0000:3d:00.3 Serial bus controller [0c80]: NVIDIA Corporation Device [10de:1ad7] (rev a1)
0005:00:00.0 Bridge [0680]: NVIDIA Corporation Device [10de:1af1] (rev a1)
0001:00:00.0 3D controller [0302]: NVIDIA Corporation Device [10de:20b2] (rev a1)
02:00.0 VGA compatible controller [0300]: ASPEED Technology, Inc. [1a03:2000]
"""

O_09 = """\
0000:3b:00.0/numa_node -> -1
0000:5e:00.0/numa_node -> -1
0000:d8:00.0/numa_node -> 1
"""


def row(address: str, vendor: str, device: str, kind: str, numa: str = "0", driver: str = "") -> str:
    """One function as the script prints what sysfs holds."""
    return f"pci\t{address}\t0x{vendor}\t0x{device}\t0x{kind}00\t{numa}\t{driver}\t"


def answer(*rows: str) -> str:
    return "\n".join([*rows, "iommu\t0\t", "end"])


def test_o_51_gpus_are_counted_by_class_and_vendor() -> None:
    lines = [re.match(r"(\S+) [^[]*\[(\w{4})\]: .*\[(\w{4}):(\w{4})\]", line) for line in O_51.splitlines()]
    machine = parse_machine(answer(*(row(m[1], m[3], m[4], m[2]) for m in lines if m)))
    assert [gpu.address for gpu in machine.gpus] == ["0000:3d:00.0", "0001:00:00.0"]
    assert [switch.address for switch in machine.nvswitches] == ["0005:00:00.0"]


def test_an_unknown_device_id_is_still_a_gpu() -> None:
    assert len(parse_machine(answer(row("0000:01:00.0", "10de", "ffff", "0302"))).gpus) == 1


def test_o_09_minus_one_is_unknown_and_never_a_node() -> None:
    values = [line.split("/numa_node -> ") for line in O_09.splitlines()]
    machine = parse_machine(answer(*(row(at, "10de", "2330", "0302", numa) for at, numa in values)))
    assert [gpu.numa_node for gpu in machine.gpus] == [None, None, 1]
    assert by_numa_node(machine.gpus) == {1: 1}
    assert [gpu.address for gpu in without_numa_node(machine.gpus, 2)] == ["0000:3b:00.0", "0000:5e:00.0"]
    assert without_numa_node(machine.gpus, 1) == ()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0000:C1:00.0", "0000:c1:00.0"),
        ("00000000:c1:00.0", "0000:c1:00.0"),
        ("GPU0000:20:00.0", "0000:20:00.0"),
        ("02:00.0", "0000:02:00.0"),
        ("0005:00:00.0", "0005:00:00.0"),
        ("00010000:c1:00.0", "10000:c1:00.0"),
    ],
)
def test_pci_addresses_are_compared_in_one_spelling(text: str, address: str) -> None:
    assert normal_address(text) == address


@pytest.mark.parametrize("text", ["", "GPU-1234", "0000:c1:00.8", "c1:00", "0000:zz:00.0"])
def test_anything_else_is_no_pci_address(text: str) -> None:
    with pytest.raises(ValueError, match="PCI address"):
        normal_address(text)


@pytest.mark.parametrize(
    ("groups", "kind", "mode"),
    [("0", "", "off"), ("0", "identity", "off"), ("12", "identity", "passthrough"), ("12", "DMA-FQ", "on")],
)
def test_the_iommu_is_judged_by_its_groups(groups: str, kind: str, mode: str) -> None:
    assert parse_machine(f"iommu\t{groups}\t{kind}\nend").iommu == mode


@pytest.mark.parametrize(("octets", "on"), [(" 6 0 0 0 1 ", True), (" 6 0 0 0 0 ", False)])
def test_the_last_byte_of_the_variable_says_whether_secure_boot_is_on(octets: str, on: bool) -> None:
    assert parse_machine(answer(f"secureboot\t{octets}")).secure_boot is on


def test_o_43_no_efi_variable_is_legacy_boot_and_no_crash() -> None:
    assert parse_machine(answer()).secure_boot is None


def test_lockdown_is_the_mode_in_brackets() -> None:
    assert parse_machine(answer("lockdown\tnone [integrity] confidentiality")).lockdown == "integrity"
    assert parse_machine(answer("lockdown\t[none] integrity confidentiality")).lockdown == "none"


def test_a_missing_lspci_is_unknown_and_not_zero() -> None:
    assert parse_machine(answer()).redirecting is None
    assert parse_machine(answer("lspci")).redirecting == ()
    assert parse_machine(answer("lspci", "acs\t0000:40:01.1")).redirecting == ("0000:40:01.1",)


@pytest.mark.parametrize("text", ["", "iommu\t0\t", answer("pci\tshort")])
def test_half_an_answer_is_no_machine(text: str) -> None:
    with pytest.raises(ValueError, match=r"end|unknown row"):
        parse_machine(text)


def test_the_script_runs_in_posix_sh_on_this_machine() -> None:
    done = subprocess.run(["dash", "-c", GpuGround.script], capture_output=True, text=True, check=True)
    assert parse_machine(done.stdout).iommu in ("off", "passthrough", "on")


def test_a_path_that_is_not_there_yet_is_measured_at_its_parent() -> None:
    fact = DiskRoom()
    script = fact.command(paths=("/", "/var/lib/not there/containerd")).get_raw_value()
    done = subprocess.run(["dash", "-c", script], capture_output=True, text=True, check=True)
    rooms = fact.parse(done.stdout)
    assert [room.path for room in rooms] == ["/", "/var/lib/not there/containerd"]
    assert all(room.size > 0 for room in rooms)
