"""kubelet's resource managers: a pool may only ask for what kubelet of this version starts with.

Rules R1 to R5 and R12 to R14; what depends on the host (CPUs that exist, memory per node) is judged there.
"""

from __future__ import annotations

import re

from gpurack.site.complaints import nearest
from gpurack.site.document import Path_
from gpurack.site.draft import Draft
from gpurack.site.models import NumaPolicy, Pool

# Minor from which an option works without an alpha gate, which gpurack never opens (R14). None: still alpha.
_CPU_OPTIONS: dict[str, int | None] = {
    "full-pcpus-only": 23,
    "strict-cpu-reservation": 33,
    "distribute-cpus-across-numa": 33,
    "prefer-align-cpus-by-uncorecache": 34,
    "align-by-socket": None,
    "distribute-cpus-across-cores": None,
}
_EXCLUSIVE = (  # R14
    ("distribute-cpus-across-cores", "full-pcpus-only"),
    ("distribute-cpus-across-cores", "distribute-cpus-across-numa"),
    ("distribute-cpus-across-cores", "prefer-align-cpus-by-uncorecache"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"),
)
_TOPOLOGY_OPTIONS = ("prefer-closest-numa-nodes", "max-allowable-numa-nodes")
_MOST_NUMA_NODES = 8  # R12: what the topology manager takes without max-allowable-numa-nodes


def check(draft: Draft) -> None:
    for name, pool in draft.pools.items():
        path = ("pools", name, "numa")
        _cpu(pool.numa, path, draft)
        _memory(pool.numa, path, draft)
        _topology(pool, path, draft)


def _cpu(numa: NumaPolicy, path: Path_, draft: Draft) -> None:
    reserved = numa.reserved
    if numa.cpu == "static" and reserved.cpus is None and reserved.cpus_per_numa_node is None:
        draft.add(
            "E-SITE-40",
            "CPU policy static without a reserved CPU",
            (*path, "cpu"),
            wanted="reserved.cpus (a CPU list) or reserved.cpus_per_numa_node",
            rule="R1: kubelet stops with 'unable to determine reserved CPU resources for static policy'",
        )
    if reserved.cpus is not None and reserved.cpus_per_numa_node is not None:
        draft.add(
            "E-SITE-40",
            "reserved.cpus and reserved.cpus_per_numa_node say the same thing twice",
            (*path, "reserved", "cpus_per_numa_node"),
            next="keep one of the two",
        )
    options = numa.cpu_options
    if options and numa.cpu == "none":
        draft.add(
            "E-SITE-42",
            "CPU options under policy none",
            (*path, "cpu_options"),
            found=", ".join(options),
            rule="R14: kubelet stops with 'None policy: received unsupported options'",
            next="take the options out, or write cpu: static",
        )
    minor = _minor(draft)
    for option, value in options.items():
        _option(option, value, minor, (*path, "cpu_options", option), draft)
    on = {option for option, value in options.items() if value == "true"}
    pairs = [pair for pair in _EXCLUSIVE if set(pair) <= on]
    for one, other in pairs:
        draft.add(
            "E-SITE-43",
            f"{one} and {other} exclude each other",
            (*path, "cpu_options", other),
            rule="R14",
            next="keep one of the two",
        )
    if "align-by-socket" in on and numa.topology == "single-numa-node":
        draft.add(
            "E-SITE-43",
            "align-by-socket and topology single-numa-node exclude each other",
            (*path, "cpu_options", "align-by-socket"),
            rule="R14",
        )


def _minor(draft: Draft) -> int | None:
    match = re.match(r"1\.(\d+)\.", draft.stack.kubernetes) if draft.stack else None
    return int(match[1]) if match else None


def _option(option: str, value: str, minor: int | None, path: Path_, draft: Draft) -> None:
    if option not in _CPU_OPTIONS:
        near = nearest(option, _CPU_OPTIONS)
        draft.add(
            "E-SITE-44",
            f"kubelet has no CPU option {option!r}",
            path,
            wanted=None if near else ", ".join(_CPU_OPTIONS),
            next=f"write {near}" if near else None,
        )
        return
    since = _CPU_OPTIONS[option]
    if minor is not None and (since is None or minor < since):
        draft.add(
            "E-SITE-44",
            f"the CPU option {option} is alpha in Kubernetes 1.{minor}",
            path,
            rule="R14: kubelet refuses it without the gate CPUManagerPolicyAlphaOptions",
            next="take it out",
        )
    if value not in ("true", "false"):
        draft.add(
            "E-SITE-44", f"the CPU option {option} can't be {value!r}", path, wanted='"true" or "false"'
        )


def _memory(numa: NumaPolicy, path: Path_, draft: Draft) -> None:
    reserved = numa.reserved
    if numa.memory != "Static":
        return
    if isinstance(reserved.eviction_memory, str):
        draft.add(
            "E-SITE-41",
            f"eviction at {reserved.eviction_memory} with memory policy Static",
            (*path, "reserved", "eviction_memory"),
            wanted="bytes, such as 100Mi",
            rule="R3: it is a part of MemTotal, which changes between boots, and the sum must be exact (R2)",
        )
    elif reserved.system_memory + reserved.kube_memory + reserved.eviction_memory == 0:
        draft.add(
            "E-SITE-41",
            "memory policy Static with nothing reserved",
            (*path, "memory"),
            wanted="system_memory, kube_memory or eviction_memory above zero",
            rule="R2, O-05: kubelet stops with 'you should specify the system reserved memory'",
        )


def _topology(pool: Pool, path: Path_, draft: Draft) -> None:
    numa = pool.numa
    for option, value in numa.topology_options.items():
        where = (*path, "topology_options", option)
        if option not in _TOPOLOGY_OPTIONS:
            near = nearest(option, _TOPOLOGY_OPTIONS)
            draft.add(
                "E-SITE-44",
                f"kubelet has no topology option {option!r}",
                where,
                next=f"write {near}" if near else f"one of {', '.join(_TOPOLOGY_OPTIONS)}",
            )
        elif option == "max-allowable-numa-nodes" and not (
            value.isdecimal() and int(value) >= _MOST_NUMA_NODES
        ):
            draft.add(
                "E-SITE-44", f"{option} can't be {value!r}", where, wanted='a number from "8" on', rule="R12"
            )
        elif option == "prefer-closest-numa-nodes" and value not in ("true", "false"):
            draft.add("E-SITE-44", f"{option} can't be {value!r}", where, wanted='"true" or "false"')
    nodes = pool.hardware.numa_nodes or 0
    option = numa.topology_options.get("max-allowable-numa-nodes", "")
    most = int(option) if option.isdecimal() else _MOST_NUMA_NODES
    if numa.topology != "none" and nodes > most:
        draft.add(
            "E-SITE-48",
            f"topology {numa.topology} on servers with {nodes} NUMA nodes",
            (*path, "topology"),
            wanted=f'topology_options: {{max-allowable-numa-nodes: "{nodes}"}}',
            rule=f"R12: kubelet stops on more than {most} NUMA nodes",
        )
