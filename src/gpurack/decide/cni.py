"""Pod network `bridge`: a conflist with the node's own pod CIDR, and routes to the other nodes' pod CIDRs.

For racks whose hosts share one network segment. Pods leave their node under the node's address (`ipMasq`), so
the network around the rack needs to know nothing of pod addresses.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_network

from gpurack.decide.decision import Decision, Disruption, Reload, Step, Unit, Write, refuse, settled
from gpurack.decide.node import NodeInApi
from gpurack.errors import Problem

FOLDER = "/etc/cni/net.d"
CONFLIST = f"{FOLDER}/10-gpurack.conflist"
ROUTES = "/etc/gpurack/pod-routes"
HELPER = "/usr/local/lib/gpurack/pod-routes"
UNIT_NAME = "gpurack-pod-routes.service"
UNIT = f"/etc/systemd/system/{UNIT_NAME}"
PROTOCOL = 77  # routing protocol number of our routes: unassigned in rtnetlink's registry, so nobody else's
_ROLE = "# Managed by gpurack (role network); changes here are put back.\n"

# Replaces what changed, removes what is ours and no longer listed; routes of others stay. No gap in between.
_SCRIPT = f"""#!/bin/sh
{_ROLE}set -eu
list=$(grep -v '^#' {ROUTES} || true)
echo "$list" | while read -r cidr via; do
  [ -z "$cidr" ] || ip route replace "$cidr" via "$via" proto {PROTOCOL}
done
for family in -4 -6; do
  ip $family route show proto {PROTOCOL} 2>/dev/null | while read -r cidr _; do
    echo "$list" | grep -q "^$cidr " || ip $family route del "$cidr" proto {PROTOCOL}
  done
done
"""
_UNIT = f"""{_ROLE}[Unit]
Description=Routes to the pod networks of the other nodes
After=network-online.target
Wants=network-online.target
ConditionPathExists={ROUTES}

[Service]
Type=oneshot
RemainAfterExit=yes
Restart=on-failure
RestartSec=5
ExecStart={HELPER}

[Install]
WantedBy=multi-user.target
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Laid:
    """What is on the host; `None` for a file that is not there.

    + configs: names in /etc/cni/net.d that containerd reads, in its order
    + state: `ActiveState UnitFileState` of our unit
    """

    conflist: str | None = None
    routes: str | None = None
    helper: str | None = None
    unit: str | None = None
    configs: tuple[str, ...] = ()
    state: str = "inactive"


def routes(me: str, nodes: Iterable[NodeInApi]) -> tuple[tuple[str, str], ...]:
    """`(pod CIDR, address)` of every other node, sorted; a node without a CIDR yet has no route yet."""
    found = []
    for node in nodes:
        if node.name == me:
            continue
        for cidr in node.pod_cidrs:
            version = ip_network(cidr).version
            via = next((a for a in node.addresses if (6 if ":" in a else 4) == version), None)
            if via:
                found.append((cidr, via))
    return tuple(sorted(found))


def conflist(pod_cidrs: tuple[str, ...]) -> str:
    """Bridge, host-local addresses out of the node's pod CIDRs, and port mapping."""
    ranges = [[{"subnet": cidr}] for cidr in pod_cidrs]
    defaults = [{"dst": "::/0" if ":" in cidr else "0.0.0.0/0"} for cidr in pod_cidrs]
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        # A bridge of an earlier life has another gateway address, and the plugin would refuse to add a pod.
        "forceAddress": True,
        "ipMasq": True,
        "hairpinMode": True,
        "ipam": {"type": "host-local", "ranges": ranges, "routes": defaults},
    }
    plugins = [bridge, {"type": "portmap", "capabilities": {"portMappings": True}}]
    return json.dumps({"cniVersion": "1.0.0", "name": "gpurack", "plugins": plugins}, indent=2) + "\n"


def reach(others: tuple[tuple[str, str], ...], found: Laid) -> Decision:
    """Lay the routes to the pods of other nodes, and the unit that keeps them. A route disturbs nobody."""
    lines = "".join(f"{cidr} {via}\n" for cidr, via in others)
    wanted = {
        HELPER: (found.helper, _SCRIPT, 0o755),
        UNIT: (found.unit, _UNIT, 0o644),
        ROUTES: (found.routes, _ROLE + lines, 0o644),
    }
    due = {path: text for path, (now, text, _) in wanted.items() if now != text}
    steps: list[Step] = [Write(path=path, content=due[path], mode=wanted[path][2]) for path in due]
    if UNIT in due:
        steps.append(Reload())
    active, _, enabled = found.state.partition(" ")
    if enabled != "enabled":
        steps.append(Unit(name=UNIT_NAME, verb="enable"))
    if due or active != "active":
        steps.append(Unit(name=UNIT_NAME, verb="restart"))
    if not steps:
        return settled("routes to all pods are laid")
    return Decision(
        reason=f"lay {', '.join(due)}" if due else "start the pod routes",
        steps=tuple(steps),
        disruption=Disruption.UNIT_RELOAD if UNIT in due else Disruption.NONE,
    )


def bridge(pod_cidrs: tuple[str, ...], found: Laid) -> Decision:
    """Lay the conflist, last, because with it the Node turns Ready. Another pod CIDR moves every pod."""
    mine = CONFLIST.rpartition("/")[2]
    rivals = [name for name in found.configs if name < mine]
    if rivals:
        return refuse(
            Problem(
                code="E-CNI-01",
                what="another network's configuration comes before ours, and containerd loads only the first",
                found=", ".join(f"{FOLDER}/{name}" for name in rivals),
                wanted=CONFLIST,
                rule="R58: kubeadm reset leaves /etc/cni/net.d as it is",
                next="remove that file if its network is gone, or say cluster.cni: external",
            )
        )
    wanted = conflist(pod_cidrs)
    if found.conflist == wanted:
        return settled("the pod network is laid")
    return Decision(
        reason=f"pods get addresses of {', '.join(pod_cidrs)}",
        steps=(Write(path=CONFLIST, content=wanted),),
        disruption=Disruption.NONE if found.conflist is None else Disruption.DRAIN,
    )
