"""The guide's containerd and NUMA steps, typed by hand on a fresh host.

The guide tells people to append five keys to /var/lib/kubelet/config.yaml. kubelet then stops at every start
(no CPU reservation: R1), and appending twice leaves every key twice (R24).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpurack.lab import mirror
from tests.lab import cases, harness
from tests.lab.cases import HOST

pytestmark = pytest.mark.lab

INVENTORY = "inventories/lab_vm"
FLAGS = ("--limit", HOST)

# Step 1 of the guide, with the mirror for the vendors (under their paths: other sources than the site's).
PACKAGES = """set -e
export DEBIAN_FRONTEND=noninteractive
install -d /etc/apt/keyrings
echo "deb [arch=amd64 signed-by=/etc/apt/keyrings/docker.asc] http://10.77.0.2/linux/debian bookworm stable" |
  tee /etc/apt/sources.list.d/docker.list
echo "deb [signed-by=/etc/apt/keyrings/k8s.asc] http://10.77.0.2/core:/stable:/v1.34/deb/ /" |
  tee /etc/apt/sources.list.d/kubernetes.list
apt-get -q update
apt-get -q install -y containerd.io=2.2.9-1 kubelet=1.34.4-1.1 kubeadm=1.34.4-1.1 kubectl=1.34.4-1.1 \\
  cri-tools=1.34.0-1.1 kubernetes-cni=1.7.1-1.1
"""
CONTAINERD = """set -e
containerd config default | tee /etc/containerd/config.toml >/dev/null
sed -i 's/SystemdCgroup = false/SystemdCgroup = true/' /etc/containerd/config.toml
systemctl restart containerd
"""
# Step 5 of the guide, to the letter; `tee` is called twice because people do.
NUMA = """
for turn in 1 2; do tee -a /var/lib/kubelet/config.yaml >/dev/null << 'EOF'
cpuManagerPolicy: static
topologyManagerPolicy: single-numa-node
topologyManagerScope: pod
memoryManagerPolicy: Static
reservedMemory:
- numaNode: 0
  limits:
    memory: 4Gi
EOF
done
systemctl stop kubelet
rm -f /var/lib/kubelet/cpu_manager_state
rm -f /var/lib/kubelet/memory_manager_state
systemctl start kubelet
"""
CRASHES = '[ "$(systemctl show kubelet -p NRestarts --value)" -ge 1 ]'


@pytest.fixture
def by_hand(joined_rack: Path) -> Iterator[Path]:
    """The host as after the guide's first step: packages and containerd, installed and set up by hand."""
    cases.make_bare(HOST, site=joined_rack)
    for name, file in (("containerd", "docker"), ("kubernetes", "k8s")):
        key = (mirror.RACK.keys / f"{name}.asc").read_text()
        script = f"mkdir -p /etc/apt/keyrings; cat >/etc/apt/keyrings/{file}.asc"
        harness.ssh(HOST, script, site=joined_rack, stdin=key).ok()
    harness.ssh(HOST, PACKAGES, site=joined_rack, timeout=300).ok()
    harness.ssh(HOST, CONTAINERD, site=joined_rack).ok()
    yield joined_rack
    if not harness.ready(joined_rack).get(HOST):
        cases.make_bare(HOST, site=joined_rack)
        harness.pyinfra(INVENTORY, "deploys/gpu_node.py", *FLAGS).ok()


def crash_loop(site: Path) -> None:
    """kubelet restarts again and again, for the reason that the guide does not tell."""
    harness.until(lambda: harness.ssh(HOST, CRASHES, site=site).rc == 0, "kubelet crash-loops", deadline=90)


def assert_repaired(site: Path, *reasons: str) -> None:
    """One run names `reasons` and leaves a Ready node with the pool's policies; a second changes nothing."""
    ran = harness.pyinfra(INVENTORY, "deploys/gpu_node.py", *FLAGS, timeout=600).ok()
    missing = [reason for reason in reasons if reason not in ran.text]
    assert missing == [], ran.text[-6000:]

    harness.until(lambda: harness.ready(site).get(HOST, False), f"{HOST} is Ready", deadline=60)
    raw = harness.kubectl("get", "--raw", f"/api/v1/nodes/{HOST}/proxy/configz", site=site).ok().out
    effective = json.loads(raw)["kubeletconfig"]
    assert effective["cpuManagerPolicy"] == "static"
    assert effective["memoryManagerPolicy"] == "Static"
    assert effective["topologyManagerPolicy"] == "best-effort"  # the pool's, not the guide's
    assert effective["reservedSystemCPUs"] == "0"
    assert effective["reservedMemory"] == [{"numaNode": 0, "limits": {"memory": "500Mi"}}]
    written = harness.ssh(HOST, "cat /var/lib/kubelet/config.yaml", site=site).ok().out
    assert "4Gi" not in written
    assert written.count("cpuManagerPolicy") <= 1

    before = harness.footprint(HOST, site=site)
    again = harness.pyinfra(INVENTORY, "deploys/gpu_node.py", *FLAGS, "--json").ok()
    assert harness.changed(again) == {}
    assert harness.footprint(HOST, site=site) == before


def test_appended_keys_before_any_join_are_cleared_and_the_host_joins(by_hand: Path) -> None:
    harness.ssh(HOST, f"mkdir -p /var/lib/kubelet; {NUMA}", site=by_hand).ok()
    crash_loop(by_hand)

    assert_repaired(
        by_hand,
        "half-joined",
        "/etc/containerd/config.toml",
        "kubelet's resource managers: cpuManagerPolicy none -> static",
    )


def test_appended_keys_on_a_host_joined_by_hand_are_taken_out_and_named(by_hand: Path) -> None:
    create = "kubeadm token create --ttl 10m --print-join-command"
    line = harness.ssh("cp-1", create, site=by_hand).ok().out.strip()
    token = line.split("--token ")[1].split()[0]
    try:
        join = f"sysctl -qw net.ipv4.ip_forward=1; {line} --ignore-preflight-errors=all"
        harness.ssh(HOST, join, site=by_hand, timeout=180).ok()
    finally:
        harness.ssh("cp-1", f"kubeadm token delete {token}", site=by_hand).ok()
    harness.ssh(HOST, NUMA, site=by_hand).ok()
    crash_loop(by_hand)

    assert_repaired(
        by_hand,
        "/var/lib/kubelet/config.yaml carries keys appended by hand",
        "cpuManagerPolicy",
        "reservedMemory",
        "/etc/containerd/config.toml",
    )
