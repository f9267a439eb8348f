"""The site's control plane: first init, kubeconfig, pod network, proof: see docs/roles/control_plane.md."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from gpurack.operations import cluster, cni, kubeadm, names
from gpurack.operations import node as nodes
from gpurack.site.models import Node


@deploy("Control plane")
def bootstrap(*, node: Node) -> None:
    """Make the control plane once, and prove that it serves.

    + node: host, pool and site; packages, containerd and kubelet's drop-ins are there
    """
    names.endpoint(name="The API endpoint's name resolves", node=node)
    kubeadm.init(name="Make the control plane", node=node)
    kubeadm.kubeconfig(name="Give the controller a kubeconfig", node=node)
    cluster.identify(name="The API serves, and is the site's", node=node)
    cluster.sweep(name="No join token of an earlier run is left", node=node)
    cni.connect(name="Connect the host's pods", node=node)
    nodes.ready(name="The Node is Ready", node=node)
