"""The documents that kubeadm reads: v1beta4, with the CRI socket and the node's name (R45, R54, R55)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import yaml

from gpurack.decide.node import Taint

CRI_SOCKET = "unix:///run/containerd/containerd.sock"
API = "kubeadm.k8s.io/v1beta4"
# On a tmpfs, because both hold a token: nothing of them survives a reboot.
JOIN_CONFIG = "/run/gpurack/kubeadm-join.yaml"
INIT_CONFIG = "/run/gpurack/kubeadm-init.yaml"

_CONNTRACK_TIMEOUTS = ("tcpEstablishedTimeout", "tcpCloseWaitTimeout")

# What an accepted gate makes of kubeadm's preflight. Never a FileAvailable check (R42).
GATED = {
    "cgroup-v1": ("SystemVerification",),
    "shared-kernel": ("SystemVerification",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """+ endpoint: as in the site document; + pins: of the cluster's CA, any may fit
    + ignore: preflight ids."""

    name: str
    addresses: tuple[str, ...]
    endpoint: str
    token: str = field(repr=False)
    pins: tuple[str, ...]
    taints: tuple[Taint, ...] = ()
    ignore: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Init:
    """+ sans: names and addresses beside those that kubeadm adds itself
    + description: of the bootstrap token that init makes; it lives for `token_life` seconds
    + foreign_conntrack: the kernel's conntrack limits are not the host's own (gate `shared-kernel`)"""

    cluster: str
    version: str
    endpoint: str
    name: str
    addresses: tuple[str, ...]
    sans: tuple[str, ...]
    pod_cidrs: tuple[str, ...]
    service_cidrs: tuple[str, ...]
    image_repository: str
    etcd_tag: str
    coredns_tag: str
    description: str
    token_life: int = 900
    ignore: tuple[str, ...] = ()
    foreign_conntrack: bool = False


def ignored(accept: Collection[str]) -> tuple[str, ...]:
    """Preflight errors that the accepted gates explain, sorted."""
    return tuple(sorted({name for gate in accept for name in GATED.get(gate, ())}))


def join(wanted: Join) -> str:
    """JoinConfiguration. Holds the token: to be written with mode 0600 and removed after the join."""
    registration = _registration(wanted.name, wanted.addresses, wanted.ignore)
    # Registered with its taints, so that no pod slips in before the API side converges them (R47).
    registration["taints"] = [{"key": t.key, "value": t.value, "effect": t.effect} for t in wanted.taints]
    return _written(
        {
            "apiVersion": API,
            "kind": "JoinConfiguration",
            "nodeRegistration": registration,
            "discovery": {
                "bootstrapToken": {
                    "token": wanted.token,
                    "apiServerEndpoint": wanted.endpoint,
                    "caCertHashes": list(wanted.pins),
                }
            },
        }
    )


def init(wanted: Init) -> str:
    """InitConfiguration and ClusterConfiguration. kubeadm makes the token; its secret is not printed."""
    documents: list[dict[str, Any]] = [
        {
            "apiVersion": API,
            "kind": "InitConfiguration",
            # Without an entry kubeadm makes a token that lives for a day.
            "bootstrapTokens": [{"description": wanted.description, "ttl": f"{wanted.token_life}s"}],
            "nodeRegistration": _registration(wanted.name, wanted.addresses, wanted.ignore),
            "localAPIEndpoint": {"advertiseAddress": wanted.addresses[0], "bindPort": 6443},
            "skipPhases": ["show-join-command"],
        },
        {
            "apiVersion": API,
            "kind": "ClusterConfiguration",
            "clusterName": wanted.cluster,
            "kubernetesVersion": f"v{wanted.version}",
            "controlPlaneEndpoint": wanted.endpoint,
            "imageRepository": wanted.image_repository,
            "apiServer": {"certSANs": list(wanted.sans)},
            "networking": {
                "podSubnet": ",".join(wanted.pod_cidrs),
                "serviceSubnet": ",".join(wanted.service_cidrs),
            },
            "etcd": {"local": {"imageTag": wanted.etcd_tag}},
            "dns": {"imageTag": wanted.coredns_tag},
        },
    ]
    if wanted.foreign_conntrack:
        # Zero means "leave it": writing nf_conntrack_max outside the first network namespace is refused.
        documents.append(
            {
                "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
                "kind": "KubeProxyConfiguration",
                "conntrack": {"maxPerCore": 0, "min": 0} | dict.fromkeys(_CONNTRACK_TIMEOUTS, "0s"),
            }
        )
    return "---\n".join(map(_written, documents))


def _registration(name: str, addresses: tuple[str, ...], ignore: tuple[str, ...]) -> dict[str, Any]:
    return {
        "name": name,
        "criSocket": CRI_SOCKET,
        "imagePullPolicy": "IfNotPresent",
        "ignorePreflightErrors": list(ignore),
        "kubeletExtraArgs": [{"name": "node-ip", "value": ",".join(addresses)}],
    }


def _written(document: dict[str, Any]) -> str:
    return yaml.safe_dump(document, sort_keys=False, default_flow_style=False)
