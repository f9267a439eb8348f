"""Does a firewall on the host let Kubernetes through (R65)?

gpurack writes no firewall rules: whose they are, and from where they allow, is the site's to say. What is
missing is refused with the command that adds it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpurack.decide.decision import Decision, refuse, settled
from gpurack.errors import Problem

# Ports that other hosts must reach. 10257 and 10259 listen on loopback in a kubeadm cluster.
PORTS: dict[str, dict[int, str]] = {
    "gpu": {10250: "kubelet: logs, exec, metrics"},
    "control-plane": {6443: "API server", 10250: "kubelet: logs, exec, metrics"},
}
ETCD = {2379: "etcd clients", 2380: "etcd peers"}

# firewalld's own service names for what is needed here.
_SERVICES = {
    "kubelet": (10250,),
    "kubelet-worker": (10250, *range(30000, 32768)),
    "kube-apiserver": (6443,),
    "kube-api": (10250,),
    "kube-control-plane": (2379, 2380, 6443, 10250, 10257, 10259),
    "kube-control-plane-secure": (2379, 2380, 6443, 10250, 10257, 10259),
    "etcd-client": (2379,),
    "etcd-server": (2380,),
}
_UFW_RULE = re.compile(
    r"(?P<to>\S.*?)\s{2,}(?P<action>ALLOW|LIMIT)(?: (?P<direction>IN|OUT|FWD))?\s{2,}(?P<source>.+)"
)
_UFW_PORT = re.compile(r"(?:\S+ )?(?P<ports>\d[\d:,]*)(?:/(?P<protocol>tcp|udp))?(?: on \S+)?(?: \(v6\))?")
_UFW_ANY = re.compile(r"Anywhere(?: on \S+)?(?: \(v6\))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ufw:
    """+ status: lines of `ufw status`; + forward: DEFAULT_FORWARD_POLICY."""

    active: bool
    status: tuple[str, ...]
    forward: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Firewalld:
    """The default zone. + target: `default`, `ACCEPT`, ...; + ports: as `10250/tcp`, `30000-32767/tcp`."""

    active: bool
    target: str
    ports: tuple[str, ...]
    services: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Firewall:
    ufw: Ufw
    firewalld: Firewalld


def ufw_opens(status: tuple[str, ...], port: int) -> bool:
    """Whether a rule of `ufw status` lets TCP `port` in, from anywhere or from somewhere."""
    for line in status:
        rule = _UFW_RULE.fullmatch(line.rstrip())
        if not rule or rule["direction"] in ("OUT", "FWD"):
            continue
        if _UFW_ANY.fullmatch(rule["to"]):
            return True
        match = _UFW_PORT.fullmatch(rule["to"])
        if match and match["protocol"] != "udp" and _within(match["ports"], port, ":"):
            return True
    return False


def firewalld_opens(found: Firewalld, port: int) -> bool:
    """Whether the zone lets TCP `port` in."""
    if found.target == "ACCEPT":
        return True
    if any(port in _SERVICES.get(service, ()) for service in found.services):
        return True
    return any(
        text.endswith("/tcp") and _within(text.removesuffix("/tcp"), port, "-") for text in found.ports
    )


def _within(ports: str, port: int, dash: str) -> bool:
    for part in ports.split(","):
        low, _, high = part.partition(dash)
        if int(low) <= port <= int(high or low):
            return True
    return False


def judge(role: str, others: bool, found: Firewall) -> Decision:
    """Whether an active firewall lets in what the role needs. Changes nothing.

    + role: `gpu` or `control-plane`; + others: the cluster has more than one control plane, so etcd has peers
    """
    needed = dict(PORTS[role])
    if role == "control-plane" and others:
        needed |= ETCD
    problems = []
    if found.ufw.active:
        problems += [
            _closed("ufw", port, why, f"ufw allow proto tcp from any to any port {port}")
            for port, why in needed.items()
            if not ufw_opens(found.ufw.status, port)
        ]
        if found.ufw.forward.upper() != "ACCEPT" and not any(
            "ALLOW FWD" in line for line in found.ufw.status
        ):
            problems.append(
                Problem(
                    code="E-FW-02",
                    what="ufw drops what pods send and receive",
                    found=f'DEFAULT_FORWARD_POLICY="{found.ufw.forward}" in /etc/default/ufw',
                    wanted="forwarded traffic of pods let through",
                    rule="R65",
                    next='set DEFAULT_FORWARD_POLICY="ACCEPT" in /etc/default/ufw, or add `ufw route allow` '
                    "rules for the pod networks; then `ufw reload`",
                )
            )
    if found.firewalld.active:
        problems += [
            _closed(
                "firewalld",
                port,
                why,
                f"firewall-cmd --permanent --add-port={port}/tcp && firewall-cmd --reload",
            )
            for port, why in needed.items()
            if not firewalld_opens(found.firewalld, port)
        ]
    if problems:
        return refuse(*problems)
    active = [name for name, on in (("ufw", found.ufw.active), ("firewalld", found.firewalld.active)) if on]
    if active:
        return settled(
            f"{' and '.join(active)} lets Kubernetes through",
            notes=(
                f"{' and '.join(active)} is active: ports of the CNI, NodePorts, exporters are not checked",
            ),
        )
    return settled("neither ufw nor firewalld is active")


def _closed(tool: str, port: int, why: str, cure: str) -> Problem:
    return Problem(
        code="E-FW-01",
        what=f"{tool} is active and lets nothing in on port {port}",
        found=f"no rule of {tool} allows {port}/tcp",
        wanted=f"{port}/tcp open ({why})",
        rule="R65",
        next=cure,
    )
