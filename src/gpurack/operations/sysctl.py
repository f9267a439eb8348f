"""Kernel modules and sysctls."""

from __future__ import annotations

from collections.abc import Iterator

from pyinfra.api.command import PyinfraCommand
from pyinfra.api.operation import operation

from gpurack.decide import sysctl as thought
from gpurack.engine import guarded, read
from gpurack.facts.sysctl import KernelSettings
from gpurack.operations.proving import until_settled
from gpurack.site.models import Node


@operation()
@guarded
def apply(*, node: Node) -> Iterator[PyinfraCommand]:
    """Load modules, set sysctls, both now and at every boot, and name what would undo them (R63, O-42).

    + node: the host; its cluster says whether pods have IPv6 addresses
    """
    wanted = thought.wanted(ipv6=any(cidr.version == 6 for cidr in node.site.cluster.pod_cidrs))
    yield from until_settled(lambda: thought.apply(wanted, node.site.accept, read(KernelSettings)))
