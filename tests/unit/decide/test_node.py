from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpurack.decide.node import OWNER, NodeInApi, Taint, converge, parse

GPU = Taint("nvidia.com/gpu", "NoSchedule", "present")
THEIRS = Taint("node.kubernetes.io/disk-pressure", "NoSchedule")


def merged(document: Any, patch: Any) -> Any:
    """JSON merge patch, RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    result = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def item(
    labels: dict[str, str] | None = None, taints: tuple[Taint, ...] = (), owns: str | None = None
) -> dict:
    return {
        "metadata": {
            "name": "gpu-1",
            "labels": labels or {},
            "annotations": {OWNER: owns} if owns else {},
            "resourceVersion": "7",
        },
        "spec": {"taints": [{"key": t.key, "effect": t.effect, "value": t.value} for t in taints]},
        "status": {},
    }


def converged(document: dict, labels: dict[str, str], taints: tuple[Taint, ...]) -> NodeInApi:
    patch = converge(labels=labels, taints=taints, found=parse(document))
    return parse(merged(copy.deepcopy(document), patch.body or {}))


keys = st.sampled_from(["a", "b", "example.com/c", "kubernetes.io/d"])
labels_ = st.dictionaries(keys, st.sampled_from(["", "1", "2"]))
taints_ = st.lists(
    st.builds(Taint, keys, st.sampled_from(["NoSchedule", "NoExecute"]), st.sampled_from(["", "x"])),
    unique_by=lambda taint: taint.id,
).map(tuple)


@given(there=labels_, stained=taints_, first=labels_, second=labels_, one=taints_, two=taints_)
def test_whatever_was_there_ours_is_exact_theirs_is_kept_and_a_second_run_changes_nothing(
    there: dict[str, str],
    stained: tuple[Taint, ...],
    first: dict[str, str],
    second: dict[str, str],
    one: tuple[Taint, ...],
    two: tuple[Taint, ...],
) -> None:
    document = item(there, stained)
    for labels, taints in ((first, one), (second, two)):
        patch = converge(labels=labels, taints=taints, found=parse(document))
        document = merged(document, patch.body or {})
        after = parse(document)
        assert labels.items() <= after.labels.items()
        assert set(taints) <= set(after.taints)
        assert not converge(labels=labels, taints=taints, found=after)
    touched = first.keys() | second.keys()
    assert {k: v for k, v in after.labels.items() if k not in touched} == {
        k: v for k, v in there.items() if k not in touched
    }
    ours = {taint.id for taint in (*one, *two)}
    assert {t for t in after.taints if t.id not in ours} == {t for t in stained if t.id not in ours}


def test_a_key_that_left_the_site_document_goes_away_and_a_foreign_one_stays() -> None:
    document = item({"theirs": "1"}, (THEIRS,))
    with_ours = converge(labels={"ours": "1"}, taints=(GPU,), found=parse(document))
    document = merged(document, with_ours.body)
    after = converged(document, {}, ())
    assert after.labels == {"theirs": "1"}
    assert after.taints == (THEIRS,)
    assert after.owned is None


def test_a_change_of_taints_is_guarded_by_the_version_that_was_read() -> None:
    patch = converge(labels={}, taints=(GPU,), found=parse(item()))
    assert patch.body is not None
    assert patch.body["metadata"]["resourceVersion"] == "7"
    assert (
        "resourceVersion"
        not in (converge(labels={"a": "1"}, taints=(), found=parse(item())).body or {})["metadata"]
    )


def test_a_damaged_annotation_removes_nothing_and_is_written_anew() -> None:
    document = item({"a": "1"}, (THEIRS,), owns="{")
    after = converged(document, {"b": "1"}, ())
    assert after.labels == {"a": "1", "b": "1"}
    assert after.taints == (THEIRS,)
    assert not converge(labels={"b": "1"}, taints=(), found=after)


def test_o_37_labels_that_kubelet_may_not_set_go_through_the_api_with_all_others() -> None:
    labels = {
        "node-role.kubernetes.io/gpu": "",
        "app.kubernetes.io/component": "trainer",
        "nvidia.com/gpu.present": "true",
    }
    assert converged(item(), labels, ()).labels == labels


def test_a_node_is_read_as_the_api_writes_it() -> None:
    document = item({"a": "1"})
    document["status"] = {
        "conditions": [{"type": "Ready", "status": "False", "message": "cni plugin not initialized"}],
        "nodeInfo": {"machineID": "m", "systemUUID": "u", "kubeletVersion": "v1.34.4"},
        "addresses": [
            {"type": "Hostname", "address": "gpu-1"},
            {"type": "InternalIP", "address": "192.0.2.1"},
        ],
    }
    document["spec"] = {"podCIDRs": ["10.244.1.0/24"], "unschedulable": True}
    found = parse(document)
    assert not found.ready
    assert found.message == "cni plugin not initialized"
    assert (found.machine_id, found.system_uuid, found.kubelet_version) == ("m", "u", "v1.34.4")
    assert found.addresses == ("192.0.2.1",)
    assert found.pod_cidrs == ("10.244.1.0/24",)
    assert found.unschedulable
