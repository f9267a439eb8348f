"""Operations on the Node object: our labels and taints, and the proof that it is Ready and this machine."""

from __future__ import annotations

from collections.abc import Iterator

from pyinfra.api.command import PyinfraCommand
from pyinfra.api.operation import operation

from gpurack.cluster import nodes
from gpurack.decide import node as thought
from gpurack.decide.decision import settled
from gpurack.decide.node import Taint
from gpurack.defaults import NODE_READY
from gpurack.engine import carry_out, executing, guarded, read
from gpurack.engine.run import liveness
from gpurack.errors import Problem, Refused
from gpurack.facts.kubeadm import KubeadmTraces
from gpurack.operations import cluster
from gpurack.operations.api import through_api
from gpurack.site.models import Node


@operation()
@guarded
def converge(*, node: Node) -> Iterator[PyinfraCommand]:
    """Give the Node its pool's labels and taints, take back what is ours no longer, keep all others."""
    found = read(KubeadmTraces)
    _, known = cluster.asked()
    name = cluster.called(node, found, known)
    labels = dict(node.pool.labels) if node.pool else {}
    taints = tuple(Taint(t.key, t.effect, t.value) for t in (node.pool.taints if node.pool else ()))
    mine = known.get(name)
    if mine is None and executing() and found.member:
        # It registered after the nodes were listed: an interrupted run's join.
        mine = nodes.one(cluster.trusted()[0], name)
    if mine is None:
        # Planned: the Node comes with the join. Executing: the join was owed or refused, and says so itself.
        yield from carry_out(settled("decided once the Node exists"))
        return
    patch = thought.converge(labels=labels, taints=taints, found=mine)
    if not patch:
        yield from carry_out(settled(patch.reason))
        return
    connection, _ = cluster.trusted()
    yield from through_api(
        patch.reason, lambda: nodes.converge(connection, name, labels=labels, taints=taints)
    )


@operation()
@guarded
def ready(*, node: Node) -> Iterator[PyinfraCommand]:
    """Prove through the API that the Node is Ready and is this machine (R39); waits for it while executing.

    A live host is not waited for: what is wrong with it is said, and nothing is done.
    """
    found = read(KubeadmTraces)
    _, known = cluster.asked()
    name = cluster.called(node, found, known)
    mine = known.get(name)
    if mine and mine.ready and mine.machine_id == found.machine_id:
        yield from carry_out(settled(f"{name} is Ready"))
        return
    if not executing():
        yield from carry_out(settled("decided once the Node exists"))
        return
    connection, _ = cluster.trusted()
    if mine is None and liveness(node.name)[0]:
        raise Refused(
            Problem(
                code="E-JOIN-11",
                what="the host is live, but it is no Node of the cluster",
                found=nodes.seen(mine),
                next="empty the host of its workload, then run again: the join is owed until then",
            )
        )
    machine = found.machine_id
    nodes.wait(
        connection,
        name,
        until=lambda seen: seen.ready and seen.machine_id == machine,
        reason=f"the Node {name} of this machine is Ready",
        deadline=NODE_READY,
    )
    yield from carry_out(settled(f"{name} is Ready"))
