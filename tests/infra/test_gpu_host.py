"""GPUs as the kernel shows them: simulated by files in the lab, and marked so."""

from __future__ import annotations

from collections import Counter

import pytest
from testinfra.host import Host

from gpurack.site.models import Node

pytestmark = pytest.mark.lab

LOOK = (
    "cd /sys/bus/pci/devices; for f in *; do case $(cat $f/class) in 0x0300*|0x0302*) "
    "echo $(cat $f/vendor $f/device $f/numa_node) $(basename $(readlink $f/driver || echo none)) "
    "$([ -e $f/gpurack-simulated ] && echo simulated || echo real);; esac; done"
)


def _functions(node: Host) -> list[tuple[str, ...]]:
    return [tuple(line.split()) for line in node.check_output(LOOK).splitlines() if line.startswith("0x10de")]


@pytest.mark.role("gpu")
def test_the_host_has_the_declared_gpus_and_says_that_they_are_simulated(node: Host, declared: Node) -> None:
    assert declared.pool
    wanted, found = declared.pool.hardware.gpus, _functions(node)
    assert len(found) == wanted.count
    models = {f"{vendor[2:]}:{device[2:]}" for vendor, device, *_ in found}
    assert models == set(wanted.ids)
    assert {kind for *_, kind in found} == {"simulated"}
    assert "simulated-gpus" in declared.site.accept


@pytest.mark.role("gpu")
def test_gpus_hang_on_the_declared_numa_nodes(node: Host, declared: Node) -> None:
    assert declared.pool
    layout = declared.pool.hardware.gpus.per_numa_node
    if not layout:
        pytest.skip("the pool declares no layout")
    found = Counter(int(numa) for _, _, numa, *_ in _functions(node))
    assert [found[number] for number in range(len(layout))] == list(layout)


@pytest.mark.role("gpu")
def test_no_driver_holds_them_yet(node: Host) -> None:
    assert {driver for _, _, _, driver, _ in _functions(node)} <= {"none"}
    assert node.run("ls /dev/nvidia*").rc != 0


@pytest.mark.role("gpu")
def test_the_kernel_has_the_declared_numa_nodes(node: Host, declared: Node) -> None:
    assert declared.pool
    if declared.pool.hardware.numa_nodes is None:
        pytest.skip("the pool declares no number")
    nodes = node.check_output("ls -d /sys/devices/system/node/node[0-9]* | wc -l")
    assert int(nodes) == declared.pool.hardware.numa_nodes


@pytest.mark.role("control-plane")
def test_the_control_plane_has_none(node: Host) -> None:
    assert _functions(node) == []
