"""The cluster's networks and its endpoint."""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address
from itertools import combinations

from gpurack.site.document import Path_
from gpurack.site.draft import Draft
from gpurack.site.fields import Network
from gpurack.site.models import Cluster
from gpurack.site.names import label_key_fault, node_name_fault

_NODE_BITS = {4: 24, 6: 64}  # what the controller manager cuts out of the pods' network for each node


def check(draft: Draft) -> None:
    cluster = draft.cluster
    if cluster is None:
        return
    if label_key_fault(cluster.name) or "/" in cluster.name:
        draft.add(
            "E-SITE-24", f"{cluster.name!r} can't name a cluster", ("cluster", "name"), wanted="such as lab"
        )
    _endpoint(cluster, draft)
    _families(cluster, draft)
    _overlaps(cluster, draft)
    _room(cluster, draft)
    _hosts(cluster, draft)


def split_endpoint(endpoint: str) -> tuple[str, int]:
    """Host (without brackets) and port of `name:port`, `10.0.0.1:6443` or `[2001:db8::1]:6443`.

    `ValueError` for anything else.
    """
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\[\]\s/]+)):(\d{1,5})", endpoint, re.ASCII)
    if match is None or not 1 <= int(match[3]) <= 65535:
        raise ValueError(endpoint)
    if match[1]:
        return str(ip_address(match[1])), int(match[3])
    return match[2], int(match[3])


def _endpoint(cluster: Cluster, draft: Draft) -> None:
    path: Path_ = ("cluster", "endpoint")
    endpoint = cluster.endpoint
    try:
        host, _ = split_endpoint(endpoint)
    except ValueError:
        draft.add(
            "E-SITE-25",
            f"{endpoint!r} is no endpoint",
            path,
            wanted="name:port, or [IPv6 address]:port",
            rule="O-32: an IPv6 address needs brackets before its port" if endpoint.count(":") > 1 else None,
            next=_proposed_endpoint(endpoint),
        )
        return
    is_name = not re.fullmatch(r"[0-9.]+|.*:.*", host)
    try:
        wrong = node_name_fault(host.lower()) if is_name else ip_address(host) and None
    except ValueError:
        wrong = "is no address"
    if wrong:
        draft.add("E-SITE-25", f"the endpoint's host {host!r} {wrong}", path)
        return
    planes = sum(other.role == "control-plane" for other in draft.hosts)
    owner = next((o for o in draft.hosts if host.lower() in (o.name, *map(str, o.addresses))), None)
    if owner is not None and owner.role == "gpu":
        draft.add(
            "E-SITE-28",
            f"the endpoint is the GPU host {owner.name}",
            path,
            wanted="the address of the control plane, or a name or virtual address in front of it",
        )
    elif owner is not None and planes > 1:
        draft.add(
            "E-SITE-26",
            f"{planes} control planes, but the endpoint is one of them, {owner.name}",
            path,
            wanted="a name or virtual address that moves to a living control plane",
            rule="the endpoint stands in the certificate and in every kubelet.conf; it is for good",
        )


def _proposed_endpoint(endpoint: str) -> str | None:
    """`2001:db8::19e` or `2001:db8::19e:6443` with brackets, once; a name without its port with 6443."""
    if "/" in endpoint:
        return "leave out the scheme and the path"
    bare = endpoint.strip("[]")
    head, _, port = bare.rpartition(":")
    # Of two readings the one with a port is likelier: who writes an endpoint means to end it with one.
    for text, number in ((head, port), (bare, "6443")):
        try:
            if ip_address(text).version == 6 and number.isdecimal() and int(number) > 1023:
                return f'write "[{text}]:{number}"'
        except ValueError:
            continue
    return f"write {endpoint}:6443" if endpoint and ":" not in endpoint else None


def _families(cluster: Cluster, draft: Draft) -> None:
    families = {}
    for field in ("pod_cidrs", "service_cidrs"):
        networks: tuple[Network, ...] = getattr(cluster, field)
        families[field] = [network.version for network in networks]
        if len(set(families[field])) != len(networks):
            draft.add(
                "E-SITE-22",
                f"cluster.{field} has two networks of one family",
                ("cluster", field),
                wanted="one network, or one IPv4 and one IPv6 (dual stack)",
            )
    if families["pod_cidrs"] != families["service_cidrs"]:
        draft.add(
            "E-SITE-22",
            "pods and services differ in their address families or in their order",
            ("cluster", "service_cidrs"),
            found=f"pods IPv{', IPv'.join(map(str, families['pod_cidrs']))}; "
            f"services IPv{', IPv'.join(map(str, families['service_cidrs']))}",
        )


def _overlaps(cluster: Cluster, draft: Draft) -> None:
    named: list[tuple[Path_, Network]] = [
        (("cluster", field, index), network)
        for field in ("pod_cidrs", "service_cidrs")
        for index, network in enumerate(getattr(cluster, field))
    ]
    for (path, one), (other_path, other) in combinations(named, 2):
        if one.version == other.version and one.overlaps(other):
            draft.add(
                "E-SITE-21",
                f"{one} (pods or services) and {other} overlap",
                other_path,
                found=f"{path[1]} {one}",
            )
    for index, host in enumerate(draft.hosts):
        for address in host.addresses:
            for path, network in named:
                if address in network:
                    draft.add(
                        "E-SITE-23",
                        f"the address {address} lies inside the cluster's own network {network}",
                        (*draft.entry(index), "address"),
                        host=host.name,
                        found=f"cluster.{path[1]}",
                        next="choose a network for the cluster that no machine has",
                    )


def _room(cluster: Cluster, draft: Draft) -> None:
    for index, network in enumerate(cluster.pod_cidrs):
        bits = _NODE_BITS[network.version] - network.prefixlen
        room = 2**bits if bits >= 0 else 0
        if len(draft.hosts) > room or not room:
            draft.add(
                "E-SITE-27",
                f"{network} has room for {room} nodes; the document has {len(draft.hosts)}",
                ("cluster", "pod_cidrs", index),
                rule=f"each node gets a /{_NODE_BITS[network.version]} of it",
            )
        elif bits > 16:
            draft.add(
                "E-SITE-27",
                f"{network} is more than 16 bits wider than a node's /{_NODE_BITS[network.version]}",
                ("cluster", "pod_cidrs", index),
                rule="kubeadm refuses it",
            )
    for index, network in enumerate(cluster.service_cidrs):
        if network.max_prefixlen - network.prefixlen > 20:
            draft.add(
                "E-SITE-27",
                f"{network} is too wide for services",
                ("cluster", "service_cidrs", index),
                wanted=f"/{network.max_prefixlen - 20} or narrower",
                rule="kubeadm refuses more than 20 bits",
            )


def _hosts(cluster: Cluster, draft: Draft) -> None:
    """Node addresses have the cluster's families: a pair if and only if the cluster is dual stack."""
    wanted = {network.version for network in cluster.pod_cidrs}
    for index, host in enumerate(draft.hosts):
        found = [address.version for address in host.addresses]
        if len(set(found)) != len(found) or set(found) != wanted:
            draft.add(
                "E-SITE-18",
                f"the host has {_said(found)}, but the cluster's networks are {_said(sorted(wanted))}",
                (*draft.entry(index), "address"),
                host=host.name,
                wanted="one IPv4 and one IPv6 address"
                if len(wanted) == 2
                else f"one {_said(sorted(wanted))} address",
            )


def _said(versions: Iterable[int]) -> str:
    return " and ".join(f"IPv{version}" for version in versions)
