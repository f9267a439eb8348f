"""Exact packages from known sources, held: see docs/roles/packages.md."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from gpurack.operations import apt, packages
from gpurack.site.models import Node


@deploy("Packages")
def pin(*, node: Node) -> None:
    """containerd and Kubernetes at the pinned versions, in one transaction, and held there.

    + node: the host; its stack pins versions, its site names the sources
    """
    apt.sources(name="Sources and keys of apt", node=node)
    packages.install(name="Packages at their pinned versions", node=node)
    packages.hold(name="Packages are held", node=node)
    packages.kubelet_waits(name="kubelet waits for the join")
