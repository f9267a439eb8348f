"""What pydantic can't see: names that collide, networks that overlap, policies that kubelet would refuse."""

from __future__ import annotations

from gpurack.site.checks import hosts, networks, numa, pools, secrets, sources, stack
from gpurack.site.draft import Draft


def run(draft: Draft) -> None:
    """Add the problems of all checks to the draft's document."""
    for check in (
        secrets.check,
        stack.check,
        sources.check,
        networks.check,
        pools.check,
        numa.check,
        hosts.check,
    ):
        check(draft)
