"""What the cluster says that it is: cluster-info, kubeadm-config and the UID of kube-system."""

from __future__ import annotations

import base64
from typing import Any

import yaml

from gpurack.cluster.client import Client
from gpurack.decide.certificates import pins
from gpurack.decide.cluster import Identity
from gpurack.errors import Lost, Problem

# What a run asks for: verb, resource, subresource, API group, namespace
RIGHTS = (
    ("list", "nodes", "", "", ""),
    ("patch", "nodes", "", "", ""),
    ("get", "nodes", "proxy", "", ""),
    ("create", "secrets", "", "", "kube-system"),
    ("delete", "secrets", "", "", "kube-system"),
)


def identify(client: Client) -> Identity:
    """Four requests. Raises `Unreachable`, `Denied`, or `Lost` for an answer that can't be read."""
    namespace = client.get("/api/v1/namespaces/kube-system")
    info = client.find("/api/v1/namespaces/kube-public/configmaps/cluster-info")
    config = client.find("/api/v1/namespaces/kube-system/configmaps/kubeadm-config")
    version = client.get("/version")
    try:
        server, published = _published(info)
        cluster = yaml.safe_load(config["data"]["ClusterConfiguration"]) if config else {}
        return Identity(
            name=str(cluster.get("clusterName", "")),
            server=server,
            published=published,
            trusted=pins(client.ca) if client.ca else frozenset(),
            uid=namespace["metadata"]["uid"],
            version=str(version["gitVersion"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise Lost(
            Problem(
                code="E-CLUSTER-09",
                what="the cluster's description of itself can't be read",
                found=f"{type(error).__name__} in cluster-info, kubeadm-config or /version",
                next="kubectl -n kube-public get cm cluster-info -o yaml",
            )
        ) from error


def missing_rights(client: Client) -> tuple[str, ...]:
    """What the credential may not do of all that a run needs, as a person would say it (O-37)."""
    missing = []
    for verb, resource, subresource, group, namespace in RIGHTS:
        attributes = {"verb": verb, "resource": resource, "group": group, "namespace": namespace}
        answer = client.create(
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": attributes | {"subresource": subresource}},
            },
        )
        if not answer["status"]["allowed"]:
            where = f" in {namespace}" if namespace else ""
            missing.append(f"{verb} {resource}{'/' + subresource if subresource else ''}{where}")
    return tuple(missing)


def _published(info: dict[str, Any] | None) -> tuple[str, frozenset[str]]:
    if info is None:
        return "", frozenset()
    cluster = yaml.safe_load(info["data"]["kubeconfig"])["clusters"][0]["cluster"]
    ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
    return str(cluster["server"]), pins(ca)
