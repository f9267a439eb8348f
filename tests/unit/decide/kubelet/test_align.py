"""What it takes to run a pool's resource managers on a host."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from gpurack.decide.decision import Await, Decision, Disruption, Reload, Remove, Run, Unit, Write
from gpurack.decide.kubelet import boot
from gpurack.decide.kubelet.align import Host, align, expected
from gpurack.decide.kubelet.checkpoints import CpuState, Damaged, MemoryState, SavedNode
from gpurack.decide.kubelet.snapshot import (
    CONFIG,
    CPU_STATE,
    DROP_IN,
    DROP_IN_DIR,
    EXTRA_ARGS,
    MEMORY_STATE,
    Service,
    Snapshot,
)
from gpurack.decide.numa import NumaNode, Topology
from gpurack.decide.pci import Function
from gpurack.site.models import NumaPolicy, Reserved
from tests.unit.decide.kubelet.support import (
    ADDRESS,
    BOOT,
    GUIDE,
    GUIDE_POLICY,
    KUBEADM_CONFIG,
    MIB,
    OURS,
    TWO_NODES,
    bare,
    joined,
    laid,
    wanted,
    with_file,
)

NONE = NumaPolicy()


def decide(
    found: Snapshot,
    policy: NumaPolicy = GUIDE_POLICY,
    topology: Topology = TWO_NODES,
    gpus: tuple[Function, ...] = (),
) -> Decision:
    return align(wanted(policy), Host(kubelet=found, topology=topology, gpus=gpus))


def written(decision: Decision) -> dict[str, str]:
    return {step.path: step.content for step in decision.steps if isinstance(step, Write)}


def removed(decision: Decision) -> list[str]:
    return [step.path for step in decision.steps if isinstance(step, Remove)]


def verbs(decision: Decision) -> list[str]:
    return [step.verb for step in decision.steps if isinstance(step, Unit)]


# ---------------------------------------------------------------------------------------- a new host
def test_a_new_host_gets_files_only_and_its_kubelet_is_left_to_the_join() -> None:
    decision = decide(bare())
    assert set(written(decision)) == set(OURS)
    assert not verbs(decision)
    assert not removed(decision)
    assert decision.disruption is Disruption.UNIT_RELOAD


def test_the_directory_is_there_before_anything_names_it() -> None:
    steps = decide(bare()).steps
    assert isinstance(steps[0], Run)
    assert DROP_IN_DIR in steps[0].script
    paths = [step.path for step in steps if isinstance(step, Write)]
    assert paths.index(DROP_IN) < paths.index(EXTRA_ARGS)
    assert isinstance(steps[-1], Reload)


def test_the_drop_in_says_everything_and_adds_up_to_the_byte() -> None:
    values = yaml.safe_load(written(decide(bare()))[DROP_IN])
    assert values["apiVersion"] == "kubelet.config.k8s.io/v1beta1"
    assert values["kind"] == "KubeletConfiguration"
    assert values["reservedSystemCPUs"] == "0"
    assert values["reservedMemory"] == [
        {"numaNode": 0, "limits": {"memory": "250Mi"}},
        {"numaNode": 1, "limits": {"memory": "250Mi"}},
    ]
    assert values["kubeReserved"] == {"memory": "200Mi"}
    assert values["systemReserved"] == {"memory": "200Mi"}
    assert values["evictionHard"]["memory.available"] == "100Mi"


def test_o_06_all_five_signals_are_written_whenever_one_is() -> None:
    for policy in (NONE, GUIDE_POLICY):
        values = yaml.safe_load(written(decide(bare(), policy))[DROP_IN])
        assert set(values["evictionHard"]) == {
            "memory.available",
            "nodefs.available",
            "nodefs.inodesFree",
            "imagefs.available",
            "imagefs.inodesFree",
        }


def test_o_06_other_reserved_resources_of_the_cluster_are_kept() -> None:
    base = KUBEADM_CONFIG + "zz: 1\n"
    base = base.replace(
        "logging:", "kubeReserved:\n  cpu: 500m\n  ephemeral-storage: 1Gi\n  memory: 9Gi\nlogging:"
    )
    found = with_file(joined(), CONFIG, base)
    values = expected(wanted(), Host(kubelet=found, topology=TWO_NODES))
    assert values["kubeReserved"] == {"cpu": "500m", "ephemeral-storage": "1Gi", "memory": "200Mi"}


def test_a_second_run_on_a_new_host_does_nothing() -> None:
    decision = decide(laid(bare()))
    assert not decision.steps
    assert not decision.refused


def test_a_second_run_on_a_joined_host_does_nothing() -> None:
    for policy in (NONE, GUIDE_POLICY):
        decision = decide(joined(policy), policy)
        assert not decision.steps, decision.reason


def test_before_the_package_is_there_files_are_laid_and_nothing_is_refused() -> None:
    found = Snapshot(addresses=frozenset({ADDRESS}), boot_id=BOOT)
    assert set(written(decide(found))) == set(OURS)


def test_a_fragment_left_by_the_guide_before_the_join_is_removed() -> None:
    decision = decide(with_file(bare(), CONFIG, GUIDE + GUIDE))
    assert removed(decision) == [CONFIG]
    assert "fragment without kind" in decision.reason


def test_state_that_an_earlier_life_left_is_removed_before_the_join() -> None:
    found = replace(bare(), cpu=CpuState(policy="none"), memory=MemoryState(policy="None"))
    decision = decide(found)
    assert removed(decision) == [CPU_STATE, MEMORY_STATE]
    assert verbs(decision) == ["stop"]


def test_kubelet_that_is_disabled_is_enabled() -> None:
    found = laid(bare())
    decision = decide(replace(found, service=replace(found.service, enabled=False)))
    assert verbs(decision) == ["enable"]


# ---------------------------------------------------------------------------------------- a joined host
def test_o_01_a_policy_change_resets_the_state_in_one_transaction() -> None:
    found = replace(joined(NONE), cpu=CpuState(policy="none"), memory=MemoryState(policy="None", nodes={}))
    decision = decide(found)
    assert "cpu_manager_state reset needed: none -> static" in decision.reason
    kinds = [type(step).__name__ for step in decision.steps]
    assert kinds[0] == "Unit"
    assert kinds[-3:] == ["Run", "Unit", "Await"]
    assert verbs(decision) == ["stop", "start"]
    assert removed(decision) == [CPU_STATE, MEMORY_STATE]
    assert decision.disruption is Disruption.DRAIN


def test_o_01_the_way_back_is_the_same_case() -> None:
    decision = decide(joined(), NONE)
    assert "cpu_manager_state reset needed: static -> none" in decision.reason
    assert removed(decision) == [CPU_STATE, MEMORY_STATE]
    assert decision.disruption is Disruption.DRAIN


def test_o_02_strict_reservation_over_an_old_state_resets_it_and_names_the_pod() -> None:
    online = frozenset(range(64))
    machine = Topology(nodes=(NumaNode(id=0, memory=2**38, cpus=online),), online=online, present=online)
    before = NumaPolicy(cpu="static", reserved=Reserved(cpus="0-1"))
    after = NumaPolicy(
        cpu="static",
        cpu_options={"strict-cpu-reservation": "true"},
        reserved=Reserved(cpus="0-3,32-35"),
    )
    found = laid(
        replace(joined(NONE), files=bare().files | {CONFIG: joined().files[CONFIG]}), before, machine
    )
    state = CpuState(
        policy="static",
        default=online - frozenset(range(8, 12)),
        entries={"3c1e-pod": frozenset(range(8, 12))},
    )
    decision = decide(replace(found, cpu=state), after, machine)
    assert removed(decision) == [CPU_STATE]
    assert "3c1e-pod" in decision.reason
    assert decision.disruption is Disruption.DRAIN


def test_state_is_kept_when_a_reserved_set_grows_inside_the_shared_pool() -> None:
    grown = GUIDE_POLICY.model_copy(
        update={"reserved": GUIDE_POLICY.reserved.model_copy(update={"cpus": "0,2"})}
    )
    decision = decide(joined(), grown)
    assert not removed(decision)
    assert verbs(decision) == ["stop", "start"]
    assert decision.disruption is Disruption.DRAIN


def test_o_03_drift_stops_no_running_kubelet_and_is_told() -> None:
    found = replace(joined(), memory=MemoryState(policy="Static", nodes=drifted()))
    decision = decide(found)
    assert not decision.steps
    assert any("memory state drift" in note for note in decision.notes)


def test_o_03_drift_under_a_crash_loop_is_repaired() -> None:
    found = replace(
        joined(),
        memory=MemoryState(policy="Static", nodes=drifted()),
        service=Service(loaded=True, enabled=True, active="activating", sub="auto-restart", restarts=4),
        healthy=False,
    )
    decision = decide(found)
    assert removed(decision) == [MEMORY_STATE]
    assert "memory state drift after reboot" in decision.reason
    assert verbs(decision) == ["stop", "start"]


def drifted() -> dict[int, SavedNode]:
    return {
        node.id: SavedNode(total=node.memory + 43696 * 1024, reserved=250 * MIB) for node in TWO_NODES.nodes
    }


def test_o_04_any_damaged_checkpoint_goes_with_a_kubelet_that_is_down() -> None:
    found = replace(
        joined(),
        others={"pod_status_manager_state": Damaged("Extra data"), "dra_manager_state": None},
        service=Service(loaded=True, enabled=True, active="failed", sub="failed"),
        healthy=False,
    )
    assert removed(decide(found)) == ["/var/lib/kubelet/pod_status_manager_state"]


def test_o_04_under_a_running_kubelet_a_damaged_checkpoint_is_named_and_left() -> None:
    found = replace(joined(), others={"pod_status_manager_state": Damaged("Extra data")})
    decision = decide(found)
    assert not decision.steps
    assert any("pod_status_manager_state" in note for note in decision.notes)


def test_dra_state_is_never_removed() -> None:
    found = replace(
        joined(),
        others={"dra_manager_state": Damaged("empty file")},
        service=Service(loaded=True, enabled=True, active="failed", sub="failed"),
        healthy=False,
    )
    decision = decide(found)
    assert not removed(decision)
    assert any("dra_manager_state" in note for note in decision.notes)


def test_the_guide_by_hand_is_recognised_and_repaired() -> None:
    """Joined by hand, five keys appended twice, state removed, kubelet in a crash loop."""
    found = replace(
        bare(),
        joined=True,
        files={
            **bare().files,
            CONFIG: with_file(bare(), CONFIG, KUBEADM_CONFIG + GUIDE + GUIDE).files[CONFIG],
        },
        journal=("[cpumanager] unable to determine reserved CPU resources for static policy",),
    )
    decision = decide(found)
    assert written(decision)[CONFIG] == KUBEADM_CONFIG
    assert "keys appended by hand (cpuManagerPolicy" in decision.reason
    assert verbs(decision) == ["stop", "start"]
    assert isinstance(decision.steps[-1], Await)
    assert decision.disruption is Disruption.DRAIN


def test_only_the_files_of_the_guard_are_a_unit_reload() -> None:
    found = joined()
    files = {path: file for path, file in found.files.items() if path not in (boot.GUARD, boot.UNIT)}
    decision = decide(replace(found, files=files))
    assert decision.disruption is Disruption.UNIT_RELOAD
    assert not verbs(decision)
    assert isinstance(decision.steps[-1], Reload)


def test_a_change_that_moves_no_pod_is_a_restart_of_kubelet() -> None:
    found = with_file(joined(), EXTRA_ARGS, "KUBELET_EXTRA_ARGS=--v=2\n")
    decision = decide(replace(found, command=("/usr/bin/kubelet", "--v=2")), GUIDE_POLICY)
    assert "--v=2" in written(decision)[EXTRA_ARGS]
    assert decision.disruption is Disruption.DRAIN  # without the directory the policies were not in force
    with_dir = with_file(joined(), EXTRA_ARGS, f"KUBELET_EXTRA_ARGS=--config-dir={DROP_IN_DIR}\n")
    assert decide(with_dir).disruption is Disruption.KUBELET_RESTART


def test_a_run_that_died_between_stop_and_start_is_finished_by_the_next() -> None:
    found = replace(
        joined(), service=Service(loaded=True, enabled=True, active="inactive", sub="dead"), healthy=False
    )
    assert verbs(decide(found)) == ["stop", "start"]


def test_a_file_that_kubelet_has_not_read_is_a_restart_owed() -> None:
    found = joined()
    found = with_file(found, DROP_IN, found.files[DROP_IN].text, mtime=990_000 + 9_990)
    decision = decide(found)
    assert "has not read" in decision.reason
    assert decision.disruption is Disruption.KUBELET_RESTART


def test_a_time_in_the_future_is_a_set_clock_and_no_reason() -> None:
    found = joined()
    assert not decide(with_file(found, DROP_IN, found.files[DROP_IN].text, mtime=2_000_000)).steps


def test_a_replaced_binary_is_a_restart_owed() -> None:
    found = joined()
    decision = decide(replace(found, service=replace(found.service, stale_binary=True)))
    assert decision.disruption is Disruption.KUBELET_RESTART


def test_options_left_in_the_cluster_configuration_are_taken_back() -> None:
    base = KUBEADM_CONFIG.replace(
        "cpuManagerReconcilePeriod",
        'cpuManagerPolicyOptions:\n  full-pcpus-only: "true"\ncpuManagerReconcilePeriod',
    )
    policy = GUIDE_POLICY.model_copy(update={"cpu_options": {"strict-cpu-reservation": "true"}})
    decision = decide(with_file(joined(), CONFIG, base), policy)
    values = yaml.safe_load(written(decision)[DROP_IN])
    assert values["cpuManagerPolicyOptions"] == {"strict-cpu-reservation": "true", "full-pcpus-only": None}


# ---------------------------------------------------------------------------------------- refusals
def codes(decision: Decision) -> list[str]:
    assert not decision.steps
    return [problem.code for problem in decision.refused]


def test_everything_that_is_wrong_is_refused_at_once_and_nothing_is_written() -> None:
    policy = GUIDE_POLICY.model_copy(
        update={
            "cpu_options": {"no-such-option": "true"},
            "reserved": Reserved(cpus="0-3", system_memory=8 * 2**30),
        }
    )
    found = replace(bare(), addresses=frozenset({"192.0.2.99"}))
    assert codes(decide(found, policy)) == [
        "E-NUMA-03",
        "E-NUMA-04",
        "E-NUMA-04",
        "E-NUMA-10",
        "E-KUBELET-09",
    ]


def test_o_08_more_than_eight_numa_nodes_need_the_option() -> None:
    machine = Topology(
        nodes=tuple(
            NumaNode(id=number, memory=2**36, cpus=frozenset({number}) if number < 2 else frozenset())
            for number in range(34)
        ),
        online=frozenset({0, 1}),
        present=frozenset({0, 1}),
    )
    policy = NumaPolicy(topology="best-effort")
    assert codes(decide(bare(), policy, machine)) == ["E-NUMA-05"]
    assert "34 NUMA nodes, 2 of them" in str(decide(bare(), policy, machine).refused[0].found)
    for limit, accepted in (("33", False), ("34", True)):
        option = policy.model_copy(update={"topology_options": {"max-allowable-numa-nodes": limit}})
        assert bool(decide(bare(), option, machine).steps) is accepted
    assert decide(bare(), NONE, machine).steps


def test_o_09_single_numa_node_is_refused_when_gpus_have_no_node_and_best_effort_is_told() -> None:
    lost = (
        Function(address="0000:3b:00.0", id="10de:2330", kind="0302"),
        Function(address="0000:d8:00.0", id="10de:2330", kind="0302", numa_node=1),
    )
    decision = decide(bare(), gpus=lost)
    assert codes(decision) == ["E-NUMA-06"]
    assert "0000:3b:00.0" in str(decision.refused[0].found)
    assert "0000:d8:00.0" not in str(decision.refused[0].found)
    soft = GUIDE_POLICY.model_copy(update={"topology": "best-effort"})
    assert any("O-09" in note for note in decide(bare(), soft, gpus=lost).notes)


def test_o_09_on_one_numa_node_an_unknown_place_is_no_reason() -> None:
    machine = Topology(
        nodes=(NumaNode(id=0, memory=2**33, cpus=frozenset(range(4))),),
        online=frozenset(range(4)),
        present=frozenset(range(4)),
    )
    lost = (Function(address="0000:3b:00.0", id="10de:2330", kind="0302"),)
    assert decide(bare(), topology=machine, gpus=lost).steps


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("90-site.conf", "cpuManagerPolicy: none\n", "E-KUBELET-03"),
        ("90-site.conf", "{}: [\n", "E-KUBELET-03"),
        ("10-early/a.conf", "", "E-KUBELET-03"),
    ],
)
def test_a_drop_in_of_others_that_would_stop_kubelet_is_refused_by_name(
    name: str, text: str, code: str
) -> None:
    decision = decide(with_file(bare(), f"{DROP_IN_DIR}/{name}", text))
    assert code in codes(decision)
    assert name in decision.refused[0].what


KIND = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


def test_a_key_given_twice_in_a_drop_in_is_refused() -> None:
    found = with_file(bare(), f"{DROP_IN_DIR}/90-site.conf", KIND + "maxPods: 5\nmaxPods: 6\n")
    assert codes(decide(found)) == ["E-KUBELET-03"]


def test_a_later_drop_in_that_sets_keys_of_ours_is_refused_with_their_names() -> None:
    text = KIND + "cpuManagerPolicy: none\nkubeReserved: {memory: 1Gi, cpu: 100m}\nmaxPods: 200\n"
    decision = decide(with_file(bare(), f"{DROP_IN_DIR}/90-site.conf", text))
    assert codes(decision) == ["E-KUBELET-04"]
    assert "cpuManagerPolicy, kubeReserved.memory" in decision.refused[0].what
    assert decide(with_file(bare(), f"{DROP_IN_DIR}/10-site.conf", text)).steps


def test_disk_thresholds_of_a_later_drop_in_hold_and_are_told() -> None:
    text = KIND + "evictionHard: {imagefs.available: 1%}\n"
    found = with_file(bare(), f"{DROP_IN_DIR}/90-site.conf", text)
    decision = decide(found)
    assert decision.steps
    assert any("imagefs.available" in note for note in decision.notes)
    values = expected(wanted(), Host(kubelet=found, topology=TWO_NODES))
    assert values["evictionHard"]["imagefs.available"] == "1%"
    assert values["evictionHard"]["memory.available"] == "100Mi"


def test_o_07_a_misspelt_key_in_a_drop_in_is_told_with_the_right_spelling() -> None:
    text = KIND + "ServerTLSBootstrap: true\nreservedSystemCPU: '0'\n"
    decision = decide(with_file(bare(), f"{DROP_IN_DIR}/10-site.conf", text))
    notes = "\n".join(decision.notes)
    assert "serverTLSBootstrap was probably meant" in notes
    assert "reservedSystemCPUs was probably meant" in notes


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ("--config-dir=/etc/other.d", "E-KUBELET-06"),
        ("--config-dir /etc/other.d", "E-KUBELET-06"),
        ("--cpu-manager-policy=none", "E-KUBELET-08"),
        ("--root-dir /srv/kubelet", "E-KUBELET-08"),
        ("--v='2", "E-KUBELET-05"),
    ],
)
def test_arguments_that_would_defeat_the_drop_in_are_refused(args: str, code: str) -> None:
    assert code in codes(decide(with_file(bare(), EXTRA_ARGS, f"KUBELET_EXTRA_ARGS={args}\n")))


def test_reserved_cpus_beside_a_reserved_cgroup_are_refused() -> None:
    found = with_file(bare(), f"{DROP_IN_DIR}/10-site.conf", KIND + "systemReservedCgroup: /system.slice\n")
    assert codes(decide(found)) == ["E-KUBELET-07"]
    assert decide(found, NONE).steps


def test_an_address_that_the_host_does_not_have_is_refused() -> None:
    assert codes(decide(replace(bare(), addresses=frozenset({"192.0.2.22"})))) == ["E-KUBELET-09"]
