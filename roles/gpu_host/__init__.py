"""The hardware is what the pool declares, and a driver may come: see docs/roles/gpu_host.md."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from gpurack.operations import gpu_host
from gpurack.site.models import Node


@deploy("GPU host")
def ready_for_driver(*, node: Node) -> None:
    """Compare the host with its pool's `hardware` and `driver`: differences are refused, nothing is changed.

    + node: host, pool and site
    """
    gpu_host.ready_for_driver(name="Hardware is as declared", node=node)
