"""CPU lists, and reservations to the byte."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpurack.decide.numa import NumaNode, Topology, format_cpus, parse_cpus, reserve, split
from gpurack.defaults import NUMA_MEMORY_MARGIN
from gpurack.errors import Where
from gpurack.site.models import NumaPolicy, Reserved

MIB = 2**20
HERE = Where("site.yaml", None, "pools.gpu.numa")


def topology(*nodes: NumaNode, present: frozenset[int] | None = None) -> Topology:
    online = frozenset().union(*(node.cpus for node in nodes))
    return Topology(nodes=nodes, online=online, present=online if present is None else present)


def two_sockets(memory: int = 4096 * MIB) -> Topology:
    return topology(
        NumaNode(id=0, memory=memory, cpus=frozenset(range(4))),
        NumaNode(id=1, memory=memory, cpus=frozenset(range(4, 8))),
    )


# ---------------------------------------------------------------------------------------- CPU lists
@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0", {0}),
        ("0-3", {0, 1, 2, 3}),
        ("0-1,4,6-7\n", {0, 1, 4, 6, 7}),
        ("0, 2, 4", {0, 2, 4}),
        (" 3 ", {3}),
        ("", set()),
        ("\n", set()),
    ],
)
def test_a_cpu_list_is_read_in_every_spelling_of_the_kernel(text: str, cpus: set[int]) -> None:
    assert parse_cpus(text) == cpus


@pytest.mark.parametrize("text", ["3-1", "a", "1,,2", "0-", "-1", "0-3,", "1-2-3", "0x1"])
def test_anything_else_is_no_cpu_list(text: str) -> None:
    with pytest.raises(ValueError, match="CPU list"):
        parse_cpus(text)


@given(st.frozensets(st.integers(0, 512)))
def test_a_printed_cpu_list_reads_back_as_the_same_set(cpus: frozenset[int]) -> None:
    assert parse_cpus(format_cpus(cpus)) == cpus


@given(st.frozensets(st.integers(0, 512), min_size=1))
def test_a_printed_cpu_list_is_canonical(cpus: frozenset[int]) -> None:
    bounds = [[int(end) for end in item.split("-")] for item in format_cpus(cpus).split(",")]
    ends = [(item[0], item[-1]) for item in bounds]
    assert all(later[0] > earlier[1] + 1 for earlier, later in pairwise(ends))


O_10 = """\
online:  0-11,24-35
offline: 12-23,36-47
node0:   0,2,4,6,8,10,24,26,28,30,32,34
node1:   1,3,5,7,9,11,25,27,29,31,33,35
"""


def o_10() -> Topology:
    lists = {name: parse_cpus(text) for name, text in (line.split(":", 1) for line in O_10.splitlines())}
    return Topology(
        nodes=tuple(NumaNode(id=number, memory=64 * 2**30, cpus=lists[f"node{number}"]) for number in (0, 1)),
        online=lists["online"],
        present=lists["online"] | lists["offline"],
    )


def test_o_10_a_reserved_cpu_above_the_number_of_online_cpus_is_fine() -> None:
    policy = NumaPolicy(cpu="static", reserved=Reserved(cpus="28-35"))
    reservation, problems = reserve(policy, o_10(), HERE)
    assert not problems
    assert format_cpus(reservation.cpus) == "28-35"


def test_o_10_offline_reserved_cpus_are_refused_by_number() -> None:
    policy = NumaPolicy(cpu="static", reserved=Reserved(cpus="10-13"))
    _, problems = reserve(policy, o_10(), HERE)
    assert [problem.code for problem in problems] == ["E-NUMA-02"]
    assert "12-13 are offline" in problems[0].what


def test_reserved_cpus_that_do_not_exist_are_told_from_offline_ones() -> None:
    _, problems = reserve(NumaPolicy(cpu="static", reserved=Reserved(cpus="0,99")), o_10(), HERE)
    assert "99 do not exist" in problems[0].what


def test_every_cpu_reserved_is_refused_and_all_but_one_is_accepted() -> None:
    _, problems = reserve(NumaPolicy(cpu="static", reserved=Reserved(cpus="0-7")), two_sockets(), HERE)
    assert [problem.code for problem in problems] == ["E-NUMA-03"]
    _, problems = reserve(NumaPolicy(cpu="static", reserved=Reserved(cpus="0-6")), two_sockets(), HERE)
    assert not problems


def test_static_without_a_cpu_reservation_is_refused() -> None:
    _, problems = reserve(NumaPolicy(cpu="static"), two_sockets(), HERE)
    assert [problem.code for problem in problems] == ["E-NUMA-07"]


def test_whole_cores_are_reserved_on_every_node_that_serves() -> None:
    nodes = (
        NumaNode(id=0, memory=2**32, cpus=frozenset({0, 1, 4, 5})),
        NumaNode(id=1, memory=2**32, cpus=frozenset({2, 3, 6, 7})),
        NumaNode(id=2, memory=2**32),
    )
    siblings = {cpu: frozenset({cpu % 4, cpu % 4 + 4}) for cpu in range(8)}
    machine = Topology(
        nodes=nodes, online=frozenset(range(8)), present=frozenset(range(8)), siblings=siblings
    )
    policy = NumaPolicy(cpu="static", reserved=Reserved(cpus_per_numa_node=1))
    reservation, problems = reserve(policy, machine, HERE)
    assert not problems
    assert format_cpus(reservation.cpus) == "0,2,4,6"


# ---------------------------------------------------------------------------------------- memory
@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """Any machine: memory-only nodes, CPU-only nodes, hugepages, one node, many."""
    count = draw(st.integers(1, 12))
    nodes = []
    for number in range(count):
        cpus = frozenset(range(number * 4, number * 4 + draw(st.sampled_from([0, 1, 4]))))
        memory = draw(st.one_of(st.just(0), st.integers(1, 2**31).map(lambda pages: pages * 4096)))
        pages = draw(st.integers(0, memory // (2 * MIB)))
        nodes.append(NumaNode(id=number, memory=memory, cpus=cpus, hugepages={2 * MIB: pages}))
    return topology(*nodes)


@given(topologies(), st.integers(0, 2**36), st.integers(0, 2**36), st.integers(1, 2**34))
def test_for_all_topologies_the_shares_add_up_to_the_byte_and_fit_or_are_refused(
    machine: Topology, kube: int, system: int, eviction: int
) -> None:
    reserved = Reserved(kube_memory=kube, system_memory=system, eviction_memory=eviction)
    reservation, problems = reserve(NumaPolicy(memory="Static", reserved=reserved), machine, HERE)
    serving = {node.id: node for node in machine.serving}
    if serving:
        assert sum(reservation.memory.values()) == kube + system + eviction
    else:
        assert problems
    assert set(reservation.memory) <= set(serving)
    assert all(share > 0 for share in reservation.memory.values())
    over = [
        number
        for number, share in reservation.memory.items()
        if share > serving[number].memory - serving[number].huge - NUMA_MEMORY_MARGIN
    ]
    assert len([problem for problem in problems if problem.code == "E-NUMA-04"]) == len(over)


@given(st.integers(0, 2**40), st.integers(1, 16))
def test_only_the_lowest_node_differs_from_the_others(total: int, count: int) -> None:
    shares = split(total, [NumaNode(id=number, memory=1) for number in range(count)])
    assert sum(shares.values()) == total
    assert len({share for node, share in shares.items() if node}) <= 1


def test_a_total_that_moves_by_some_pages_does_not_move_the_reservation() -> None:
    policy = NumaPolicy(memory="Static", reserved=Reserved(system_memory=700 * MIB + 1))
    before, _ = reserve(policy, two_sockets(4096 * MIB), HERE)
    after, _ = reserve(policy, two_sockets(4096 * MIB - 32 * MIB), HERE)
    assert before == after
    assert before.memory == {0: 400 * MIB + 1, 1: 400 * MIB}


def test_a_share_larger_than_its_node_is_refused_and_one_that_fits_exactly_is_accepted() -> None:
    room = 4096 * MIB - NUMA_MEMORY_MARGIN
    fits = Reserved(system_memory=2 * room - 100 * MIB)
    assert not reserve(NumaPolicy(memory="Static", reserved=fits), two_sockets(), HERE)[1]
    over = Reserved(system_memory=2 * room - 100 * MIB + 1)
    _, problems = reserve(NumaPolicy(memory="Static", reserved=over), two_sockets(), HERE)
    assert [problem.code for problem in problems] == ["E-NUMA-04"]
    assert "NUMA node 0" in problems[0].what
    assert problems[0].where is not None
    assert str(problems[0].where) == "site.yaml pools.gpu.numa.reserved"


def test_hugepages_are_taken_off_before_a_share_is_judged() -> None:
    machine = topology(
        NumaNode(id=0, memory=4096 * MIB, cpus=frozenset({0, 1}), hugepages={2 * MIB: 1948}),
    )
    _, problems = reserve(NumaPolicy(memory="Static"), machine, HERE)
    assert problems[0].found is not None
    assert "200Mi after hugepages" in problems[0].found


def test_o_05_reserved_memory_is_computed_with_the_default_threshold() -> None:
    reserved = Reserved(kube_memory=500 * MIB, system_memory=393 * MIB)
    reservation, problems = reserve(NumaPolicy(memory="Static", reserved=reserved), two_sockets(), HERE)
    assert not problems
    assert sum(reservation.memory.values()) == 993 * MIB


@pytest.mark.parametrize("threshold", [0, "5%"])
def test_static_memory_needs_a_threshold_in_bytes(threshold: int | str) -> None:
    policy = NumaPolicy(memory="Static", reserved=Reserved.model_construct(eviction_memory=threshold))
    assert [problem.code for problem in reserve(policy, two_sockets(), HERE)[1]] == ["E-NUMA-08"]


def test_o_08_memory_is_planned_for_the_two_nodes_with_cpus_only() -> None:
    cpus = {0: frozenset(range(72)), 1: frozenset(range(72, 144))}
    machine = topology(
        *(NumaNode(id=number, memory=64 * 2**30, cpus=cpus.get(number, frozenset())) for number in range(34))
    )
    assert [node.id for node in machine.serving] == [0, 1]
    policy = NumaPolicy(memory="Static", reserved=Reserved(system_memory=1024 * MIB))
    reservation, problems = reserve(policy, machine, HERE)
    assert not problems
    assert set(reservation.memory) == {0, 1}
