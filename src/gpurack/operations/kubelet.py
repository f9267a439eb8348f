"""kubelet, aligned with its pool before the join, and proven after it."""

from __future__ import annotations

from collections.abc import Iterator

from pyinfra.api.command import PyinfraCommand
from pyinfra.api.operation import operation

from gpurack.cluster import nodes
from gpurack.decide.decision import settled
from gpurack.decide.kubelet import align as thought
from gpurack.decide.kubelet import proof
from gpurack.decide.kubelet.align import Host, Wanted
from gpurack.engine import carry_out, executing, guarded, read
from gpurack.errors import Problem, Refused
from gpurack.facts.kubeadm import KubeadmTraces
from gpurack.facts.kubelet import Kubelet
from gpurack.facts.numa import Numa
from gpurack.facts.pci import GpuGround
from gpurack.operations import cluster
from gpurack.site.models import Node


@operation()
@guarded
def align(*, node: Node) -> Iterator[PyinfraCommand]:
    """Lay down the pool's resource managers, the node's addresses and the boot guard.

    + node: host, pool and site

    Refused before anything is written when the host can't run the policy (R1-R5, R12, R14). On a host that
    has joined it is one transaction, and needs a drain when it moves pods: a live host owes it.
    """
    yield from carry_out(thought.align(Wanted.of(node), _host()))


@operation()
@guarded
def stays_up(*, node: Node) -> Iterator[PyinfraCommand]:
    """Prove from the host that kubelet stays up and runs the pool's policies (R20, R21).

    + node: host, pool and site

    The wait is one step, so all hosts are watched at the same time. It ends early when kubelet is broken, and
    then names the cause. A live host that owes the alignment has only to be healthy.
    """
    if not read(Kubelet).joined:
        yield from carry_out(settled("proven once the host has joined"))
        return
    yield from carry_out(proof.watch(read(Kubelet)))
    if not executing():
        return
    host = _host()
    wanted = Wanted.of(node)
    problems = proof.judge(wanted, host.kubelet)
    if thought.align(wanted, host).steps and host.kubelet.stable:
        return
    if problems:
        raise Refused(problem.on(node.name) for problem in problems)


@operation()
@guarded
def runs_as_wanted(*, node: Node) -> Iterator[PyinfraCommand]:
    """Prove through the API that kubelet's effective configuration is what was laid down (R22).

    + node: host, pool and site
    """
    host = _host()
    wanted = Wanted.of(node)
    if not executing() or not host.kubelet.joined:
        yield from carry_out(settled("proven once the host has joined"))
        return
    if thought.align(wanted, host).steps:
        yield from carry_out(settled("owed: proven once kubelet is aligned"))
        return
    connection, _ = cluster.trusted()
    name = cluster.called(node, read(KubeadmTraces), cluster.all_nodes())
    differences = proof.configz_differences(thought.expected(wanted, host), nodes.configz(connection, name))
    if differences:
        raise Refused(
            Problem(
                code="E-KUBELET-32",
                what="kubelet runs with another configuration than was laid down",
                host=node.name,
                found="; ".join(differences),
                rule="R22: configz is file, drop-ins and flags together",
                next=f"kubectl get --raw /api/v1/nodes/{name}/proxy/configz; journalctl -u kubelet there",
            )
        )
    yield from carry_out(settled("configz says what was laid down"))


def _host() -> Host:
    return Host(kubelet=read(Kubelet), topology=read(Numa), gpus=read(GpuGround).gpus)
