"""Hosts in the states that kubelet's decisions are about."""

from __future__ import annotations

from dataclasses import replace

from gpurack.decide.decision import Write
from gpurack.decide.kubelet import boot
from gpurack.decide.kubelet.align import Host, Wanted, align
from gpurack.decide.kubelet.checkpoints import CpuState, MemoryState, SavedNode
from gpurack.decide.kubelet.snapshot import CONFIG, DROP_IN, DROP_IN_DIR, EXTRA_ARGS, File, Service, Snapshot
from gpurack.decide.numa import NumaNode, Topology
from gpurack.errors import Where
from gpurack.site.models import NumaPolicy, Reserved

MIB = 2**20
NOW = 1_000_000
BOOT = "4f6c1c5e-0f1b-4d55-9e0a-000000000001"
ADDRESS = "192.0.2.21"

# As kubeadm 1.34 writes it.
KUBEADM_CONFIG = """\
apiVersion: kubelet.config.k8s.io/v1beta1
authentication:
  anonymous:
    enabled: false
  webhook:
    cacheTTL: 0s
    enabled: true
  x509:
    clientCAFile: /etc/kubernetes/pki/ca.crt
authorization:
  mode: Webhook
  webhook:
    cacheAuthorizedTTL: 0s
    cacheUnauthorizedTTL: 0s
cgroupDriver: systemd
clusterDNS:
- 10.96.0.10
clusterDomain: cluster.local
containerRuntimeEndpoint: ""
cpuManagerReconcilePeriod: 0s
crashLoopBackOff: {}
evictionPressureTransitionPeriod: 0s
fileCheckFrequency: 0s
healthzBindAddress: 127.0.0.1
healthzPort: 10248
httpCheckFrequency: 0s
imageMaximumGCAge: 0s
imageMinimumGCAge: 0s
kind: KubeletConfiguration
logging:
  flushFrequency: 0
  options:
    json:
      infoBufferSize: "0"
    text:
      infoBufferSize: "0"
  verbosity: 0
memorySwap: {}
nodeStatusReportFrequency: 0s
nodeStatusUpdateFrequency: 0s
rotateCertificates: true
runtimeRequestTimeout: 0s
shutdownGracePeriod: 0s
shutdownGracePeriodCriticalPods: 0s
staticPodPath: /etc/kubernetes/manifests
streamingConnectionIdleTimeout: 0s
syncFrequency: 0s
volumeStatsAggPeriod: 0s
"""

# The guide's step, verbatim: what `tee -a` appends.
GUIDE = """\
cpuManagerPolicy: static
topologyManagerPolicy: single-numa-node
topologyManagerScope: pod
memoryManagerPolicy: Static
reservedMemory:
- numaNode: 0
  limits:
    memory: 4Gi
"""

TWO_NODES = Topology(
    nodes=(
        NumaNode(id=0, memory=2044133376, cpus=frozenset({0, 1})),
        NumaNode(id=1, memory=2010947584, cpus=frozenset({2, 3})),
    ),
    online=frozenset(range(4)),
    present=frozenset(range(4)),
    siblings={cpu: frozenset({cpu}) for cpu in range(4)},
)

GUIDE_POLICY = NumaPolicy(
    cpu="static",
    memory="Static",
    topology="single-numa-node",
    scope="pod",
    reserved=Reserved(cpus="0", system_memory=200 * MIB, kube_memory=200 * MIB),
)


def wanted(policy: NumaPolicy = GUIDE_POLICY) -> Wanted:
    return Wanted(
        policy=policy,
        kubernetes="1.34.4",
        addresses=(ADDRESS,),
        where=Where("site.yaml", None, "pools.gpu.numa"),
    )


def bare() -> Snapshot:
    """Packages are in, kubelet restarts on its missing configuration, nothing is ours yet."""
    return Snapshot(
        service=Service(loaded=True, enabled=True, active="activating", sub="auto-restart", restarts=9),
        files={EXTRA_ARGS: File(text="KUBELET_EXTRA_ARGS=\n")},
        addresses=frozenset({"127.0.0.1", ADDRESS}),
        boot_id=BOOT,
        now=NOW,
        uptime=500.0,
    )


def laid(snapshot: Snapshot, policy: NumaPolicy = GUIDE_POLICY, topology: Topology = TWO_NODES) -> Snapshot:
    """`snapshot` after the decision's files were written, as the next run finds them."""
    decision = align(wanted(policy), Host(kubelet=snapshot, topology=topology))
    assert not decision.refused, decision.refused
    files = {**snapshot.files}
    for step in decision.steps:
        if isinstance(step, Write):
            files[step.path] = File(text=step.content, mtime=100)
    return replace(snapshot, files=files, drop_in_dir=True)


def joined(policy: NumaPolicy = GUIDE_POLICY) -> Snapshot:
    """Joined, healthy, converged on `policy`, without a pod that is pinned."""
    before = replace(bare(), joined=True, files={**bare().files, CONFIG: File(text=KUBEADM_CONFIG)})
    shares = {0: 250 * MIB, 1: 250 * MIB} if policy.memory == "Static" else {0: 0, 1: 0}
    return replace(
        laid(before, policy),
        service=Service(loaded=True, enabled=True, active="active", sub="running", started=100.0),
        healthy=True,
        command=("/usr/bin/kubelet", f"--config-dir={DROP_IN_DIR}", f"--node-ip={ADDRESS}"),
        cpu=CpuState(
            policy=policy.cpu, default=frozenset(range(4)) if policy.cpu == "static" else frozenset()
        ),
        memory=MemoryState(
            policy=policy.memory,
            nodes={
                node.id: SavedNode(total=node.memory, reserved=shares[node.id]) for node in TWO_NODES.nodes
            },
        ),
    )


def with_file(snapshot: Snapshot, path: str, text: str, mtime: int = 100) -> Snapshot:
    return replace(snapshot, files={**snapshot.files, path: File(text=text, mtime=mtime)})


OURS = (DROP_IN, EXTRA_ARGS, boot.GUARD, boot.UNIT, boot.STORED)
