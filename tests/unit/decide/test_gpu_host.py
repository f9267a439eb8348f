"""Found hardware against the pool's declaration."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpurack.decide.gpu_host import Found, ready_for_driver
from gpurack.decide.numa import NumaNode, Topology
from gpurack.decide.pci import Function, Machine, Room
from gpurack.site.models import Disk, Gpus, Hardware, Host, Node, Pool, Site

EIGHT = tuple(
    Function(address=f"0000:{bus:02x}:00.0", id="10de:2330", kind="0302", numa_node=bus // 128)
    for bus in (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF)
)
TWO_SOCKETS = Topology(
    nodes=(
        NumaNode(id=0, memory=2**39, cpus=frozenset(range(4)), hugepages={2**30: 32}),
        NumaNode(id=1, memory=2**39, cpus=frozenset(range(4, 8)), hugepages={2**30: 32}),
    ),
    online=frozenset(range(8)),
    present=frozenset(range(8)),
)
HARDWARE = Hardware(
    gpus=Gpus(count=8, ids=("10de:2330",), per_numa_node=(4, 4)),
    numa_nodes=2,
    hugepages={"1Gi": 64},
    iommu="passthrough",
    disks=(Disk(path="/var/lib/containerd", minimum=2**40),),
)
FOUND = Found(
    machine=Machine(functions=EIGHT, iommu="passthrough", secure_boot=False),
    topology=TWO_SOCKETS,
    rooms=(Room(path="/var/lib/containerd", size=2**41),),
)


def node(pool: Pool | None) -> Node:
    site = Site.model_construct(file="site.yaml", name="site")
    host = Host.model_construct(name="gpu-r07-01", addresses=(), role="gpu", pool="h100" if pool else None)
    return Node.model_construct(host=host, pool=pool, site=site)


def codes(found: Found, hardware: Hardware = HARDWARE, driver: str = "operator") -> list[str]:
    pool = Pool.model_validate({"platform": "hgx-h100-8", "hardware": hardware, "driver": driver})
    decision = ready_for_driver(node(pool), found)
    assert not decision.steps
    return [problem.code for problem in decision.refused]


def machine(**change: object) -> Found:
    return replace(FOUND, machine=replace(FOUND.machine, **change))  # type: ignore[arg-type]


def test_a_host_as_declared_is_ready() -> None:
    assert codes(FOUND) == []


def test_a_control_plane_without_a_pool_has_nothing_to_declare() -> None:
    assert not ready_for_driver(node(None), Found(machine=Machine(), topology=TWO_SOCKETS)).refused


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (machine(functions=EIGHT[:7]), "E-GPU-01"),
        (machine(functions=(*EIGHT[:7], replace(EIGHT[7], id="10de:2335"))), "E-GPU-02"),
        (machine(functions=(*EIGHT[:7], replace(EIGHT[7], numa_node=0))), "E-GPU-03"),
        (machine(functions=(*EIGHT[:7], replace(EIGHT[7], numa_node=None))), "E-GPU-03"),
        (replace(FOUND, topology=replace(TWO_SOCKETS, nodes=TWO_SOCKETS.nodes[:1])), "E-GPU-04"),
        (machine(iommu="on"), "E-GPU-06"),
        (replace(FOUND, rooms=()), "E-GPU-07"),
        (replace(FOUND, rooms=(Room(path="/var/lib/containerd", size=2**39),)), "E-GPU-07"),
        (machine(nvidia_smi="/usr/bin/nvidia-smi"), "E-GPU-11"),
        (machine(driver_packages=("nvidia-driver-570-server 570.158.01",)), "E-GPU-11"),
    ],
)
def test_every_difference_is_refused(found: Found, code: str) -> None:
    assert code in codes(found)


def test_all_differences_are_told_at_once() -> None:
    assert codes(machine(functions=EIGHT[:7], iommu="off", nvidia_smi="/bin/nvidia-smi")) == [
        "E-GPU-01",
        "E-GPU-06",
        "E-GPU-11",
    ]


def test_hugepages_are_counted_over_all_numa_nodes() -> None:
    assert codes(FOUND, HARDWARE.model_copy(update={"hugepages": {"1Gi": 63}})) == ["E-GPU-05"]


@pytest.mark.parametrize(
    ("driver", "word"),
    [
        ("nouveau", "nouveau holds"),
        ("NovaCore", "nova"),
        ("nova_core", "nova"),
        ("nova_drm", "nova"),
        ("vfio-pci", "virtual machines"),
        ("other", "driver other holds"),
    ],
)
def test_o_44_the_driver_that_is_bound_to_a_gpu_gets_its_own_message(driver: str, word: str) -> None:
    pool = Pool(platform="hgx-h100-8", hardware=HARDWARE)
    held = machine(functions=(replace(EIGHT[0], driver=driver), *EIGHT[1:]))
    (problem,) = ready_for_driver(node(pool), held).refused
    assert problem.code == "E-GPU-10"
    assert word in problem.what
    assert EIGHT[0].address in str(problem.found)
    if word in ("nouveau holds", "nova"):
        assert "nouveau, nova_core and nova_drm" in str(problem.next)


def test_a_gpu_that_the_operators_driver_holds_is_fine() -> None:
    held = tuple(replace(gpu, driver="nvidia") for gpu in EIGHT)
    assert codes(machine(functions=held, modules=frozenset({"nvidia"}), operator_driver=True)) == []


@pytest.mark.parametrize("change", [{"secure_boot": True}, {"lockdown": "integrity"}])
def test_o_43_unsigned_modules_are_refused_under_secure_boot_and_lockdown(change: dict[str, object]) -> None:
    assert codes(machine(**change)) == ["E-GPU-13"]


def test_o_43_a_signed_host_driver_is_a_way_out() -> None:
    found = machine(secure_boot=True, nvidia_smi="/usr/bin/nvidia-smi")
    assert codes(found, driver="host") == []


def test_o_43_legacy_boot_is_no_secure_boot() -> None:
    assert codes(machine(secure_boot=None)) == []


def test_a_pool_with_host_drivers_needs_one() -> None:
    assert codes(FOUND, driver="host") == ["E-GPU-12"]


def test_o_09_on_one_numa_node_gpus_of_unknown_place_are_counted_there() -> None:
    lost = tuple(replace(gpu, numa_node=None) for gpu in EIGHT)
    found = replace(machine(functions=lost), topology=replace(TWO_SOCKETS, nodes=TWO_SOCKETS.nodes[:1]))
    hardware = Hardware(gpus=Gpus(count=8, per_numa_node=(8,)), numa_nodes=1)
    assert codes(found, hardware) == []


def test_what_is_only_worth_knowing_is_told_and_refuses_nothing() -> None:
    pool = Pool(platform="hgx-h100-8", hardware=HARDWARE)
    found = machine(
        redirecting=("0000:15:01.0",),
        driver_packages=("nvidia-container-toolkit 1.17.0",),
        modules=frozenset({"nouveau"}),
    )
    decision = ready_for_driver(node(pool), found)
    assert not decision.refused
    assert [note.partition(":")[0] for note in decision.notes] == ["R79", "R71", "R74"]
