"""The pinned packages, their holds, and a kubelet that waits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyinfra.api.command import PyinfraCommand
from pyinfra.api.operation import operation

from gpurack.decide import holds
from gpurack.decide import packages as thought
from gpurack.decide.decision import Decision
from gpurack.engine import carry_out, executing, guarded, read
from gpurack.facts.apt import AptSources, UpdateLog
from gpurack.facts.packages import InstalledPackages, Simulated, TransactionLog
from gpurack.operations.proving import until_settled
from gpurack.site.models import Node


@operation()
@guarded
def install(*, node: Node) -> Iterator[PyinfraCommand]:
    """Every pinned package at exactly its version, in one transaction that removes nothing.

    apt's lists are refreshed and the transaction is simulated first; nothing runs when all is in place.

    + node: the host; its stack pins the versions
    """
    pins = _pins(node)
    acted = False
    for command in carry_out(thought.install(pins, read(InstalledPackages))):
        acted = True
        yield command
    # Nothing was done when nothing is due, or when a live host owes it; before the lists are fresh,
    # preparing can't look further.
    if not acted or not executing():
        return
    yield from carry_out(thought.judge_update(read(UpdateLog), read(AptSources).keyrings))
    found = read(InstalledPackages)
    if wanted := thought.due(pins, found):
        names = tuple(f"{name}={version}" for name, version in wanted.items())
        yield from carry_out(thought.judge_simulation(pins, found, read(Simulated, pins=names)))
    yield from carry_out(thought.transaction(pins, found))
    yield from carry_out(thought.proven(pins, read(TransactionLog), read(InstalledPackages)))


@operation()
@guarded
def hold(*, node: Node) -> Iterator[PyinfraCommand]:
    """Hold what only a run may change (R69); on GPU nodes the kernel's metapackages too.

    + node: the host and its role
    """

    def think() -> Decision:
        found = read(InstalledPackages)
        kernels = holds.kernels(found) if node.role == "gpu" else ()
        return holds.hold((*thought.expand(_pins(node)), *kernels), found)

    yield from until_settled(think)


@operation()
@guarded
def kubelet_waits() -> Iterator[PyinfraCommand]:
    """kubelet is enabled, and does not run before the host joins (R59)."""
    yield from until_settled(lambda: holds.kubelet_waits(read(InstalledPackages)))


def _pins(node: Node) -> Mapping[str, str]:
    given = node.site.stack.packages
    return {
        "kubelet": given.kubelet,
        "kubeadm": given.kubeadm,
        "kubectl": given.kubectl,
        "cri-tools": given.cri_tools,
        "kubernetes-cni": given.kubernetes_cni,
        "containerd.io": given.containerd_io,
    }
