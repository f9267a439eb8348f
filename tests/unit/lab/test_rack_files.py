"""What the lab lays on hosts: simulated hardware, identity, deviations."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path

import pytest

from gpurack.decide.gates import GATES
from gpurack.decide.pci import normal_address
from gpurack.lab import deviations, lay, simulated, state
from gpurack.lab.state import RackHost


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The rack's folder, for files only."""
    ssh = tmp_path / "ssh"
    for module, name, value in (
        (state, "ROOT", tmp_path),
        (lay, "SSH", ssh),
        (lay, "KEY", ssh / "id_ed25519"),
    ):
        monkeypatch.setattr(module, name, value)
    lay.way_in()
    return tmp_path


def host(name: str = "gpu-1", address: str = "10.77.0.12", gpus: int = 4) -> RackHost:
    return RackHost(name, address, "container", gpus)


@pytest.mark.parametrize(
    ("functions", "nodes", "expected"),
    [(4, 2, (0, 0, 1, 1)), (4, 1, (0, 0, 0, 0)), (2, 2, (0, 1)), (3, 2, (0, 0, 1)), (0, 2, ())],
)
def test_functions_fill_numa_nodes_in_order(functions: int, nodes: int, expected: tuple[int, ...]) -> None:
    assert simulated.numa_nodes(functions, nodes) == expected


def test_each_simulated_function_says_so_and_reads_like_sysfs(tmp_path: Path) -> None:
    simulated.lay(tmp_path, 4, 2)
    folders = sorted(tmp_path.iterdir())
    assert [folder.name for folder in folders] == list(simulated.ADDRESSES)
    for folder, node in zip(folders, "0011", strict=True):
        read = {
            name: (folder / name).read_text().strip() for name in ("vendor", "device", "class", "numa_node")
        }
        assert read == {"vendor": "0x10de", "device": "0x2330", "class": "0x030200", "numa_node": node}
        assert (folder / simulated.MARK).exists()
        assert (folder / "config").read_bytes()[:4] == b"\xde\x10\x30\x23"
        assert normal_address(folder.name) == folder.name


def test_every_deviation_is_a_gate_and_every_lab_gate_a_deviation() -> None:
    ids = [one.id for one in deviations.DEVIATIONS]
    assert len(ids) == len(set(ids))
    assert set(ids) <= set(GATES)


def test_guests_alone_have_no_deviation_of_containers() -> None:
    of_guests = {one.id for one in deviations.present(frozenset({"vm"}))}
    assert of_guests == {"os-debian-12", "clock-not-synchronised", "simulated-gpus"}
    assert of_guests < {one.id for one in deviations.present(frozenset({"vm", "container"}))}


def test_one_node_is_frozen_at_the_machine_total(tmp_path: Path) -> None:
    node = tmp_path / "node0"
    node.mkdir()
    # a machine with memory hotplug: the node's file lacks half of what the machine has
    (node / "meminfo").write_text("Node 0 MemTotal:       10708764 kB\nNode 0 MemFree:         6372552 kB\n")
    (tmp_path / "meminfo").write_text("MemTotal:       24683652 kB\nMemFree:        20000000 kB\n")
    frozen = lay.frozen_meminfo(tmp_path, tmp_path / "meminfo")
    assert frozen == {"node0": "Node 0 MemTotal:       24683652 kB\nNode 0 MemFree:         20000000 kB\n"}


def test_two_nodes_are_frozen_as_they_are(tmp_path: Path) -> None:
    texts = {}
    for name in ("node0", "node1"):
        (tmp_path / name).mkdir()
        texts[name] = f"Node {name[-1]} MemTotal:       1000{name[-1]} kB\n"
        (tmp_path / name / "meminfo").write_text(texts[name])
    (tmp_path / "meminfo").write_text("MemTotal:  20001 kB\nMemFree: 1 kB\n")
    assert lay.frozen_meminfo(tmp_path, tmp_path / "meminfo") == texts


def test_hosts_differ_in_machine_id_key_and_uuid(root: Path) -> None:
    rack = (host(), host("gpu-2", "10.77.0.13"))
    laid = []
    for one in rack:
        lay.identity(one)
        folder = root / "laid" / one.name
        lay.lay(folder, one, rack)
        paths = (
            "etc/machine-id",
            "etc/ssh/ssh_host_ed25519_key.pub",
            f"{lay.FILES}/product_uuid",
            "etc/hostname",
        )
        laid.append([(folder / path).read_text() for path in paths])
    assert all(first != second for first, second in zip(*laid, strict=True))


def test_a_new_life_keeps_host_key_and_uuid_and_changes_machine_id(root: Path) -> None:
    lives = []
    for life in ("first", "second"):
        lay.identity(host())
        lay.lay(root / life, host(), [host()])
        lives.append(root / life)
    kept = ("etc/ssh/ssh_host_ed25519_key", f"{lay.FILES}/product_uuid", f"{lay.FILES}/hardware")
    for path in kept:
        assert (lives[0] / path).read_text() == (lives[1] / path).read_text()
    assert (lives[0] / "etc/machine-id").read_text() != (lives[1] / "etc/machine-id").read_text()


def test_secrets_have_their_mode_from_the_start(root: Path) -> None:
    lay.identity(host())
    lay.lay(root / "laid", host(), [host()])
    for path in ("etc/ssh/ssh_host_ed25519_key", "root/.ssh/authorized_keys"):
        assert stat.S_IMODE((root / "laid" / path).stat().st_mode) == 0o600


def test_laid_names_resolve_each_other(root: Path) -> None:
    rack = (host(), host("gpu-2", "10.77.0.13"))
    lay.identity(rack[0])
    lay.lay(root / "laid", rack[0], rack)
    lines = (root / "laid/etc/hosts").read_text().splitlines()
    assert "10.77.0.12 gpu-1" in lines
    assert "10.77.0.13 gpu-2" in lines


def test_control_planes_have_no_simulated_function(root: Path) -> None:
    bare = host("cp-1", "10.77.0.11", gpus=0)
    lay.identity(bare)
    lay.lay(root / "laid", bare, [bare])
    assert not (root / "laid" / lay.FILES / "pci").exists()


def test_os_release_is_never_laid(root: Path) -> None:
    lay.identity(host())
    lay.lay(root / "laid", host(), [host()])
    assert not list((root / "laid").rglob("os-release"))


def test_hardware_script_is_plain_sh(root: Path) -> None:
    lay.identity(host())
    lay.lay(root / "laid", host(), [host()])
    subprocess.run(["/bin/sh", "-n", root / "laid" / lay.FILES / "hardware"], check=True)
