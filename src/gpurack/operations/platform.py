"""The operating system is one that gpurack prepares."""

from __future__ import annotations

from collections.abc import Iterator

from pyinfra.api.command import PyinfraCommand
from pyinfra.api.operation import operation

from gpurack.decide import platform as thought
from gpurack.engine import carry_out, guarded, read
from gpurack.facts.platform import HostPlatform
from gpurack.site.models import Node


@operation()
@guarded
def supported(*, node: Node) -> Iterator[PyinfraCommand]:
    """Refuse another operating system, cgroup v1, a container, full disks: unless the site accepts the gate.

    + node: the host; its site says which gates are accepted
    """
    yield from carry_out(thought.judge(node.site.accept, read(HostPlatform)))
