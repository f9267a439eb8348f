"""kubelet runs the pool's resource managers: see docs/roles/kubelet.md."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from gpurack.operations import kubelet
from gpurack.site.models import Node


@deploy("Kubelet")
def align(*, node: Node) -> None:
    """Before the join: lay down policies, reservations, node addresses and the boot guard.

    + node: host, pool and site; packages are installed
    """
    kubelet.align(name="Resource managers, addresses and boot guard", node=node)


@deploy("Kubelet proof")
def prove(*, node: Node) -> None:
    """After the join: kubelet stays up, and runs what was laid down.

    + node: host, pool and site
    """
    kubelet.stays_up(name="kubelet stays up with the pool's policies", node=node)
    kubelet.runs_as_wanted(name="kubelet's effective configuration is the wanted one", node=node)
