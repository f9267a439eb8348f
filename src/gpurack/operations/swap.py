"""Swap off, now and at every boot."""

from __future__ import annotations

from collections.abc import Iterator

from pyinfra.api.command import PyinfraCommand
from pyinfra.api.operation import operation

from gpurack.decide import swap as thought
from gpurack.engine import guarded, read
from gpurack.facts.swap import SwapSources
from gpurack.operations.proving import until_settled
from gpurack.site.models import Node


@operation()
@guarded
def off(*, node: Node) -> Iterator[PyinfraCommand]:
    """Turn swap off and keep every source of it from bringing it back (R62, O-40, O-41).

    + node: the host; its site may accept `shared-kernel`
    """
    yield from until_settled(lambda: thought.off(node.site.accept, read(SwapSources)))
