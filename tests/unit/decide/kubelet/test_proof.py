"""Proof that kubelet runs what was wanted, and the cause when it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpurack.decide.kubelet.align import Host, expected
from gpurack.decide.kubelet.checkpoints import CpuState, Damaged, MemoryState
from gpurack.decide.kubelet.proof import configz_differences, diagnose, judge, watch
from gpurack.decide.kubelet.snapshot import Service, Snapshot
from tests.unit.decide.kubelet.support import TWO_NODES, joined, wanted


def down(*journal: str, restarts: int = 5) -> Snapshot:
    service = Service(loaded=True, enabled=True, active="activating", sub="auto-restart", restarts=restarts)
    return replace(joined(), service=service, healthy=False, journal=journal)


def test_a_kubelet_that_lived_through_the_watch_needs_no_wait() -> None:
    assert not watch(joined()).steps
    assert judge(wanted(), joined()) == ()


def test_a_young_kubelet_is_watched_in_one_step() -> None:
    young = replace(joined(), service=replace(joined().service, started=490.0))
    (step,) = watch(young).steps
    assert "stays up" in step.reason  # type: ignore[union-attr]
    assert judge(wanted(), young)[0].code == "E-KUBELET-29"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (
            (
                "start memory manager error: [memorymanager] the expected machine state is different "
                "from the real one"
            ),
            "E-KUBELET-20",
        ),
        (
            (
                'could not restore state from checkpoint: configured policy "static" differs from state '
                'checkpoint policy "none", please drain this node and delete the CPU manager checkpoint file '
                '"/var/lib/kubelet/cpu_manager_state" before restarting Kubelet'
            ),
            "E-KUBELET-21",
        ),
        (
            '[memorymanager] configured policy "Static" differs from state checkpoint policy "None"',
            "E-KUBELET-21",
        ),
        ("checkpoint is corrupted", "E-KUBELET-22"),
        ('current set of available CPUs "0-3" doesn\'t match with CPUs in state "0-7"', "E-KUBELET-23"),
        (
            (
                'the total amount "4Gi" of type "memory" is not equal to the value "100Mi" determined by '
                "Node Allocatable feature"
            ),
            "E-KUBELET-24",
        ),
        (
            "[cpumanager] unable to determine reserved CPU resources for static policy",
            "E-KUBELET-25",
        ),
        ('failed to walk through kubelet dropin directory "/etc/kubernetes/kubelet.conf.d"', "E-KUBELET-26"),
        (
            'failed to walk through kubelet dropin directory "d": failed to load kubelet dropin file',
            "E-KUBELET-27",
        ),
        ("unknown flag: --pod-infra-container-image", "E-KUBELET-28"),
        ("something else", "E-KUBELET-29"),
    ],
)
def test_the_journal_names_the_cause(line: str, code: str) -> None:
    problem = diagnose(down("command failed", f"E1130 {line}"))
    assert problem.code == code
    assert "5 restarts" in str(problem.found)


def test_o_03_the_cause_is_drift_and_not_a_wrong_configuration() -> None:
    line = "[memorymanager] the expected machine state is different from the real one"
    assert diagnose(down(line)).what == "memory state drift after reboot"


def test_o_04_a_damaged_checkpoint_is_named_when_the_journal_says_nothing() -> None:
    found = replace(down(), others={"pod_status_manager_state": Damaged("Extra data")})
    assert "pod_status_manager_state" in diagnose(found).what


def test_a_policy_in_the_state_file_that_is_not_the_wanted_one_is_no_proof() -> None:
    found = replace(joined(), cpu=CpuState(policy="none"), memory=MemoryState(policy="None"))
    assert [problem.code for problem in judge(wanted(), found)] == ["E-KUBELET-31", "E-KUBELET-31"]


def test_a_process_without_our_directory_is_no_proof() -> None:
    assert [one.code for one in judge(wanted(), replace(joined(), command=("kubelet",)))] == ["E-KUBELET-30"]


@pytest.mark.parametrize(
    "change",
    [
        {"healthy": False},
        {"uptime": 120.0},
        {"service": Service(loaded=True, active="active", sub="running", started=100.0, fatal=True)},
    ],
)
def test_health_age_and_fatal_lines_all_count(change: dict[str, object]) -> None:
    assert not replace(joined(), **change).stable


# ---------------------------------------------------------------------------------------- configz
def configz() -> dict[str, object]:
    """As the API answers for the guide's policies: more keys, maps without what is empty."""
    return {
        "kubeletconfig": {
            "enableServer": True,
            "maxPods": 110,
            "cpuManagerPolicy": "static",
            "memoryManagerPolicy": "Static",
            "topologyManagerPolicy": "single-numa-node",
            "topologyManagerScope": "pod",
            "reservedSystemCPUs": "0",
            "kubeReserved": {"memory": "200Mi"},
            "systemReserved": {"memory": "200Mi"},
            "evictionHard": {
                "imagefs.available": "15%",
                "imagefs.inodesFree": "5%",
                "memory.available": "100Mi",
                "nodefs.available": "10%",
                "nodefs.inodesFree": "5%",
            },
            "reservedMemory": [
                {"numaNode": 1, "limits": {"memory": "250Mi"}},
                {"numaNode": 0, "limits": {"memory": "262144000"}},
            ],
        }
    }


def ours() -> dict[str, object]:
    return expected(wanted(), Host(kubelet=joined(), topology=TWO_NODES))


def test_the_same_configuration_in_another_spelling_is_no_difference() -> None:
    assert configz_differences(ours(), configz()) == ()


def test_differences_are_named_by_key() -> None:
    found = configz()
    inner = found["kubeletconfig"]
    assert isinstance(inner, dict)
    inner["cpuManagerPolicy"] = "none"
    inner["evictionHard"]["memory.available"] = "200Mi"
    inner["cpuManagerPolicyOptions"] = {"full-pcpus-only": "true"}
    del inner["reservedMemory"]
    lines = configz_differences(ours(), found)
    assert [line.partition(":")[0] for line in lines] == [
        "cpuManagerPolicy",
        "cpuManagerPolicyOptions",
        "evictionHard.memory.available",
        "reservedMemory",
    ]


def test_an_empty_answer_differs_in_everything_that_has_a_value() -> None:
    assert len(configz_differences(ours(), {})) == 9
