"""A firewall on the host lets Kubernetes through."""

from __future__ import annotations

from collections.abc import Iterator

from pyinfra.api.command import PyinfraCommand
from pyinfra.api.operation import operation

from gpurack.decide import firewall as thought
from gpurack.engine import carry_out, guarded, read
from gpurack.facts.firewall import Firewalls
from gpurack.site.models import Node


@operation()
@guarded
def open_enough(*, node: Node) -> Iterator[PyinfraCommand]:
    """Refuse an active firewall that blocks a port of the host's role, with the rule to add (R65).

    + node: the host and its role
    """
    planes = sum(host.role == "control-plane" for host in node.site.hosts)
    yield from carry_out(thought.judge(node.role, planes > 1, read(Firewalls)))
