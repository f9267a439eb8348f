"""The topology script's answers."""

from __future__ import annotations

import subprocess

import pytest

from gpurack.decide.numa import format_cpus
from gpurack.facts.numa import Numa, parse_topology

TWO_NODES = """\
online\t0-3
present\t0-3
core\t0\t0
core\t1\t1
core\t2\t2
core\t3\t3
node\t0\t0,1\tNode 0 MemTotal:        1996224 kB
huge\t0\t1048576kB\t0
huge\t0\t2048kB\t16
node\t1\t2,3\tNode 1 MemTotal:        1963816 kB
huge\t1\t2048kB\t0
end
"""


def test_nodes_come_with_bytes_cpus_and_hugepages() -> None:
    machine = parse_topology(TWO_NODES)
    assert [node.memory for node in machine.nodes] == [1996224 * 1024, 1963816 * 1024]
    assert [format_cpus(node.cpus) for node in machine.nodes] == ["0-1", "2-3"]
    assert machine.nodes[0].hugepages == {2 * 2**20: 16}
    assert machine.nodes[1].hugepages == {}


def test_o_08_a_blank_cpu_list_is_no_cpu_at_all() -> None:
    text = TWO_NODES.replace("node\t1\t2,3\t", "node\t1\t\t").replace("online\t0-3", "online\t0-1")
    machine = parse_topology(text)
    assert machine.nodes[1].cpus == frozenset()
    assert [node.id for node in machine.serving] == [0]


def test_offline_cpus_belong_to_no_node() -> None:
    machine = parse_topology(TWO_NODES.replace("online\t0-3", "online\t0,2-3"))
    assert format_cpus(machine.offline) == "1"
    assert format_cpus(machine.nodes[0].cpus) == "0"


def test_a_node_without_memory_is_seen_and_serves_nobody() -> None:
    machine = parse_topology(TWO_NODES.replace("Node 1 MemTotal:        1963816 kB", ""))
    assert machine.nodes[1].memory == 0
    assert not machine.nodes[1].serves


def test_a_kernel_without_numa_is_one_node() -> None:
    machine = parse_topology("online\t0-1\npresent\t0-1\nflat\tMemTotal:       1024 kB\nend\n")
    assert [(node.id, node.memory, format_cpus(node.cpus)) for node in machine.nodes] == [(0, 2**20, "0-1")]


@pytest.mark.parametrize(
    "text", ["", "online\t0-1\n", "online\t0-1\nnonsense\nend\n", "online\t\npresent\t\nend\n"]
)
def test_half_an_answer_is_no_topology(text: str) -> None:
    with pytest.raises((ValueError, KeyError)):
        parse_topology(text)


def test_the_script_runs_in_posix_sh_on_this_machine_and_agrees_with_the_kernel() -> None:
    done = subprocess.run(["dash", "-c", Numa.script], capture_output=True, text=True, check=True)
    machine = parse_topology(done.stdout)
    with open("/sys/devices/system/cpu/online") as file:  # noqa: PTH123
        assert format_cpus(machine.online) == file.read().strip()
    assert machine.serving
    assert all(machine.core(cpu) for cpu in machine.online)
