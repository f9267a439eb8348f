"""Nodes: listed once, waited for by name, patched with our labels and taints, asked for configz."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from gpurack.cluster.client import Client, Denied, Unreachable
from gpurack.decide import node as thought
from gpurack.decide.node import NodeInApi, Patch, Taint
from gpurack.errors import Lost, Problem, Refused

NODES = "/api/v1/nodes"
PAGE = "500"  # nodes per answer; a thousand nodes are about 10 MiB of JSON
EVERY = 0.5  # seconds between looks while something is waited for
CONFLICTS = 5  # tries to patch a Node that others write at the same time


def every(client: Client) -> dict[str, NodeInApi]:
    """All Nodes by name."""
    found: dict[str, NodeInApi] = {}
    more = ""
    while True:
        query = {"limit": PAGE} | ({"continue": more} if more else {})
        answer = client.get(NODES, **query)
        found |= {node.name: node for node in map(thought.parse, answer["items"])}
        more = answer["metadata"].get("continue", "")
        if not more:
            return found


def one(client: Client, name: str) -> NodeInApi | None:
    """The Node called `name` as it is now, or `None`."""
    item = client.find(f"{NODES}/{name}")
    return thought.parse(item) if item else None


def wait(
    client: Client, name: str, *, until: Callable[[NodeInApi], bool], reason: str, deadline: float
) -> NodeInApi:
    """The Node once `until` holds for it.

    + reason: what is waited for; + deadline: seconds

    An API server that is gone for a moment is waited out too. Raises `Refused` at the deadline, with what was
    seen last.
    """
    end = time.monotonic() + deadline
    found: NodeInApi | None = None
    lost: Unreachable | None = None
    while True:
        try:
            found, lost = one(client, name), None
        except Unreachable as error:
            lost = error
        if found and not lost and until(found):
            return found
        if time.monotonic() >= end:
            break
        time.sleep(EVERY)
    if lost:
        raise lost
    raise Refused(
        Problem(
            code="E-JOIN-10",
            what=f"{reason}: not within {deadline:.0f} s",
            found=seen(found),
            wanted=reason,
            rule="R39: a join that exits 0 does not mean that the Node exists; R20: nor that it stays",
            next=f"journalctl -u kubelet -n 50 on {name}; kubectl describe node {name}",
        )
    )


def converge(client: Client, name: str, *, labels: dict[str, str], taints: tuple[Taint, ...]) -> None:
    """Patch the Node until it carries our labels and taints; reads it anew when somebody wrote in between."""
    for attempt in range(1, CONFLICTS + 1):
        found = one(client, name)
        if found is None:
            raise Lost(Problem(code="E-JOIN-09", what=f"the Node {name} is not in the cluster"))
        patch = thought.converge(labels=labels, taints=taints, found=found)
        if not patch:
            return
        try:
            send(client, name, patch)
        except Denied as denied:
            if denied.status != 409 or attempt == CONFLICTS:
                raise
        else:
            return


def send(client: Client, name: str, patch: Patch) -> None:
    client.merge(f"{NODES}/{name}", patch.body or {})


def configz(client: Client, name: str) -> dict[str, Any]:
    """kubelet's effective configuration (R22): file, drop-ins and flags; not `cgroupDriver` before 1.35.

    Needs `get` on `nodes/proxy`.
    """
    return dict(client.get(f"{NODES}/{name}/proxy/configz")["kubeletconfig"])


def seen(node: NodeInApi | None) -> str:
    """A Node in one phrase for a person."""
    if node is None:
        return "no such Node"
    state = "Ready" if node.ready else f"NotReady ({node.message or 'no condition yet'})"
    return f"{node.name} {state}, machineID {node.machine_id}, InternalIP {', '.join(node.addresses)}"
