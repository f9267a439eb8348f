"""Field bugs that a site document can show, input kept as it was reported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gpurack.errors import BadInput, Problem
from gpurack.site import load
from gpurack.site.models import Site


def problems(path: Path) -> tuple[Problem, ...]:
    with pytest.raises(BadInput) as caught:
        load(path)
    return caught.value.problems


def test_o_05_static_memory_with_nothing_reserved_is_refused(document: Callable[..., Path]) -> None:
    found = problems(
        document(
            "system_memory: 8Gi", "system_memory: 0",
            "kube_memory: 4Gi", "kube_memory: 0",
            "eviction_memory: 100Mi", "eviction_memory: 0",
        )
    )  # fmt: skip
    assert [problem.code for problem in found] == ["E-SITE-41"]


def test_o_05_reserved_memory_is_not_asked_for(document: Callable[..., Path]) -> None:
    (problem,) = problems(document("      reserved:\n", "      reservedMemory: []\n      reserved:\n"))
    assert problem.next is not None
    assert "computed" in problem.next


def test_o_06_the_eviction_threshold_is_always_a_number_of_its_own(site: Callable[..., Site]) -> None:
    reserved = site("system_memory: 8Gi", "system_memory: 393Mi", "kube_memory: 4Gi", "kube_memory: 500Mi",
                    "        eviction_memory: 100Mi\n", "").pools["h100"].numa.reserved  # fmt: skip
    assert reserved.system_memory + reserved.kube_memory + reserved.eviction_bytes == 993 * 2**20


def test_o_07_wrong_capitals_are_refused_with_the_right_spelling(document: Callable[..., Path]) -> None:
    path = document(
        "cpu: static", "cpu: Static        # must be lower case",
        "memory: Static", "memory: static     # must be capitalised",
        "      topology: restricted\n", "      topology: restricted\n      ServerTLSBootstrap: true\n",
    )  # fmt: skip
    found = problems(path)
    assert [(problem.code, problem.next) for problem in found[:2]] == [
        ("E-SITE-07", "write static"),
        ("E-SITE-07", "write Static"),
    ]
    assert found[2].code == "E-SITE-04"
    assert found[2].wanted is not None
    assert "topology" in found[2].wanted


@pytest.mark.parametrize(
    "key", ["cpuManagerPolicy", "memoryManagerPolicy", "reservedSystemCPUs", "topologyManagerScope"]
)
def test_o_07_kubelets_own_names_lead_to_ours(document: Callable[..., Path], key: str) -> None:
    (problem,) = problems(
        document("      topology: restricted\n", f"      topology: restricted\n      {key}: x\n")
    )
    assert problem.next is not None
    assert problem.next.startswith("write numa.")


@pytest.mark.parametrize("name", ["gpu_node_02", "gpu-node-03.", "-gpu04", "10.0.0.7", "g" * 70, "localhost"])
def test_o_31_host_names_that_kubernetes_refuses_are_refused_here(
    document: Callable[..., Path], name: str
) -> None:
    (problem,) = problems(document("name: gpu-r07-09", f'name: "{name}"'))
    assert problem.code == "E-SITE-14"
    assert problem.next is not None


def test_o_31_upper_case_is_lower_cased_and_said(site: Callable[..., Site]) -> None:
    found = site("name: gpu-r07-09", "name: GPU-Node01")
    assert found.hosts[-1].name == "gpu-node01"
    assert found.notes == (
        "host GPU-Node01 becomes node gpu-node01: Kubernetes knows lower case only (O-31)",
    )


def test_o_31_an_address_as_a_name_needs_an_explicit_yes(site: Callable[..., Site]) -> None:
    found = site("name: gpu-r07-09", 'name: "10.0.0.7"', "[os-debian-12]", "[os-debian-12, address-as-name]")
    assert found.hosts[-1].name == "10.0.0.7"


def test_o_32_an_ipv6_endpoint_keeps_its_brackets_and_gets_them_once(document: Callable[..., Path]) -> None:
    good = document("endpoint: api.example.com:6443", 'endpoint: "[2001:db8::19e]:6443"')
    assert load(good).cluster.endpoint == "[2001:db8::19e]:6443"
    for bare in ("2001:db8::19e:6443", '"[2001:db8::19e:6443]"', '"2001:db8::19e"', '"[2001:db8::19e]"'):
        (problem,) = problems(document("endpoint: api.example.com:6443", f"endpoint: {bare}"))
        assert problem.next == 'write "[2001:db8::19e]:6443"'


def test_o_32_an_empty_element_in_an_address_list_is_refused(document: Callable[..., Path]) -> None:
    (problem,) = problems(document("address: 10.0.7.19", "address: 192.0.2.15,,2001:db8::1ea"))
    assert problem.code == "E-SITE-17"


def test_o_34_two_hosts_that_become_one_node_are_refused(document: Callable[..., Path]) -> None:
    (problem,) = problems(document("name: gpu-r07-09", "name: GPU-r07-08"))
    assert (problem.code, problem.rule) == ("E-SITE-13", "O-34")
    assert problem.found is not None
    assert "gpu-r07-08" in problem.found


def test_o_37_labels_that_kubelet_may_not_set_are_legal_here(site: Callable[..., Site]) -> None:
    """They are set through the API after the join, never by kubelet."""
    labels = site(
        "      example.com/tier: train\n",
        '      app.kubernetes.io/component: trainer\n      nvidia.com/gpu.present: "true"\n',
    ).pools["h100"].labels  # fmt: skip
    assert set(labels) == {
        "node-role.kubernetes.io/gpu",
        "app.kubernetes.io/component",
        "nvidia.com/gpu.present",
    }


@pytest.mark.parametrize(("text", "value"), [("620.10", "620.1"), ("1.20", "1.2"), ("1.34", "1.34")])
def test_o_56_a_version_read_as_a_number_is_refused_with_what_was_read(
    document: Callable[..., Path], text: str, value: str
) -> None:
    (problem,) = problems(document('kubernetes: "1.34.4"', f"kubernetes: {text}"))
    assert (problem.code, problem.found) == ("E-SITE-08", f"{text}, which is the number {value}")
    assert problem.next == f'write "{text}"'


def test_o_77_a_label_value_of_more_than_63_characters_is_refused(document: Callable[..., Path]) -> None:
    name = "NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-Workstation-Edition-MIG-1g.24gb"
    (problem,) = problems(document("example.com/tier: train", f"example.com/tier: {name}"))
    assert problem.code == "E-SITE-31"
    assert f"{len(name)} characters" in problem.what
