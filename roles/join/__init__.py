"""A prepared host becomes a Node of the site's cluster: see docs/roles/join.md."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from gpurack.operations import cni, kubeadm, names
from gpurack.operations import node as nodes
from gpurack.site.models import Node


@deploy("Join")
def cluster(*, node: Node) -> None:
    """Join the host, connect its pods, give its Node the pool's labels and taints, and prove it Ready.

    + node: host, pool and site; packages, containerd and kubelet's drop-ins are there
    """
    names.endpoint(name="The API endpoint's name resolves", node=node)
    kubeadm.join(name="Join the cluster", node=node)
    nodes.converge(name="Labels and taints of the pool", node=node)
    cni.connect(name="Connect the host's pods", node=node)
    nodes.ready(name="The Node is Ready", node=node)
