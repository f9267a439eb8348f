"""The node as a member: its Node object, its place in the pod network, and the control plane's own health."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from testinfra.host import Host

from gpurack.site.models import Node
from tests.lab import harness

pytestmark = pytest.mark.lab

TOKENS = ("secrets", "-n", "kube-system", "--field-selector", "type=bootstrap.kubernetes.io/token")


def test_the_node_is_ready_and_is_this_machine(
    node: Host, declared: Node, in_api: dict[str, dict[str, Any]]
) -> None:
    status = in_api[declared.name]["status"]
    conditions = {one["type"]: one["status"] for one in status["conditions"]}
    assert conditions["Ready"] == "True"
    assert {one: conditions[one] for one in ("MemoryPressure", "DiskPressure", "PIDPressure")} == {
        "MemoryPressure": "False",
        "DiskPressure": "False",
        "PIDPressure": "False",
    }
    about = status["nodeInfo"]
    assert about["machineID"] == node.check_output("cat /etc/machine-id")
    assert about["systemUUID"].lower() == node.check_output("cat /sys/class/dmi/id/product_uuid").lower()
    assert about["kubeletVersion"] == f"v{declared.site.stack.kubernetes}"
    assert about["containerRuntimeVersion"] == f"containerd://{declared.site.stack.containerd}"
    addresses = [one["address"] for one in status["addresses"] if one["type"] == "InternalIP"]
    assert addresses == [str(address) for address in declared.host.addresses]


@pytest.mark.role("gpu")
def test_labels_and_taints_are_the_pools(declared: Node, in_api: dict[str, dict[str, Any]]) -> None:
    assert declared.pool
    found = in_api[declared.name]
    labels = found["metadata"]["labels"]
    assert {key: labels.get(key) for key in declared.pool.labels} == declared.pool.labels
    taints = {(one["key"], one.get("value", ""), one["effect"]) for one in found["spec"].get("taints", ())}
    assert taints == {(taint.key, taint.value, taint.effect) for taint in declared.pool.taints}
    assert not found["spec"].get("unschedulable")


def test_pods_get_addresses_of_this_node(
    node: Host, declared: Node, in_api: dict[str, dict[str, Any]]
) -> None:
    if declared.site.cluster.cni != "bridge":
        pytest.skip("the pod network is not ours")
    folder = "/etc/cni/net.d"
    first = node.check_output(f"ls {folder} | grep -E '[.](conf|conflist|json)$' | sort | head -n 1")
    assert first == "10-gpurack.conflist"
    conflist = json.loads(node.file(f"{folder}/{first}").content_string)
    bridge = next(plugin for plugin in conflist["plugins"] if plugin["type"] == "bridge")
    subnets = [entry["subnet"] for entries in bridge["ipam"]["ranges"] for entry in entries]
    assert subnets == in_api[declared.name]["spec"]["podCIDRs"]
    for plugin in conflist["plugins"]:
        assert node.file(f"/opt/cni/bin/{plugin['type']}").mode & 0o111


def test_routes_lead_to_the_pods_of_every_other_node(
    node: Host, declared: Node, in_api: dict[str, dict[str, Any]]
) -> None:
    if declared.site.cluster.cni != "bridge":
        pytest.skip("the pod network is not ours")
    service = node.service("gpurack-pod-routes")
    assert service.is_enabled
    assert service.is_running
    found = {
        tuple(line.split()[0:3:2])
        for line in node.check_output("ip -4 route").splitlines()
        if " via " in line
    }
    for name, other in in_api.items():
        if name == declared.name:
            continue
        via = next(one["address"] for one in other["status"]["addresses"] if one["type"] == "InternalIP")
        for cidr in other["spec"]["podCIDRs"]:
            assert (cidr, via) in found, f"no route to the pods of {name}"


def test_no_join_token_is_left(joined_rack: Path) -> None:
    left = harness.objects(*TOKENS, site=joined_rack)
    assert [token["metadata"]["name"] for token in left] == []


@pytest.mark.role("control-plane")
def test_the_control_plane_is_healthy(node: Host, joined_rack: Path) -> None:
    pods = json.loads(node.check_output("crictl ps -o json"))["containers"]
    running = {pod["metadata"]["name"] for pod in pods}
    assert {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} <= running
    ready = harness.kubectl("get", "--raw", "/readyz?verbose", site=joined_rack).ok().out
    assert "readyz check passed" in ready
    assert "[+]etcd ok" in ready


@pytest.mark.role("control-plane")
def test_the_servers_certificate_names_the_endpoint_and_lasts(node: Host, declared: Node) -> None:
    certificate = "/etc/kubernetes/pki/apiserver.crt"
    names = node.check_output(f"openssl x509 -in {certificate} -noout -ext subjectAltName")
    endpoint = declared.site.cluster.endpoint.rpartition(":")[0].strip("[]")
    for wanted in (declared.name, endpoint, declared.host.address):
        assert f":{wanted}" in names
    assert node.run(f"openssl x509 -in {certificate} -noout -checkend {300 * 86400}").rc == 0


@pytest.mark.role("control-plane")
def test_what_kubeadm_was_told_is_what_the_document_says(declared: Node, joined_rack: Path) -> None:
    line = (
        "get",
        "configmap",
        "-n",
        "kube-system",
        "kubeadm-config",
        "-o",
        "jsonpath={.data.ClusterConfiguration}",
    )
    said = harness.kubectl(*line, site=joined_rack).ok().out
    cluster = declared.site.cluster
    assert f"clusterName: {cluster.name}" in said
    assert f"controlPlaneEndpoint: {cluster.endpoint}" in said
    assert f"podSubnet: {','.join(map(str, cluster.pod_cidrs))}" in said
    assert f"kubernetesVersion: v{declared.site.stack.kubernetes}" in said
