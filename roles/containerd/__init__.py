"""containerd: the container runtime, in the schema of its pinned version, proven on CRI (R76, R81-R101)."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from gpurack.operations import containerd
from gpurack.site.models import Node


@deploy("containerd")
def serve(*, node: Node) -> None:
    """A containerd that kubelet can rely on. Its package is there already; a kubelet that runs is left alone.

    + node: the host, its stack and its site
    """
    containerd.sources(name="Say where images come from", node=node)
    containerd.client(name="Point crictl at kubelet's runtime")
    containerd.serve(name="Run containerd as the site wants it", node=node)
