"""Answers of crictl 1.34.0, shortened to what is read."""

from __future__ import annotations

import json

from gpurack.decide.liveness import Signs
from gpurack.facts.liveness import parse


def container(name: str, namespace: str, sandbox: str) -> dict:
    return {
        "podSandboxId": sandbox,
        "metadata": {"name": name},
        "labels": {"io.kubernetes.pod.namespace": namespace, "io.kubernetes.pod.name": f"{name}-pod"},
    }


PODS = json.dumps(
    {
        "items": [
            {"id": "s1", "annotations": {"kubernetes.io/config.source": "file"}},
            {"id": "s2", "annotations": {"kubernetes.io/config.source": "api"}},
            {"id": "s3", "annotations": None},
        ]
    }
)


def test_static_pods_and_kube_system_are_no_workload() -> None:
    said = json.dumps(
        {
            "containers": [
                container("haproxy", "lb", "s1"),
                container("train", "ml", "s2"),
                container("kube-proxy", "kube-system", "s2"),
                container("other", "ml", "s3"),
            ]
        }
    )
    found = parse(f"shim=1\ncontainers={said}\npods={PODS}")
    assert found == Signs(workloads=("ml/other-pod/other", "ml/train-pod/train"))


def test_a_runtime_without_containers_is_quiet() -> None:
    assert parse('containers={"containers": []}') == Signs()
    assert parse("") == Signs()


def test_shims_without_an_answer_of_the_runtime_are_containers_that_nobody_can_name() -> None:
    assert parse("shim=1").blind
    assert parse("shim=1\ncontainers=").blind
    assert not parse("containers=").blind


def test_holders_of_a_gpu_are_named() -> None:
    assert parse("gpu=77 python3\ngpu=80 nvidia-persiste").gpu_users == ("77 python3", "80 nvidia-persiste")
