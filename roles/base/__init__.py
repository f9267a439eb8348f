"""The operating system under a node, from refusal to sysctl: see docs/roles/base.md."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from gpurack.operations import clock, firewall, identity, needrestart, platform, swap, sysctl
from gpurack.site.models import Node


@deploy("Base")
def prepare(*, node: Node) -> None:
    """Prove what can't be changed from here, then bring the rest to what a node needs.

    + node: host, pool and site
    """
    platform.supported(name="The operating system is supported", node=node)
    clock.trusted(name="The clock is right", node=node)
    identity.claim(name="The host is the one that the document names", node=node)
    identity.unique(name="No other host has its identity", node=node)
    firewall.open_enough(name="No firewall is in the way", node=node)
    swap.off(name="Swap is off, now and at every boot", node=node)
    sysctl.apply(name="Kernel modules and sysctls", node=node)
    needrestart.hands_off(name="Nobody restarts or replaces what the node runs on", node=node)
