"""Documents of kubelet: read as kubelet reads them, merged as kubelet merges them."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpurack.decide.kubelet.config import (
    Document,
    drop_in,
    effective,
    merge,
    overriding,
    parse_document,
    render,
    without_appended,
)
from gpurack.decide.kubelet.fields import FIELDS, nearest
from gpurack.decide.numa import Reservation
from gpurack.site.models import NumaPolicy, Reserved
from gpurack.site.quantity import parse_bytes
from tests.unit.decide.kubelet.support import GUIDE, KUBEADM_CONFIG, MIB

scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=8))
values = st.recursive(
    scalars,
    lambda below: st.one_of(
        st.lists(below, max_size=3), st.dictionaries(st.text(max_size=4), below, max_size=3)
    ),
    max_leaves=8,
)
documents = st.dictionaries(st.text(max_size=4), values, max_size=4)


# ---------------------------------------------------------------------------------------- reading
def test_duplicate_keys_are_named_and_the_last_wins() -> None:
    document = parse_document("maxPods: 1\nkubeReserved: {cpu: 1, cpu: 2}\nmaxPods: 3\n")
    assert document.values["maxPods"] == 3
    assert set(document.duplicates) == {"maxPods", "cpu"}


@pytest.mark.parametrize("text", ["", "- a\n", "a: [\n", "text", "\x00", "? [a]\n: b\n"])
def test_what_is_no_document_says_why(text: str) -> None:
    assert parse_document(text).broken


@given(st.text(max_size=60))
def test_any_text_gets_an_answer(text: str) -> None:
    document = parse_document(text)
    assert document.broken or isinstance(document.values, dict)


def test_o_07_unknown_keys_come_with_the_key_that_was_meant() -> None:
    document = parse_document("ServerTLSBootstrap: true\nsite.example/owner: x\n")
    assert document.unknown == {"ServerTLSBootstrap": "serverTLSBootstrap", "site.example/owner": None}


def test_every_key_that_we_write_is_a_key_of_kubelet() -> None:
    policy = NumaPolicy(cpu="static", memory="Static", reserved=Reserved(cpus="0"))
    ours = drop_in(policy, Reservation(cpus=frozenset({0}), memory={0: MIB}), {})
    assert set(ours) <= FIELDS
    assert nearest("failcgroupv1") == "failCgroupV1"


# ---------------------------------------------------------------------------------------- merging
def test_maps_merge_lists_are_replaced_and_null_removes() -> None:
    base = {"a": {"x": 1, "y": 2}, "l": [1, 2], "gone": 1}
    assert merge(base, {"a": {"y": 3}, "l": [3], "gone": None}) == {"a": {"x": 1, "y": 3}, "l": [3]}


@given(documents, documents)
def test_laying_the_same_drop_in_twice_is_laying_it_once(
    base: dict[str, object], patch: dict[str, object]
) -> None:
    once = merge(base, patch)
    assert merge(once, patch) == once


@given(documents)
def test_nothing_changes_under_an_empty_drop_in(base: dict[str, object]) -> None:
    assert merge(base, {}) == base


def test_defaults_lie_below_everything() -> None:
    assert effective(())["cpuManagerPolicy"] == "none"
    assert effective([Document(values={"cpuManagerPolicy": "static"})])["cpuManagerPolicy"] == "static"


@given(st.integers(0, 2**40), st.integers(0, 2**40), st.integers(1, 2**40), st.integers(1, 8))
def test_written_quantities_add_up_to_the_byte(kube: int, system: int, eviction: int, nodes: int) -> None:
    """R2 as kubelet computes it, from the text of the drop-in."""
    total = kube + system + eviction
    shares = dict.fromkeys(range(nodes), total // nodes)
    shares[0] += total - sum(shares.values())
    reserved = Reserved(kube_memory=kube, system_memory=system, eviction_memory=eviction)
    memory = {number: share for number, share in shares.items() if share}
    text = render(drop_in(NumaPolicy(memory="Static", reserved=reserved), Reservation(memory=memory), {}))
    written = yaml.safe_load(text)
    terms = (
        written["kubeReserved"]["memory"],
        written["systemReserved"]["memory"],
        written["evictionHard"]["memory.available"],
    )
    split = [parse_bytes(str(entry["limits"]["memory"])) for entry in written["reservedMemory"]]
    assert sum(split) == sum(parse_bytes(str(term)) for term in terms) == total
    assert all(isinstance(term, str) for term in terms)


def test_a_percentage_is_written_as_it_stands_under_memory_policy_none() -> None:
    policy = NumaPolicy(
        reserved=Reserved.model_construct(eviction_memory="5%", kube_memory=0, system_memory=0)
    )
    ours = drop_in(policy, Reservation(), {})
    assert ours["evictionHard"]["memory.available"] == "5%"
    assert "kubeReserved" not in ours


def test_only_values_that_differ_are_overriding() -> None:
    ours = {"kind": "x", "cpuManagerPolicy": "static", "kubeReserved": {"memory": "1Gi"}, "list": [1]}
    later = {
        "kind": "y",
        "cpuManagerPolicy": "static",
        "kubeReserved": {"memory": "2Gi", "cpu": "1"},
        "new": 1,
    }
    assert overriding(ours, later) == ("kubeReserved.memory",)


# ---------------------------------------------------------------------------------------- the guide
@pytest.mark.parametrize("times", [1, 2, 5])
def test_what_tee_appended_is_taken_off_and_nothing_else(times: int) -> None:
    assert without_appended(KUBEADM_CONFIG + GUIDE * times) == KUBEADM_CONFIG


def test_a_clean_file_is_left_alone() -> None:
    assert without_appended(KUBEADM_CONFIG) is None


def test_a_policy_of_the_cluster_in_its_alphabetical_place_is_left_alone() -> None:
    cluster = KUBEADM_CONFIG.replace(
        "cpuManagerReconcilePeriod", "cpuManagerPolicy: static\ncpuManagerReconcilePeriod"
    )
    assert without_appended(cluster) is None
    assert without_appended(cluster + GUIDE) == cluster


def test_other_keys_appended_by_hand_stay() -> None:
    assert without_appended(KUBEADM_CONFIG + "maxPods: 200\n" + GUIDE) == KUBEADM_CONFIG + "maxPods: 200\n"


def test_a_rest_that_is_no_clean_document_is_no_repair() -> None:
    with pytest.raises(ValueError, match="maxPods"):
        without_appended(KUBEADM_CONFIG + "maxPods: 1\nmaxPods: 2\n" + GUIDE)
