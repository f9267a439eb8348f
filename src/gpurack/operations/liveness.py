"""Operation: find out whether the host is live, first thing in every deploy."""

from __future__ import annotations

from collections.abc import Iterator

from pyinfra.api.command import PyinfraCommand
from pyinfra.api.operation import operation

from gpurack.decide import kubeadm, liveness
from gpurack.decide.decision import settled
from gpurack.engine import carry_out, guarded, read, set_live
from gpurack.facts.kubeadm import KubeadmTraces
from gpurack.facts.liveness import LiveSigns
from gpurack.operations import cluster
from gpurack.site.models import Node


@operation()
@guarded
def observe(*, node: Node) -> Iterator[PyinfraCommand]:
    """Record whether the host serves workloads: everything that could disturb it is owed from here on.

    Changes nothing. When it fails, nothing was recorded, and that counts as live.
    """
    found = read(KubeadmTraces)
    api, known = cluster.asked()
    mine = known.get(cluster.called(node, found, known))
    live, why = liveness.judge(
        read(LiveSigns),
        member=found.member,
        api=api,
        node=mine if mine and kubeadm.same_machine(found, mine) else None,
    )
    set_live(live, why)
    yield from carry_out(settled(why))
