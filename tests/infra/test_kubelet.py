"""kubelet as it runs: policies, reservations to the byte, the boot guard, its certificate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from testinfra.host import Host

from gpurack.site.models import Node
from tests.lab import harness

pytestmark = pytest.mark.lab

DROP_IN = "/etc/kubernetes/kubelet.conf.d/20-gpurack-numa.conf"
UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


def _bytes(quantity: str) -> int:
    unit = UNITS.get(quantity[-2:])
    return int(quantity[:-2]) * unit if unit else int(quantity)


@pytest.fixture(scope="session")
def written(node: Host) -> dict[str, Any]:
    """Our drop-in."""
    return dict(yaml.safe_load(node.file(DROP_IN).content_string))


@pytest.fixture(scope="session")
def effective(name: str, joined_rack: Path) -> dict[str, Any]:
    """What the running kubelet says it uses."""
    answer = harness.kubectl("get", "--raw", f"/api/v1/nodes/{name}/proxy/configz", site=joined_rack).ok()
    return dict(json.loads(answer.out)["kubeletconfig"])


def test_it_runs_from_boot_and_never_fell_over(node: Host) -> None:
    service = node.service("kubelet")
    assert service.is_enabled
    assert service.is_running
    assert service.systemd_properties["NRestarts"] == "0"
    assert service.systemd_properties["NeedDaemonReload"] == "no"
    assert node.check_output("curl -s http://127.0.0.1:10248/healthz") == "ok"


def test_it_reads_the_drop_in_directory_and_uses_the_declared_addresses(node: Host, declared: Node) -> None:
    argv = node.check_output("tr '\\0' '\\n' < /proc/$(pidof kubelet)/cmdline").splitlines()
    assert argv.count("--config-dir=/etc/kubernetes/kubelet.conf.d") == 1
    addresses = ",".join(map(str, declared.host.addresses))
    assert [one for one in argv if one.startswith("--node-ip=")][-1] == f"--node-ip={addresses}"


def test_policies_are_the_pools(written: dict[str, Any], effective: dict[str, Any], declared: Node) -> None:
    policy = declared.pool.numa if declared.pool else None
    wanted = {
        "cpuManagerPolicy": policy.cpu if policy else "none",
        "memoryManagerPolicy": policy.memory if policy else "None",
        "topologyManagerPolicy": policy.topology if policy else "none",
        "topologyManagerScope": policy.scope if policy else "container",
    }
    assert {key: written[key] for key in wanted} == wanted
    assert {key: effective[key] for key in wanted} == wanted
    if policy:
        assert (effective.get("cpuManagerPolicyOptions") or {}) == policy.cpu_options
        assert (effective.get("topologyManagerPolicyOptions") or {}) == policy.topology_options


def test_the_running_configuration_is_the_written_one(
    written: dict[str, Any], effective: dict[str, Any]
) -> None:
    for key, value in written.items():
        if key in ("apiVersion", "kind") or value is None:
            continue
        found = effective[key]
        if isinstance(value, dict):
            found = {inner: found.get(inner) for inner in value}
        assert found == value, key


@pytest.mark.role("gpu")
def test_reserved_memory_adds_up_to_the_byte(effective: dict[str, Any], declared: Node) -> None:
    assert declared.pool
    if declared.pool.numa.memory != "Static":
        pytest.skip("the pool has no memory policy")
    reserved = declared.pool.numa.reserved
    total = reserved.kube_memory + reserved.system_memory + reserved.eviction_bytes
    shares = {one["numaNode"]: _bytes(one["limits"]["memory"]) for one in effective["reservedMemory"]}
    assert sum(shares.values()) == total
    assert len(shares) == declared.pool.hardware.numa_nodes
    assert _bytes(effective["kubeReserved"]["memory"]) == reserved.kube_memory
    assert _bytes(effective["systemReserved"]["memory"]) == reserved.system_memory
    assert _bytes(effective["evictionHard"]["memory.available"]) == reserved.eviction_bytes


@pytest.mark.role("gpu")
def test_state_files_are_of_these_policies(node: Host, effective: dict[str, Any], declared: Node) -> None:
    cpu = json.loads(node.check_output("cat /var/lib/kubelet/cpu_manager_state"))
    memory = json.loads(node.check_output("cat /var/lib/kubelet/memory_manager_state"))
    assert declared.pool
    assert cpu["policyName"] == declared.pool.numa.cpu
    assert memory["policyName"] == declared.pool.numa.memory
    if memory["policyName"] == "Static":
        kept = {
            int(number): cell["memoryMap"]["memory"]["systemReserved"]
            for number, cell in memory["machineState"].items()
        }
        shares = {one["numaNode"]: _bytes(one["limits"]["memory"]) for one in effective["reservedMemory"]}
        assert {number: size for number, size in kept.items() if size} == shares


@pytest.mark.role("gpu")
def test_the_api_offers_what_is_not_reserved(declared: Node, in_api: dict[str, dict[str, Any]]) -> None:
    assert declared.pool
    status = in_api[declared.name]["status"]
    reserved = declared.pool.numa.reserved
    kept = reserved.kube_memory + reserved.system_memory + reserved.eviction_bytes
    assert _bytes(status["capacity"]["memory"]) - _bytes(status["allocatable"]["memory"]) == kept


def test_the_boot_guard_stands_before_kubelet(node: Host) -> None:
    guard = "/usr/local/lib/gpurack/kubelet-boot-guard"
    properties = node.service("kubelet").systemd_properties
    assert "/etc/systemd/system/kubelet.service.d/20-gpurack-boot.conf" in properties["DropInPaths"]
    assert guard in properties["ExecStartPre"]
    assert node.file(guard).mode == 0o755
    assert node.file(guard).user == "root"
    now = node.check_output("cat /proc/sys/kernel/random/boot_id")
    assert node.check_output("cat /var/lib/gpurack/kubelet-boot-id") == now


def test_its_certificate_is_its_own_and_lasts(node: Host, declared: Node) -> None:
    current = "/var/lib/kubelet/pki/kubelet-client-current.pem"
    subject = node.check_output(f"openssl x509 -in {current} -noout -subject -nameopt multiline")
    assert f"system:node:{declared.name}" in subject
    assert node.run(f"openssl x509 -in {current} -noout -checkend {90 * 86400}").rc == 0
    assert not node.file("/etc/kubernetes/bootstrap-kubelet.conf").exists


def test_it_answers_its_neighbours(declared: Node, everyone: dict[str, Host]) -> None:
    """`kubectl logs` and `exec` need port 10250 of every node, from the control plane at least."""
    ask = (
        f"curl -sk -o /dev/null -w '%{{http_code}}' --max-time 10 https://{declared.host.address}:10250/pods"
    )
    for name, other in everyone.items():
        assert other.check_output(ask) == "401", f"asked from {name}"
