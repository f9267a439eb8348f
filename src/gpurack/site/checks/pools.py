"""Pools: who uses them, their labels and taints, and whether the declared hardware adds up."""

from __future__ import annotations

from gpurack.site.draft import Draft
from gpurack.site.models import Pool
from gpurack.site.names import KUBELETS_OWN, is_group_name, label_key_fault, label_value_fault


def check(draft: Draft) -> None:
    used = {host.pool for host in draft.hosts}
    for name, pool in draft.pools.items():
        if not is_group_name(name):
            draft.add(
                "E-SITE-15",
                f"{name!r} can't name a pool",
                ("pools", name),
                wanted="lower-case letters, digits, -",
            )
        if name not in used and draft.complete:
            draft.add(
                "E-SITE-71",
                f"no host is in pool {name!r}",
                ("pools", name),
                next="give it a host, or take the pool out",
            )
        _labels(name, pool, draft)
        _taints(name, pool, draft)
        _hardware(name, pool, draft)
    for name in draft.racks:
        if not is_group_name(name):
            draft.add(
                "E-SITE-15",
                f"{name!r} can't name a rack",
                ("racks", name),
                wanted="lower-case letters, digits, -",
            )


def _labels(name: str, pool: Pool, draft: Draft) -> None:
    for key, value in pool.labels.items():
        path = ("pools", name, "labels", key)
        if fault := label_key_fault(key):
            draft.add("E-SITE-30", f"the label {key!r} is illegal: {fault}", path, rule="R48")
        elif key in KUBELETS_OWN:
            draft.add(
                "E-SITE-32", f"the label {key} is each kubelet's own", path, rule="R48", next="take it out"
            )
        if fault := label_value_fault(value):
            draft.add(
                "E-SITE-31", f"the label {key} has an illegal value: {fault}", path, found=value, rule="R48"
            )


def _taints(name: str, pool: Pool, draft: Draft) -> None:
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(pool.taints):
        path = ("pools", name, "taints", index)
        fault = label_key_fault(taint.key) or label_value_fault(taint.value)
        if fault:
            draft.add("E-SITE-33", f"the taint {taint.key}={taint.value} is illegal: {fault}", path)
        if (taint.key, taint.effect) in seen:
            draft.add("E-SITE-34", f"the taint {taint.key} with {taint.effect} stands here twice", path)
        seen.add((taint.key, taint.effect))


def _hardware(name: str, pool: Pool, draft: Draft) -> None:
    hardware, path = pool.hardware, ("pools", name, "hardware")
    spread = hardware.gpus.per_numa_node
    if spread and sum(spread) != hardware.gpus.count:
        draft.add(
            "E-SITE-46",
            f"{hardware.gpus.count} GPUs, but the NUMA nodes have {' + '.join(map(str, spread))}",
            (*path, "gpus", "per_numa_node"),
            wanted=f"numbers that add up to {hardware.gpus.count}",
        )
    if spread and hardware.numa_nodes is not None and len(spread) != hardware.numa_nodes:
        draft.add(
            "E-SITE-46",
            f"{hardware.numa_nodes} NUMA nodes, but GPUs are given for {len(spread)}",
            (*path, "gpus", "per_numa_node"),
            wanted="one number for each NUMA node, 0 where there is no GPU",
        )
    for index, disk in enumerate(hardware.disks):
        if not disk.path.startswith("/"):
            draft.add("E-SITE-47", f"{disk.path!r} is no absolute path", (*path, "disks", index, "path"))
