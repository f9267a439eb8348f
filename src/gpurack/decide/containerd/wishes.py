"""What the site document and its stack want of containerd on one host."""

from __future__ import annotations

from gpurack.decide.containerd.models import RegistryHosts, Version, Wanted
from gpurack.site.checks.networks import split_endpoint
from gpurack.site.models import Node


def wanted(
    node: Node, *, proxy: str | None, ca_bundle: str | None, registries: tuple[RegistryHosts, ...]
) -> Wanted:
    """The view of `node`, with references already resolved and files already read by the caller."""
    site = node.site
    return Wanted(
        version=version_of(site.stack.containerd),
        sandbox=f"{site.sources.image_repository}/pause:{site.stack.images.pause}",
        proxy=proxy,
        no_proxy=no_proxy(node) if proxy else (),
        ca_bundle=ca_bundle,
        registries=registries,
    )


def version_of(text: str) -> Version:
    """`2.2.9` -> (2, 2, 9)."""
    return tuple(int(part) for part in text.split("."))


def no_proxy(node: Node) -> tuple[str, ...]:
    """What containerd reaches without the proxy, without doubles, in a stable order.

    Of the nodes only this one and the control planes: containerd talks to registries, and a list of all nodes
    would make every containerd of the site restart whenever a host is added.
    """
    site = node.site
    hosts = [host for host in site.hosts if host.role == "control-plane" or host.name == node.name]
    entries = [
        "localhost",
        "127.0.0.1",
        "::1",
        ".svc",
        ".cluster.local",
        *map(str, site.cluster.pod_cidrs),
        *map(str, site.cluster.service_cidrs),
        split_endpoint(site.cluster.endpoint)[0],
        *(str(address) for host in hosts for address in host.addresses),
        *site.sources.no_proxy,
    ]
    return tuple(dict.fromkeys(entries))
