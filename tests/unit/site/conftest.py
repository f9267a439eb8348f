"""A small good document, and `site` to load it with a few words exchanged."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from gpurack.site import load
from gpurack.site.models import Site

GOOD = """\
name: test
accept: [os-debian-12]
ssh:
  user: ops
  port: 22
  sudo: {password: "env:SUDO_PASSWORD"}
stack:
  kubernetes: "1.34.4"
  containerd: "2.2.9"
  packages:
    kubelet: "1.34.4-1.1"
    kubeadm: "1.34.4-1.1"
    kubectl: "1.34.4-1.1"
    cri_tools: "1.34.0-1.1"
    kubernetes_cni: "1.7.1-1.1"
    containerd_io: "2.2.9-1"
  images: {pause: "3.10.1", etcd: "3.6.5-0", coredns: "v1.12.1"}
sources:
  proxy: http://proxy.example.com:3128
  registries:
    registry.k8s.io:
      mirrors: ["http://10.1.0.2:5000"]
      username: puller
      password: "env:PULL"
cluster:
  name: test
  endpoint: api.example.com:6443
  pod_cidrs: [10.244.0.0/16]
  service_cidrs: [10.96.0.0/16]
  cni: bridge
pools:
  h100:
    platform: hgx-h100-8
    labels:
      example.com/tier: train
      node-role.kubernetes.io/gpu: ""
    taints:
      - nvidia.com/gpu=present:NoSchedule
    hardware:
      gpus: {count: 8, ids: ["10de:2330"], per_numa_node: [4, 4]}
      numa_nodes: 2
      disks:
        - {path: /var/lib/containerd, minimum: 800G}
    numa:
      cpu: static
      cpu_options: {full-pcpus-only: "true"}
      memory: Static
      topology: restricted
      topology_options: {max-allowable-numa-nodes: "8"}
      reserved:
        cpus: 0-1
        system_memory: 8Gi
        kube_memory: 4Gi
        eviction_memory: 100Mi
racks:
  r07: {power: 44000}
hosts:
  - {name: "cp-[1:2]", address: "10.0.0.[1:2]", role: control-plane}
  - name: gpu-r07-[01:08]
    address: 10.0.7.[11:18]
    pool: h100
    rack: r07
    position: u[01:08]
  - name: gpu-r07-09
    address: 10.0.7.19
    pool: h100
    rack: r07
    position: u09
"""

# Files that a document may name. None holds a key; what matters is what kind of file they say they are.
FILES = {
    "id": "-----BEGIN OPENSSH PRIVATE KEY-----\n",
    "id.pub": "ssh-ed25519 AAAA ops\n",
    "config": "kind: Config\nclusters: []\n",
    "cni.yaml": "kind: DaemonSet\n",
    "key.asc": "-----BEGIN PGP PUBLIC KEY BLOCK-----\n",
    "fpr": "0123456789abcdef0123456789abcdef01234567\n",
}
CNI_SHA256 = hashlib.sha256(FILES["cni.yaml"].encode()).hexdigest()


@pytest.fixture
def document(tmp_path: Path) -> Callable[..., Path]:
    """Write the good document with `old` exchanged for `new`, pairwise, and return its path."""

    def write(*words: str, text: str = GOOD) -> Path:
        for old, new in zip(words[::2], words[1::2], strict=True):
            assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in the document"
            text = text.replace(old, new)
        for name, content in FILES.items():
            (tmp_path / name).write_text(content, encoding="utf-8")
        path = tmp_path / "site.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture
def site(document: Callable[..., Path]) -> Callable[..., Site]:
    return lambda *words: load(document(*words))
