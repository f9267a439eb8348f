"""Policy options by Kubernetes minor: what kubelet would die of is refused."""

from __future__ import annotations

import pytest

from gpurack.decide.kubelet.options import judge
from gpurack.errors import Where
from gpurack.site.models import NumaPolicy
from tests.unit.decide.kubelet.support import TWO_NODES

HERE = Where("site.yaml", None, "pools.gpu.numa")


def whats(policy: NumaPolicy, kubernetes: str = "1.34.4", gates: dict[str, bool] | None = None) -> list[str]:
    return [problem.what for problem in judge(policy, kubernetes, gates or {}, TWO_NODES, HERE)]


def cpu(*names: str, topology: str = "none") -> NumaPolicy:
    return NumaPolicy.model_validate(
        {"cpu": "static", "topology": topology, "cpu_options": dict.fromkeys(names, "true")}
    )


@pytest.mark.parametrize(
    ("option", "kubernetes", "accepted"),
    [
        ("full-pcpus-only", "1.33.0", True),
        ("strict-cpu-reservation", "1.33.0", True),
        ("prefer-align-cpus-by-uncorecache", "1.33.0", False),
        ("prefer-align-cpus-by-uncorecache", "1.34.0", True),
        ("align-by-socket", "1.36.0", False),
        ("distribute-cpus-across-cores", "1.36.0", False),
        ("distribute-cpus-across-numa", "1.36.0", True),
        ("full-pcpus", "1.34.0", False),
    ],
)
def test_an_option_is_judged_by_the_pinned_minor(option: str, kubernetes: str, accepted: bool) -> None:
    assert (whats(cpu(option), kubernetes) == []) is accepted


def test_a_gate_that_somebody_opened_lets_alpha_options_through_and_a_closed_one_stops_beta() -> None:
    assert whats(cpu("align-by-socket"), gates={"CPUManagerPolicyAlphaOptions": True}) == []
    assert whats(cpu("strict-cpu-reservation"), gates={"CPUManagerPolicyBetaOptions": False})


@pytest.mark.parametrize(
    "names",
    [
        ("distribute-cpus-across-numa", "prefer-align-cpus-by-uncorecache"),
        ("distribute-cpus-across-cores", "full-pcpus-only"),
    ],
)
def test_options_that_exclude_each_other_are_refused(names: tuple[str, str]) -> None:
    gates = {"CPUManagerPolicyAlphaOptions": True}
    assert whats(cpu(*names), gates=gates) == ["options that exclude each other"]


def test_align_by_socket_does_not_go_with_single_numa_node() -> None:
    gates = {"CPUManagerPolicyAlphaOptions": True}
    assert whats(cpu("align-by-socket", topology="single-numa-node"), gates=gates)
    assert not whats(cpu("align-by-socket", topology="restricted"), gates=gates)


def test_options_under_policy_none_are_fatal_and_refused() -> None:
    assert whats(NumaPolicy(cpu_options={"full-pcpus-only": "true"})) == ["options under CPU policy none"]
    topology = NumaPolicy(topology_options={"prefer-closest-numa-nodes": "true"})
    assert whats(topology) == ["options under topology policy none"]


@pytest.mark.parametrize("limit", ["7", "many", "-1"])
def test_a_node_limit_below_eight_is_refused(limit: str) -> None:
    policy = NumaPolicy(topology="restricted", topology_options={"max-allowable-numa-nodes": limit})
    assert whats(policy) == ["max-allowable-numa-nodes is a number from 8 up"]


def test_an_option_value_is_true_or_false() -> None:
    policy = NumaPolicy(cpu="static", cpu_options={"full-pcpus-only": "yes"})
    assert whats(policy) == ["CPU option full-pcpus-only is true or false"]
