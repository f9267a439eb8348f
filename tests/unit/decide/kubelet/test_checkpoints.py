"""Saved state: read whatever it is, refused exactly where kubelet refuses it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpurack.decide.kubelet.checkpoints import (
    CpuState,
    Damaged,
    MemoryState,
    SavedNode,
    cpu_conflict,
    damage,
    memory_conflict,
    parse_cpu_state,
    parse_memory_state,
)
from gpurack.decide.numa import NumaNode, Reservation, Topology
from gpurack.site.models import NumaPolicy

STATIC = NumaPolicy(cpu="static", memory="Static")
STRICT = NumaPolicy(cpu="static", cpu_options={"strict-cpu-reservation": "true"})
FOUR = frozenset(range(4))
O_01 = '{"policyName":"none","defaultCpuSet":"","checksum":1353318690}'
O_02 = (
    '{"policyName":"static","defaultCpuSet":"0-63","entries":{"3c1e-pod":{"main":"8-11"}},'
    '"checksum":4055201377}'
)
O_04 = '{"data":"{}","checksum":208}"'
# As kubelet 1.34.4 wrote it on the lab's two-node guest.
MEMORY = json.dumps(
    {
        "policyName": "Static",
        "machineState": {
            number: {
                "numberOfAssignments": 0,
                "memoryMap": {
                    "hugepages-2Mi": {
                        "total": 0,
                        "systemReserved": 0,
                        "allocatable": 0,
                        "reserved": 0,
                        "free": 0,
                    },
                    "memory": {
                        "total": total,
                        "systemReserved": 262144000,
                        "allocatable": total - 262144000,
                        "reserved": 0,
                        "free": total - 262144000,
                    },
                },
                "cells": [int(number)],
            }
            for number, total in (("0", 2044133376), ("1", 2010947584))
        },
        "checksum": 4055201377,
    }
)


def machine(first: int = 2044133376, second: int = 2010947584, pages: int = 0) -> Topology:
    return Topology(
        nodes=(
            NumaNode(
                id=0, memory=first, cpus=frozenset({0, 1}), hugepages={2 * 2**20: pages} if pages else {}
            ),
            NumaNode(id=1, memory=second, cpus=frozenset({2, 3})),
        ),
        online=FOUR,
        present=FOUR,
    )


RESERVED = Reservation(cpus=frozenset({0}), memory={0: 262144000, 1: 262144000})


# ---------------------------------------------------------------------------------------- reading
def test_o_01_the_state_of_the_packages_first_start_is_read() -> None:
    assert parse_cpu_state(O_01) == CpuState(policy="none")


def test_both_formats_of_entries_are_read() -> None:
    assert parse_cpu_state(O_02) == CpuState(
        policy="static", default=frozenset(range(64)), entries={"3c1e-pod": frozenset({8, 9, 10, 11})}
    )
    old = '{"policyName":"static","defaultCpuSet":"0-1","entries":{"abc":"2-3"}}'
    assert parse_cpu_state(old) == CpuState(
        policy="static", default=frozenset({0, 1}), entries={"abc": frozenset({2, 3})}
    )


def test_memory_state_is_read_in_bytes() -> None:
    state = parse_memory_state(MEMORY)
    assert isinstance(state, MemoryState)
    assert state.nodes[1] == SavedNode(total=2010947584, reserved=262144000)


@pytest.mark.parametrize(
    "text",
    ["", "\n", "{", "[]", "{}", O_04, '{"policyName":3}', '{"policyName":"static","defaultCpuSet":"x"}'],
)
def test_o_04_a_damaged_state_file_is_a_value_and_no_exception(text: str) -> None:
    assert isinstance(parse_cpu_state(text), Damaged)


@pytest.mark.parametrize("text", ["", "{", "{}", '{"policyName":"Static","machineState":{"0":{}}}'])
def test_o_04_damaged_memory_state_too(text: str) -> None:
    assert isinstance(parse_memory_state(text), Damaged)


@given(st.text(max_size=80))
def test_no_text_raises(text: str) -> None:
    assert isinstance(parse_cpu_state(text), CpuState | Damaged)
    assert isinstance(parse_memory_state(text), MemoryState | Damaged)


def test_o_04_any_checkpoint_that_is_no_json_is_damaged() -> None:
    found = damage(O_04)
    assert found is not None
    assert "Unterminated string" in found.reason or "Extra data" in found.reason
    assert damage("") == Damaged("empty file")
    assert damage('{"data":"{}","checksum":208}') is None


# ---------------------------------------------------------------------------------------- CPU state
@pytest.mark.parametrize(
    ("state", "policy", "reserved", "reason"),
    [
        (None, STATIC, {0}, None),
        (CpuState(policy="static", default=FOUR), STATIC, {0}, None),
        (CpuState(policy="static", default=FOUR), STATIC, {0, 2}, None),
        (CpuState(policy="static"), STATIC, {0}, None),
        (CpuState(policy="none"), NumaPolicy(), set(), None),
        (CpuState(policy="none"), STATIC, {0}, "none -> static"),
        (CpuState(policy="static", default=FOUR), NumaPolicy(), set(), "static -> none"),
        (Damaged("empty file"), STATIC, {0}, "damaged: empty file"),
        (CpuState(policy="static", default=frozenset({0, 1, 2})), STATIC, {0}, "online CPUs are 0-3"),
        (CpuState(policy="static", default=frozenset(range(6))), STATIC, {0}, "the state knows 0-5"),
        (
            CpuState(policy="static", default=frozenset({0, 3}), entries={"pod": frozenset({1, 2})}),
            STATIC,
            {0, 1},
            "CPUs 1 are not in the shared pool; pods with exclusive CPUs today: pod; on reserved CPUs: pod",
        ),
        (
            CpuState(policy="static", default=FOUR),
            STRICT,
            {0},
            "strictly reserved CPUs 0 are in the shared pool",
        ),
        (CpuState(policy="static", default=frozenset({1, 2, 3})), STRICT, {0}, None),
        (CpuState(policy="static", default=frozenset({1, 2, 3})), STATIC, {0}, "reserved CPUs 0 are not in"),
    ],
)
def test_cpu_state_is_kept_unless_kubelet_would_refuse_it(
    state: CpuState | Damaged | None, policy: NumaPolicy, reserved: set[int], reason: str | None
) -> None:
    conflict = cpu_conflict(state, policy, frozenset(reserved), FOUR)
    if reason is None:
        assert conflict is None
    else:
        assert conflict is not None
        assert reason in conflict.reason


def test_an_option_that_changed_is_no_reason_by_itself() -> None:
    """R8, and the lab: kubelet keeps the state; O-02 asks for a reset here, which would harm pinned pods."""
    state = CpuState(policy="static", default=frozenset({0, 1}), entries={"pod": frozenset({2, 3})})
    policy = NumaPolicy(cpu="static", cpu_options={"full-pcpus-only": "true"})
    assert cpu_conflict(state, policy, frozenset({0}), FOUR) is None


# ---------------------------------------------------------------------------------------- memory state
def state() -> MemoryState | Damaged:
    return parse_memory_state(MEMORY)


def test_an_unchanged_machine_keeps_its_memory_state() -> None:
    assert memory_conflict(state(), STATIC, RESERVED, machine()) is None


def test_o_03_moved_totals_are_drift() -> None:
    saved = MemoryState(policy="Static", nodes={2: SavedNode(total=135233794048, reserved=4429185024)})
    now = Topology(
        nodes=(NumaNode(id=2, memory=135277490176, cpus=frozenset({0})),),
        online=frozenset({0}),
        present=frozenset({0}),
    )
    conflict = memory_conflict(saved, STATIC, Reservation(memory={2: 4429185024}), now)
    assert conflict is not None
    assert conflict.drift
    assert "memory state drift after reboot" in conflict.reason
    assert "135233794048 -> 135277490176" in conflict.reason


def test_a_changed_reservation_is_told_from_drift() -> None:
    conflict = memory_conflict(state(), STATIC, Reservation(memory={0: 1, 1: 262144000}), machine())
    assert conflict is not None
    assert not conflict.drift
    assert "reservation changed (node 0: 262144000 -> 1 bytes)" in conflict.reason


def test_hugepages_are_part_of_the_saved_machine() -> None:
    assert memory_conflict(state(), STATIC, RESERVED, machine(pages=8)) is not None


def test_a_node_that_vanished_is_a_reason() -> None:
    one = Topology(nodes=machine().nodes[:1], online=FOUR, present=FOUR)
    conflict = memory_conflict(state(), STATIC, RESERVED, one)
    assert conflict is not None
    assert "NUMA nodes were 0-1, are 0" in conflict.reason


@pytest.mark.parametrize(
    ("policy", "found", "reason"),
    [
        (STATIC, MemoryState(policy="None"), "None -> Static"),
        (NumaPolicy(), MemoryState(policy="Static"), "Static -> None"),
        (STATIC, Damaged("empty file"), "damaged"),
    ],
)
def test_a_policy_change_and_damage_are_reasons(
    policy: NumaPolicy, found: MemoryState | Damaged, reason: str
) -> None:
    conflict = memory_conflict(found, policy, RESERVED, machine())
    assert conflict is not None
    assert reason in conflict.reason


def test_under_policy_none_totals_do_not_matter() -> None:
    assert memory_conflict(MemoryState(policy="None"), NumaPolicy(), Reservation(), machine()) is None
