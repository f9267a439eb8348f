"""The pod network of a host that joined earlier: see docs/roles/network.md."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from gpurack.operations import cni
from gpurack.site.models import Node


@deploy("Pod network")
def connect(*, node: Node) -> None:
    """Keep routes to the other nodes' pods, as new ones join.

    + node: host, pool and site
    """
    cni.connect(name="Connect the host's pods", node=node)
