from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpurack.site.names import (
    is_group_name,
    label_key_fault,
    label_value_fault,
    node_name_fault,
    proposed_name,
)


@pytest.mark.parametrize("name", ["gpu-01", "0gpu", "gpu-01.rack-2.example.com", "a" * 63, "10.0.0.7"])
def test_good_node_names(name: str) -> None:
    assert node_name_fault(name) is None


@pytest.mark.parametrize(
    ("name", "proposal"),
    [
        ("gpu_node_02", "gpu-node-02"),
        ("gpu-node-03.", "gpu-node-03"),
        ("-gpu04", "gpu04"),
        ("gpu04-", "gpu04"),
        ("gpu 5", "gpu-5"),
        ("gpu..5", "gpu.5"),
        ("a" * 70, "a" * 63),
        ("localhost", None),
        ("___", None),
        ("", None),
    ],
)
def test_a_bad_node_name_comes_with_a_proposal(name: str, proposal: str | None) -> None:
    assert node_name_fault(name) is not None
    assert proposed_name(name) == proposal


@given(st.text(max_size=90))
def test_a_proposal_is_always_a_good_name(name: str) -> None:
    proposal = proposed_name(name)
    assert proposal is None or node_name_fault(proposal) is None


@pytest.mark.parametrize(
    ("key", "good"),
    [
        ("tier", True),
        ("example.com/tier", True),
        ("node-role.kubernetes.io/gpu", True),
        ("node-restriction.kubernetes.io/gpu", True),
        ("example.com/" + "a" * 63, True),
        ("example.com/" + "a" * 64, False),
        ("example.com/", False),
        ("/tier", False),
        ("a/b/c", False),
        ("-tier", False),
        ("tier-", False),
        ("ti er", False),
        ("Example.com/tier", False),
        ("a" * 254 + "/x", False),
    ],
)
def test_label_keys(key: str, good: bool) -> None:
    assert (label_key_fault(key) is None) is good


@pytest.mark.parametrize(
    ("value", "good"),
    [("", True), ("a" * 63, True), ("a" * 64, False), ("a_b.C-1", True), ("-a", False), ("a b", False)],
)
def test_label_values(value: str, good: bool) -> None:
    assert (label_value_fault(value) is None) is good


def test_o_77_a_product_name_that_is_too_long_or_has_brackets_is_no_label_value() -> None:
    assert (
        label_value_fault("NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-Workstation-Edition-MIG-1g.24gb") is not None
    )
    assert label_value_fault("NVIDIA-TITAN-X-(Pascal)") is not None


def test_group_names_are_dns_labels() -> None:
    assert is_group_name("h100-train")
    assert not is_group_name("h100_train")
    assert not is_group_name("h100.train")
