"""Operation: the pod network of the site, in the way that the site document asks for."""

from __future__ import annotations

from collections.abc import Iterator

from pyinfra.api.command import PyinfraCommand
from pyinfra.api.operation import operation

from gpurack.cluster import manifests, nodes
from gpurack.decide import cni
from gpurack.decide.decision import settled
from gpurack.defaults import NODE_APPEARS
from gpurack.engine import carry_out, executing, guarded, once, read, shared
from gpurack.engine.run import beside, liveness
from gpurack.facts.cni import PodNetwork
from gpurack.facts.kubeadm import KubeadmTraces
from gpurack.operations import cluster
from gpurack.operations.api import through_api
from gpurack.site.models import ManifestCni, Node


@operation()
@guarded
def connect(*, node: Node) -> Iterator[PyinfraCommand]:
    """Connect the host's pods: conflist and routes (`bridge`), a manifest by the API, or nothing.

    Routes go to every node that has a pod CIDR now; hosts outside a limited run get theirs at their next run.
    """
    wanted = node.site.cluster.cni
    if wanted == "external":
        yield from carry_out(settled("the pod network is laid by others"))
    elif isinstance(wanted, ManifestCni):
        yield from _apply(node, wanted)
    else:
        yield from _bridge(node)


def _bridge(node: Node) -> Iterator[PyinfraCommand]:
    _, known = cluster.asked()
    found = read(KubeadmTraces)
    name = cluster.called(node, found, known)
    mine = known.get(name)
    if not (mine and mine.pod_cidrs) and executing() and found.member and not liveness(node.name)[0]:
        # It registered after the nodes were listed: an interrupted run's join, or a control plane just made.
        connection, _ = cluster.trusted()
        mine = nodes.wait(
            connection,
            name,
            until=lambda seen: bool(seen.pod_cidrs),
            reason=f"the Node {name} has its pod CIDR",
            deadline=NODE_APPEARS,
        )
    if mine is None or not mine.pod_cidrs:
        # Planned: the Node comes with the join. Executing: the join was owed or refused, and says so itself.
        yield from carry_out(settled("decided once the Node has its pod CIDR"))
        return
    yield from carry_out(cni.reach(cni.routes(name, known.values()), read(PodNetwork)))
    yield from carry_out(cni.bridge(mine.pod_cidrs, read(PodNetwork)))


def _apply(node: Node, wanted: ManifestCni) -> Iterator[PyinfraCommand]:
    digest = wanted.manifest.sha256
    objects = manifests.checked(beside(node.site, wanted.manifest.file), digest)
    connection = cluster.client()
    if connection is None:
        yield from carry_out(settled("decided once the cluster exists"))
        return
    done = once(f"cni manifest {digest}", lambda: manifests.is_applied(connection, "cni", digest))
    if done or shared("cni manifest").setdefault("host", node.name) != node.name:
        yield from carry_out(settled("the pod network's manifest is applied"))
        return
    yield from through_api(
        f"apply {wanted.manifest.file}", lambda: manifests.apply(connection, "cni", objects, digest)
    )
