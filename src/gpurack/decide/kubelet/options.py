"""Policy options by Kubernetes minor (R12, R14): an unknown or closed one is fatal at kubelet's start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpurack.decide.numa import Topology
from gpurack.defaults import NUMA_NODES_WITHOUT_OPTION
from gpurack.errors import Problem, Where
from gpurack.site.models import NumaPolicy

# First minor in which an option exists as alpha, as beta (on by default), as GA; None: not up to 1.36.
_Maturity = tuple[int | None, int | None, int | None]
CPU_OPTIONS: Mapping[str, _Maturity] = {
    "full-pcpus-only": (22, 23, 33),
    "strict-cpu-reservation": (32, 33, 35),
    "distribute-cpus-across-numa": (23, 33, None),
    "prefer-align-cpus-by-uncorecache": (32, 34, 36),
    "align-by-socket": (25, None, None),
    "distribute-cpus-across-cores": (31, None, None),
}
TOPOLOGY_OPTIONS: Mapping[str, _Maturity] = {
    "prefer-closest-numa-nodes": (26, 28, 32),
    "max-allowable-numa-nodes": (31, 32, 35),
}
_EXCLUSIVE = (
    ("distribute-cpus-across-cores", "full-pcpus-only"),
    ("distribute-cpus-across-cores", "distribute-cpus-across-numa"),
    ("distribute-cpus-across-cores", "prefer-align-cpus-by-uncorecache"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"),
)


def judge(
    policy: NumaPolicy, kubernetes: str, gates: Mapping[str, Any], topology: Topology, where: Where
) -> Iterator[Problem]:
    """Everything about the policies' options that would stop kubelet.

    + kubernetes: the pinned version, `1.34.4`
    + gates: effective `featureGates`
    """
    minor = int(kubernetes.split(".")[1])
    cpu = Where(where.file, where.line, f"{where.field}.cpu_options")
    numa = Where(where.file, where.line, f"{where.field}.topology_options")
    yield from _known("CPU", policy.cpu_options, CPU_OPTIONS, minor, gates, cpu)
    yield from _known("topology", policy.topology_options, TOPOLOGY_OPTIONS, minor, gates, numa)
    if policy.cpu == "none" and policy.cpu_options:
        yield _fatal(
            "options under CPU policy none", ", ".join(policy.cpu_options), cpu, "remove the options"
        )
    if policy.topology == "none" and policy.topology_options:
        names = ", ".join(policy.topology_options)
        yield _fatal("options under topology policy none", names, numa, "remove the options")
    on = {name for name, value in policy.cpu_options.items() if value == "true"}
    for one, other in _EXCLUSIVE:
        if {one, other} <= on:
            yield _fatal("options that exclude each other", f"{one}, {other}", cpu, "keep one of them")
    if "align-by-socket" in on and policy.topology == "single-numa-node":
        yield _fatal("align-by-socket with single-numa-node", "align-by-socket", cpu, "remove the option")
    yield from _node_limit(policy, topology, numa)


def _known(
    kind: str,
    wanted: Mapping[str, str],
    table: Mapping[str, _Maturity],
    minor: int,
    gates: Mapping[str, Any],
    at: Where,
) -> Iterator[Problem]:
    manager = "CPUManager" if kind == "CPU" else "TopologyManager"
    for name, value in wanted.items():
        if name not in table:
            yield _fatal(f"unknown {kind} option", name, at, f"one of: {', '.join(sorted(table))}")
            continue
        if name != "max-allowable-numa-nodes" and value not in ("true", "false"):
            yield _fatal(f"{kind} option {name} is true or false", value, at, 'write "true" or "false"')
        alpha, beta, ga = table[name]
        if ga is not None and minor >= ga:
            continue
        stage = "Beta" if beta is not None and minor >= beta else "Alpha"
        gate = f"{manager}Policy{stage}Options"
        if minor < (alpha or 0):
            yield _fatal(f"{kind} option that Kubernetes 1.{minor} does not have", name, at, "remove it")
        elif not gates.get(gate, stage == "Beta"):
            cure = f"set featureGates.{gate}: true in a drop-in of yours that sorts before ours, or remove it"
            yield _fatal(f"{kind} option behind the closed feature gate {gate}", name, at, cure)


def _node_limit(policy: NumaPolicy, topology: Topology, at: Where) -> Iterator[Problem]:
    nodes = len(topology.nodes)
    limit = policy.topology_options.get("max-allowable-numa-nodes")
    if limit is not None and (not limit.isdecimal() or int(limit) < NUMA_NODES_WITHOUT_OPTION):
        yield _fatal("max-allowable-numa-nodes is a number from 8 up", limit, at, f'write "{max(8, nodes)}"')
        return
    allowed = int(limit or NUMA_NODES_WITHOUT_OPTION)
    if policy.topology != "none" and nodes > allowed:
        yield Problem(
            code="E-NUMA-05",
            what=f"topology policy {policy.topology} on {nodes} NUMA nodes",
            where=at,
            found=f"{nodes} NUMA nodes, {len(topology.serving)} of them with CPUs and memory",
            wanted=f"at most {allowed}",
            rule="R12, O-08: kubelet counts nodes without CPUs and without memory too",
            next=f'set topology_options: {{max-allowable-numa-nodes: "{nodes}"}}, or topology: none',
        )


def _fatal(what: str, found: str, at: Where, cure: str) -> Problem:
    return Problem(
        code="E-NUMA-10",
        what=what,
        where=at,
        found=found,
        rule="R14: fatal at kubelet's start",
        next=cure,
    )
