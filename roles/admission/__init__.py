"""Who a deploy works on, and whether it may: see docs/roles/admission.md."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from gpurack.operations import cluster, kubeadm, liveness
from gpurack.site.models import Node


@deploy("Admission")
def admit(*, node: Node) -> None:
    """Find out whether the host is live; then let it on to a deploy that needs the site's cluster.

    + node: host, pool and site
    """
    liveness.observe(name="Is the host live", node=node)
    cluster.admit(name="The site's cluster is there and fits", node=node)
    cluster.sweep(name="No join token of an earlier run is left", node=node)
    kubeadm.clear(name="No half-finished join is left", node=node)


@deploy("Observation")
def observe(*, node: Node) -> None:
    """The same for a deploy that may have no cluster yet.

    + node: host, pool and site
    """
    liveness.observe(name="Is the host live", node=node)
    kubeadm.clear(name="No unfinished init is left", node=node)
