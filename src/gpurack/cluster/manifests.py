"""A manifest file applied to the cluster once per content: server-side apply with strict field validation."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

from gpurack.cluster.client import Client
from gpurack.errors import BadInput, Problem, Where

MANAGER = "gpurack"
APPLIED = (
    "/api/v1/namespaces/kube-system/configmaps/gpurack-manifests"  # remembers what was applied, by purpose
)


def checked(path: Path, wanted: str) -> list[dict[str, Any]]:
    """The objects of the file, if its SHA-256 is `wanted`; `BadInput` otherwise."""
    content = path.read_bytes()
    found = sha256(content).hexdigest()
    if found != wanted.lower():
        raise BadInput(
            Problem(
                code="E-CNI-02",
                what="the manifest is not the one that the site document names",
                where=Where(file=str(path)),
                found=f"sha256 {found}",
                wanted=f"sha256 {wanted}",
                next="compare the file with its source; then correct cluster.cni.manifest.sha256",
            )
        )
    return [item for item in yaml.safe_load_all(content) if item]


def is_applied(client: Client, purpose: str, digest: str) -> bool:
    """Whether the file with this digest was the last one applied for `purpose`."""
    record = client.find(APPLIED)
    return bool(record and record.get("data", {}).get(purpose) == digest.lower())


def apply(client: Client, purpose: str, objects: list[dict[str, Any]], digest: str) -> None:
    """Apply all objects in the order of the file, then remember that it was done."""
    kinds: dict[str, dict[str, tuple[str, bool]]] = {}
    for item in objects:
        version = item["apiVersion"]
        root = f"/api/{version}" if "/" not in version else f"/apis/{version}"
        if item["kind"] not in kinds.get(root, {}):  # a CRD earlier in the file may have just brought it
            kinds[root] = _kinds(client, root)
        plural, namespaced = kinds[root][item["kind"]]
        namespace = item["metadata"].get("namespace", "default")
        place = f"{root}/namespaces/{namespace}/{plural}" if namespaced else f"{root}/{plural}"
        client.apply(f"{place}/{item['metadata']['name']}", item, manager=MANAGER)
    record = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "gpurack-manifests", "namespace": "kube-system"},
        "data": {purpose: digest.lower()},
    }
    client.apply(APPLIED, record, manager=f"{MANAGER}-{purpose}")


def _kinds(client: Client, root: str) -> dict[str, tuple[str, bool]]:
    return {
        item["kind"]: (item["name"], bool(item["namespaced"]))
        for item in client.get(root)["resources"]
        if "/" not in item["name"]
    }
