"""The host knows what time it is."""

from __future__ import annotations

from collections.abc import Iterator

from pyinfra.api.command import PyinfraCommand
from pyinfra.api.operation import operation

from gpurack.decide import clock as thought
from gpurack.engine import carry_out, guarded, read
from gpurack.facts.clock import HostClock
from gpurack.site.models import Node


@operation()
@guarded
def trusted(*, node: Node) -> Iterator[PyinfraCommand]:
    """Refuse a clock that is wrong, not synchronised, or set by two services (R64). Changes nothing.

    + node: the host; its site may accept `clock-not-synchronised`
    """
    yield from carry_out(thought.judge(node.site.accept, read(HostClock)))
