"""Helpers of the distribution keep their hands off our services and packages."""

from __future__ import annotations

from collections.abc import Iterator

from pyinfra.api.command import PyinfraCommand
from pyinfra.api.operation import operation

from gpurack.decide import files
from gpurack.decide import needrestart as thought
from gpurack.engine import guarded, read
from gpurack.facts.needrestart import QuietFiles
from gpurack.operations.proving import until_settled
from gpurack.site.models import Node


@operation()
@guarded
def hands_off(*, node: Node) -> Iterator[PyinfraCommand]:
    """Tell needrestart which services it never restarts, and unattended-upgrades what it never replaces.

    + node: the host and its role (R68, R69)
    """
    yield from until_settled(lambda: files.lay(thought.files(node.role), read(QuietFiles)))
