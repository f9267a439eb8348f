"""Documents of kind KubeletConfiguration: how kubelet reads and merges them, and the one that we lay down."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from gpurack.decide.kubelet.fields import FIELDS, nearest
from gpurack.decide.numa import Reservation, format_cpus
from gpurack.defaults import KUBELET_EVICTION_SIGNALS
from gpurack.site.models import NumaPolicy
from gpurack.site.quantity import format_bytes

Values = dict[str, Any]

API_VERSION = "kubelet.config.k8s.io/v1beta1"
KIND = "KubeletConfiguration"
HEADER = "# Managed by gpurack (role kubelet); changes here are put back.\n"
# Kubelet's own values for what a document leaves out, where a comparison needs them.
DEFAULTS: Values = {
    "cpuManagerPolicy": "none",
    "memoryManagerPolicy": "None",
    "topologyManagerPolicy": "none",
    "topologyManagerScope": "container",
}
# What the guide, and people, append to config.yaml by hand.
APPENDED = frozenset(
    {
        "cpuManagerPolicy",
        "cpuManagerPolicyOptions",
        "memoryManagerPolicy",
        "topologyManagerPolicy",
        "topologyManagerPolicyOptions",
        "topologyManagerScope",
        "reservedMemory",
        "reservedSystemCPUs",
    }
)
# A change of any of these moves pods, so running ones have to go first (R18, R19).
PLACEMENT = APPENDED | {"kubeReserved", "systemReserved"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One file as kubelet would take it.

    + values: what the lenient decoder makes of it: the last of duplicate keys wins (R24)
    + duplicates: keys given more than once
    + broken: why it can't be read at all
    """

    values: Values = field(default_factory=dict)
    duplicates: tuple[str, ...] = ()
    broken: str | None = None

    @property
    def is_config(self) -> bool:
        """It names its kind; a drop-in without is fatal (R24)."""
        return self.values.get("apiVersion") == API_VERSION and self.values.get("kind") == KIND

    @property
    def unknown(self) -> dict[str, str | None]:
        """Top-level keys that kubelet drops without a word, with the key that was probably meant."""
        return {key: nearest(key) for key in self.values if key not in FIELDS}


class _Lenient(yaml.SafeLoader):
    """Remembers the duplicate keys that PyYAML, like kubelet, silently overwrites."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.duplicates: list[str] = []

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            name = str(key.value)
            if name in seen and name not in self.duplicates:
                self.duplicates.append(name)
            seen.add(name)
        return super().construct_mapping(node, deep=deep)


def parse_document(text: str) -> Document:
    """Any text is a document; what can't be read says why."""
    try:
        loader = _Lenient(text)
        values = loader.get_single_data()
    except (yaml.YAMLError, ValueError, TypeError, AttributeError) as error:
        return Document(broken=" ".join(str(error).split()))
    if not isinstance(values, dict):
        return Document(broken="empty" if values is None else "no mapping")
    return Document(
        values={str(key): value for key, value in values.items()}, duplicates=tuple(loader.duplicates)
    )


def merge(base: Mapping[str, Any], patch: Mapping[str, Any]) -> Values:
    """JSON merge patch, which is how kubelet lays a drop-in over the rest (R28): null removes."""
    merged = dict(base)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            below = merged.get(key)
            merged[key] = merge(below if isinstance(below, Mapping) else {}, value)
        else:
            merged[key] = value
    return merged


def effective(documents: Iterable[Document]) -> Values:
    """What kubelet runs with: the documents in order, kubelet's defaults below them."""
    merged: Values = {}
    for document in documents:
        merged = merge(merged, document.values)
    return {**DEFAULTS, **merged}


# ---------------------------------------------------------------------------------------- ours
def drop_in(policy: NumaPolicy, reservation: Reservation, below: Mapping[str, Any]) -> Values:
    """What we lay down for `policy`.

    + below: effective values of everything that kubelet reads before our file; options left in there are
      removed, for a merge would keep them and an option under policy none is fatal (R14)
    """
    values: Values = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "cpuManagerPolicy": policy.cpu,
        "cpuManagerPolicyOptions": _options(policy.cpu_options, below.get("cpuManagerPolicyOptions")),
        "memoryManagerPolicy": policy.memory,
        "topologyManagerPolicy": policy.topology,
        "topologyManagerPolicyOptions": _options(
            policy.topology_options, below.get("topologyManagerPolicyOptions")
        ),
        "topologyManagerScope": policy.scope,
    }
    if reservation.cpus:
        values["reservedSystemCPUs"] = format_cpus(reservation.cpus)
    reserved = policy.reserved
    # Under Static these are terms of the equality, so a zero is written too: a value from below breaks it.
    for key, size in (("kubeReserved", reserved.kube_memory), ("systemReserved", reserved.system_memory)):
        if size or policy.memory == "Static":
            values[key] = {"memory": format_bytes(size)}
    threshold = reserved.eviction_memory
    values["evictionHard"] = {
        "memory.available": threshold if isinstance(threshold, str) else format_bytes(threshold),
        **KUBELET_EVICTION_SIGNALS,
    }
    if policy.memory == "Static":
        values["reservedMemory"] = [
            {"numaNode": node, "limits": {"memory": format_bytes(size)}}
            for node, size in sorted(reservation.memory.items())
        ]
    return values


def _options(wanted: Mapping[str, str], below: object) -> dict[str, str | None] | None:
    """Exactly `wanted` after the merge; null as a whole where nothing is wanted."""
    if not wanted:
        return None
    stale = [key for key in below if key not in wanted] if isinstance(below, Mapping) else []
    return {**dict(sorted(wanted.items())), **dict.fromkeys(sorted(stale))}


def render(values: Mapping[str, Any]) -> str:
    """The text of a drop-in, in kubelet's own kind of YAML."""
    return HEADER + yaml.safe_dump(dict(values), sort_keys=False, default_flow_style=False)


def overriding(ours: Mapping[str, Any], later: Mapping[str, Any]) -> tuple[str, ...]:
    """Keys of ours to which a later drop-in gives another value; maps are compared key by key."""
    names: list[str] = []
    for key, value in later.items():
        if key in ("apiVersion", "kind") or key not in ours:
            continue
        mine = ours[key]
        if isinstance(mine, Mapping) and isinstance(value, Mapping):
            names += [f"{key}.{name}" for name in overriding(mine, value)]
        elif mine != value:
            names.append(key)
    return tuple(names)


# ---------------------------------------------------------------------------------------- the guide's repair
def without_appended(text: str) -> str | None:
    """config.yaml without what `tee -a` put behind it, or None when there is nothing of that kind.

    kubeadm writes its keys in order, so appended are those of `APPENDED` that come again or out of order.
    Nothing else is touched; `ValueError` when the rest would not be a clean document.
    """
    blocks = _blocks(text)
    kept: list[str] = []
    dropped = False
    last = ""
    seen: set[str] = set()
    for key, block in blocks:
        if key in APPENDED and (key in seen or key < last):
            dropped = True
            continue
        if key:
            last = max(last, key)
            seen.add(key)
        kept.append(block)
    if not dropped:
        return None
    rest = "".join(kept)
    document = parse_document(rest)
    if document.broken or document.duplicates:
        raise ValueError(document.broken or f"keys given twice: {', '.join(document.duplicates)}")
    return rest


def _blocks(text: str) -> list[tuple[str, str]]:
    """Top-level entries of a YAML mapping with their lines; what is no entry has the key ''."""
    blocks: list[tuple[str, str]] = []
    for line in text.splitlines(keepends=True):
        match = re.match(r"([A-Za-z][\w.]*)\s*:", line)
        if match:
            blocks.append((match[1], line))
        elif blocks and blocks[-1][0] and not line.startswith(("#", "---", "...")):
            blocks[-1] = blocks[-1][0], blocks[-1][1] + line
        else:
            blocks.append(("", line))
    return blocks
