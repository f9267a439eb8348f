"""No host of a run is another host of it, or a node of the cluster under another name (R56, O-35)."""

from __future__ import annotations

from collections.abc import Iterator

from pyinfra.api.command import PyinfraCommand
from pyinfra.api.operation import operation

from gpurack.decide import identity as thought
from gpurack.decide.decision import settled
from gpurack.decide.identity import Claim, Member
from gpurack.engine import carry_out, executing, guarded, read, shared
from gpurack.facts.identity import HostIdentity
from gpurack.facts.kubeadm import KubeadmTraces
from gpurack.operations import cluster
from gpurack.site.models import Node

_CLAIMS = "identities"


@operation()
@guarded
def claim(*, node: Node) -> Iterator[PyinfraCommand]:
    """Ask the host who it is, for `unique`; refuse one without machine-id or without its declared addresses.

    + node: host, pool and site
    """
    mine = Claim(name=node.name, addresses=node.host.addresses, found=read(HostIdentity))
    yield from carry_out(thought.alone(mine))
    shared(_CLAIMS)[node.name] = mine


@operation()
@guarded
def unique(*, node: Node) -> Iterator[PyinfraCommand]:
    """Refuse a host whose identity another host of this run, or another node of the cluster, has as well.

    Judged while executing: only there have all hosts been asked before the first one is judged.

    + node: host, pool and site
    """
    if not executing():
        yield from carry_out(settled("judged once every host of the run has been asked"))
        return
    _, known = cluster.asked()
    myself = cluster.called(node, read(KubeadmTraces), known)
    members = [
        Member(
            # A Node of this very machine under the name that it was joined with is no second one (O-38).
            name=node.name if name == myself else name,
            machine_id=found.machine_id,
            product_uuid=found.system_uuid,
            addresses=found.addresses,
        )
        for name, found in known.items()
    ]
    claims = shared(_CLAIMS).values()
    yield from carry_out(thought.among(node.name, claims, members, node.site.accept))
