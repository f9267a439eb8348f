"""The hardware under a GPU driver: compared with what the pool declares, never changed."""

from __future__ import annotations

from collections.abc import Iterator

from pyinfra.api.command import PyinfraCommand
from pyinfra.api.operation import operation

from gpurack.decide import gpu_host as thought
from gpurack.decide.gpu_host import Found
from gpurack.engine import carry_out, guarded, read
from gpurack.facts.numa import Numa
from gpurack.facts.pci import DiskRoom, GpuGround
from gpurack.site.models import Node


@operation()
@guarded
def ready_for_driver(*, node: Node) -> Iterator[PyinfraCommand]:
    """Compare found hardware, firmware and drivers with the pool's declaration. Changes nothing, ever.

    + node: host, pool and site
    """
    paths = tuple(disk.path for disk in node.pool.hardware.disks) if node.pool else ()
    found = Found(
        machine=read(GpuGround),
        topology=read(Numa),
        rooms=read(DiskRoom, paths=paths) if paths else (),
    )
    yield from carry_out(thought.ready_for_driver(node, found))
