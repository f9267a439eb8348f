"""Operation: the API endpoint's name resolves on the host."""

from __future__ import annotations

from collections.abc import Iterator

from pyinfra.api.command import PyinfraCommand
from pyinfra.api.operation import operation

from gpurack.decide import endpoint as thought
from gpurack.decide import names
from gpurack.decide.decision import refuse, settled
from gpurack.engine import carry_out, guarded, read
from gpurack.errors import Problem
from gpurack.facts.names import HostsFile
from gpurack.site.models import Node


@operation()
@guarded
def endpoint(*, node: Node) -> Iterator[PyinfraCommand]:
    """Make the endpoint's name resolve: by DNS if that knows it, else by a block of ours in /etc/hosts."""
    place = thought.parse(node.site.cluster.endpoint)
    if place.is_address:
        yield from carry_out(settled("the endpoint is an address"))
        return
    found = read(HostsFile, wanted=place.host)
    first = next((host.address for host in node.site.hosts if host.role == "control-plane"), None)
    if first is None:
        # The cluster was built by others: only they know where its API is.
        yield from carry_out(settled("resolves") if found.resolved else refuse(_unresolved(place.host)))
        return
    yield from carry_out(names.endpoint(name=place.host, address=first, found=found))


def _unresolved(name: str) -> Problem:
    return Problem(
        code="E-NAME-02",
        what="the API endpoint's name does not resolve on the host",
        found=name,
        next="put it into the site's DNS; the site document has no control plane to map it to",
    )
