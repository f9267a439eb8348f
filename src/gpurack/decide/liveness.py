"""Whether a host serves workloads now: nothing that could disturb them is done to it then (DESIGN.md §3)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from gpurack.decide.node import NodeInApi


class Api(Enum):
    """What the API side could say. NONE: this site has no cluster yet."""

    NONE = "none"
    SILENT = "silent"
    ANSWERS = "answers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """What the host itself shows.

    + workloads: `namespace/pod/container` of running containers; static pods and kube-system do not count
    + blind: containers run (shims do), but the runtime does not say which
    + gpu_users: `pid name` of processes that hold a /dev/nvidia* file
    """

    workloads: tuple[str, ...] = ()
    blind: bool = False
    gpu_users: tuple[str, ...] = ()


def judge(found: Signs, *, member: bool, api: Api, node: NodeInApi | None) -> tuple[bool, str]:
    """Live or not, and how we know.

    + member: the host shows traces of a membership
    + node: the Node that is this very machine, if there is one
    """
    if found.workloads:
        return True, f"{len(found.workloads)} workload containers run, such as {found.workloads[0]}"
    if found.gpu_users:
        return True, f"a process holds a GPU: {found.gpu_users[0]}"
    if found.blind:
        return True, "containers run, and the runtime does not say which"
    if node and node.ready:
        return True, f"the Node {node.name} is Ready"
    # A host that was never a member can't be Ready anywhere, whether the API can be asked or not.
    if member and api is Api.SILENT:
        return True, "the API server can't be asked, and the host was joined"
    return False, "no workload runs, nobody holds a GPU, no Ready Node"
