"""A Node as the API has it, and what it takes to give it the pool's labels and taints (R46-R48, O-37).

Labels and taints go through the API: kubelet may not set most of them, and only sets them at creation (R47).
An annotation of ours lists the keys that we put there, so that a key taken out of the site document goes away
and a key of somebody else never does.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from gpurack.decide.certificates import Damaged

OWNER = "gpurack.io/owns"


@dataclass(frozen=True, slots=True)
class Taint:
    """Key and effect name a taint; the value belongs to it."""

    key: str
    effect: str
    value: str = ""

    @property
    def id(self) -> str:
        return f"{self.key}:{self.effect}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInApi:
    """+ taints: those of Kubernetes itself (`node.kubernetes.io/not-ready` ...) included;
    + owned: what our annotation lists; + message: why it is not Ready."""

    name: str
    ready: bool
    machine_id: str
    system_uuid: str
    kubelet_version: str
    addresses: tuple[str, ...]
    labels: dict[str, str]
    taints: tuple[Taint, ...] = ()
    owned: Owned | Damaged | None = None
    unschedulable: bool = False
    pod_cidrs: tuple[str, ...] = ()
    resource_version: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """Keys that gpurack put on a Node. + taints: as `key:effect`."""

    labels: frozenset[str] = frozenset()
    taints: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return json.dumps({"labels": sorted(self.labels), "taints": sorted(self.taints)}, sort_keys=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """A JSON merge patch for one Node. Falsy when there is nothing to change.

    + reason: one phrase for people
    """

    reason: str
    body: dict[str, Any] | None = None

    def __bool__(self) -> bool:
        return self.body is not None


def converge(*, labels: dict[str, str], taints: tuple[Taint, ...], found: NodeInApi) -> Patch:
    """What to send so that the Node carries our `labels` and `taints`, and those of others as they are."""
    # A damaged annotation does not say what is ours: nothing is removed, and the annotation is rewritten.
    before = found.owned if isinstance(found.owned, Owned) else Owned()
    after = Owned(labels=frozenset(labels), taints=frozenset(taint.id for taint in taints))
    changed: dict[str, str | None] = {
        key: value for key, value in labels.items() if found.labels.get(key) != value
    }
    changed |= dict.fromkeys(sorted((before.labels - after.labels) & found.labels.keys()))
    foreign = tuple(taint for taint in found.taints if taint.id not in before.taints | after.taints)
    kept = (*foreign, *taints)
    body: dict[str, Any] = {}
    if changed:
        body.setdefault("metadata", {})["labels"] = changed
    if after != before or isinstance(found.owned, Damaged):
        body.setdefault("metadata", {})["annotations"] = {OWNER: str(after) if labels or taints else None}
    if set(kept) != set(found.taints):
        # The list of taints is replaced as a whole, so the version guards against a writer in between.
        body.setdefault("metadata", {})["resourceVersion"] = found.resource_version
        body["spec"] = {"taints": [_written(taint) for taint in kept]}
    if not body:
        return Patch(reason="labels and taints are as the pool wants them")
    names = [*changed, *sorted(taint.id for taint in set(kept) ^ set(found.taints))]
    return Patch(reason="converge " + (", ".join(names) or "the list of keys that are ours"), body=body)


def parse(item: dict[str, Any]) -> NodeInApi:
    """One Node object of the API. `KeyError` or `TypeError` if it is none."""
    metadata, status, spec = item["metadata"], item.get("status", {}), item.get("spec", {})
    ready: dict[str, str] = next((c for c in status.get("conditions", ()) if c["type"] == "Ready"), {})
    info = status.get("nodeInfo", {})
    return NodeInApi(
        name=metadata["name"],
        ready=ready.get("status") == "True",
        machine_id=info.get("machineID", ""),
        system_uuid=info.get("systemUUID", ""),
        kubelet_version=info.get("kubeletVersion", ""),
        addresses=tuple(a["address"] for a in status.get("addresses", ()) if a["type"] == "InternalIP"),
        labels=dict(metadata.get("labels", {})),
        taints=tuple(Taint(t["key"], t["effect"], t.get("value", "")) for t in spec.get("taints", ())),
        owned=_owned(metadata.get("annotations", {}).get(OWNER)),
        unschedulable=bool(spec.get("unschedulable")),
        pod_cidrs=tuple(spec.get("podCIDRs", ())),
        resource_version=str(metadata.get("resourceVersion", "")),
        message=ready.get("message", ""),
    )


def _owned(text: str | None) -> Owned | Damaged | None:
    if text is None:
        return None
    try:
        value = json.loads(text)
        return Owned(labels=frozenset(value["labels"]), taints=frozenset(value["taints"]))
    except (ValueError, KeyError, TypeError):
        return Damaged(reason=f"annotation {OWNER} is not what gpurack writes")


def _written(taint: Taint) -> dict[str, str]:
    written = {"key": taint.key, "effect": taint.effect}
    return written | {"value": taint.value} if taint.value else written
