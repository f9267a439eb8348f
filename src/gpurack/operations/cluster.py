"""The run's one view of the cluster, and the checks that come before the first write of a run.

Everything here is asked once per phase of a run and shared by all hosts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from pyinfra.api.command import PyinfraCommand
from pyinfra.api.operation import operation

from gpurack.cluster import client as api
from gpurack.cluster import identity, nodes, tokens
from gpurack.cluster.client import Client, Denied, Unreachable
from gpurack.decide import cluster as thought
from gpurack.decide import kubeadm, version
from gpurack.decide.cluster import Identity, Record
from gpurack.decide.decision import Decision, refuse, settled
from gpurack.decide.kubeadm import Traces
from gpurack.decide.liveness import Api
from gpurack.decide.node import NodeInApi
from gpurack.engine import carry_out, executing, guarded, once, read, shared, state_dir, this_node
from gpurack.engine.run import beside
from gpurack.errors import GpurackError, Problem, Refused
from gpurack.facts.kubeadm import KubeadmTraces
from gpurack.operations.api import through_api
from gpurack.site.models import Node, Site


# ------------------------------------------------------------------------------------------- what is known
def kubeconfig() -> Path:
    """Where the kubeconfig of this site is, or will be."""
    site = this_node().site
    given = site.cluster.kubeconfig
    return beside(site, given) if given else state_dir() / "kubeconfig"


def client() -> Client | None:
    """The connection of this run; `None` while the site has no kubeconfig. Not yet compared with the site."""
    path = kubeconfig()
    if not path.exists():
        return None
    return once(f"cluster client {_stamp()}", lambda: api.connect(path, scratch=state_dir() / "client"))


def trusted() -> tuple[Client, Identity]:
    """The connection, once the cluster has proven to be the site's. `Refused` when it is not."""
    found = client()
    site = this_node().site
    if found is None:
        raise Refused(_no_cluster(site))
    who = once(f"cluster identity {_phase()} {_stamp()}", lambda: identity.identify(found))
    record = recorded()
    problems = thought.judge(name=site.cluster.name, wanted=site.cluster.endpoint, found=who, record=record)
    if problems:
        raise Refused(problems)
    if record is None and executing():
        remember(Record(uid=who.uid, pins=tuple(sorted(who.trusted))))
    return found, who


def all_nodes() -> dict[str, NodeInApi]:
    """Every Node by name, listed once per phase, and again after hosts have joined. Empty without cluster."""
    found = client()
    if found is None:
        return {}
    key = f"cluster nodes {_phase()} {_stamp()} {len(joined())}"
    return once(key, lambda: nodes.every(found))


def asked() -> tuple[Api, dict[str, NodeInApi]]:
    """Like `all_nodes`, but an API server that can't be asked is an answer too."""
    try:
        return (Api.ANSWERS, all_nodes()) if client() else (Api.NONE, {})
    except (Unreachable, Denied, Refused):
        return Api.SILENT, {}


def joined() -> dict[str, object]:
    """Hosts that joined in this run."""
    return shared("joined")


def called(node: Node, found: Traces, known: dict[str, NodeInApi]) -> str:
    """This host's Node name: its certificate's if that Node is this machine, else the site's (O-38)."""
    held = found.node_name
    if held and held in known and kubeadm.same_machine(found, known[held]):
        return held
    return node.name


def recorded() -> Record | None:
    """The identity that the state folder remembers; `Refused` when its file is damaged."""
    path = state_dir() / "cluster.json"
    if not path.exists():
        return None
    try:
        return thought.recorded(path.read_text())
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Refused(
            Problem(
                code="E-CLUSTER-16",
                what="the record of the site's cluster can't be read",
                found=f"{path}: {type(error).__name__}",
                next=f"check that the kubeconfig is the right one, then remove {path}",
            )
        ) from error


def remember(record: Record) -> None:
    path = state_dir() / "cluster.json"
    temporary = path.with_suffix(".new")
    temporary.write_text(record.written())
    temporary.replace(path)


# ------------------------------------------------------------------------------------------- operations
@operation()
@guarded
def admit(*, node: Node) -> Iterator[PyinfraCommand]:
    """Let a host on to a deploy that needs the cluster: it is there, it is ours, and this host fits to it.

    Refuses without a cluster, with a foreign one, with too few rights, a kubelet that is too new or too old
    (R57), and another pinned version than the one that the host is joined with.
    """
    found = read(KubeadmTraces)
    try:
        connection, who = trusted()
    except Unreachable as error:
        if not found.member:
            raise
        # A member counts as live then: what is due is owed, and only the proof at the end fails.
        yield from carry_out(settled("joined", notes=(f"{error.problems[0].what}: the host counts as live",)))
        return
    missing = once(f"cluster rights {_phase()} {_stamp()}", lambda: identity.missing_rights(connection))
    yield from carry_out(_fits(node, found, who, missing))


@operation()
@guarded
def identify(*, node: Node) -> Iterator[PyinfraCommand]:
    """Prove that the API answers and is the site's, on the host that may just have made it."""
    try:
        trusted()
    except GpurackError:
        if executing():
            raise
        # Made, or given a valid credential, by an operation before this one.
        yield from carry_out(settled("decided once the control plane serves"))
        return
    yield from carry_out(settled(f"the cluster is {node.site.cluster.name}"))


@operation()
@guarded
def sweep(*, node: Node) -> Iterator[PyinfraCommand]:
    """Delete bootstrap tokens that a run of ours left behind, once per run.

    + node: the first host that asks does it
    """
    state, _ = asked()
    claim = shared(f"token sweep {_phase()}")
    if state is not Api.ANSWERS or claim.setdefault("host", node.name) != node.name:
        yield from carry_out(settled("left to another host of this run, or to the next run"))
        return
    connection, _ = trusted()
    left = tokens.leftovers(tokens.known(connection))
    if not left:
        yield from carry_out(settled("no token of an earlier run is left"))
        return
    names = ", ".join(token.id for token in left)
    yield from through_api(
        f"delete left-over join tokens {names}",
        lambda: [tokens.delete(connection, token.id) for token in left],
    )


def _fits(node: Node, found: Traces, who: Identity, missing: tuple[str, ...]) -> Decision:
    pinned = version.parse(node.site.stack.kubernetes)
    problems = []
    if missing:
        problems.append(
            Problem(
                code="E-CLUSTER-17",
                what="the kubeconfig may not do what a run needs",
                found="missing: " + ", ".join(missing),
                rule="R47, O-37: labels and taints go through the API",
                next="give its user these rights, or bring another kubeconfig",
            )
        )
    skew = version.skew(server=version.parse(who.version), kubelet=pinned)
    if skew:
        problems.append(skew)
    known = all_nodes()
    mine = known.get(called(node, found, known))
    if mine and kubeadm.same_machine(found, mine) and mine.kubelet_version:
        runs = version.parse(mine.kubelet_version)
        if runs != pinned:
            problems.append(
                Problem(
                    code="E-CLUSTER-18",
                    what="the host is joined with another Kubernetes version than the pinned one",
                    found=str(runs),
                    wanted=str(pinned),
                    rule="DESIGN.md §3: a version changes only by a rollout",
                    next=f"pin stack.kubernetes to {runs} for these hosts",
                )
            )
    return refuse(*problems) if problems else settled("the cluster is the site's, and the host fits to it")


def _no_cluster(site: Site) -> Problem:
    return Problem(
        code="E-CLUSTER-19",
        what=f"there is no cluster {site.cluster.name} yet: no kubeconfig",
        found=f"{kubeconfig()} does not exist",
        next=f"pyinfra {os.path.relpath(Path(site.file).with_suffix(''))} deploys/control_plane.py",
    )


def _phase() -> str:
    return "execute" if executing() else "prepare"


def _stamp() -> str:
    path = kubeconfig()
    return f"{path} {path.stat().st_mtime_ns}" if path.exists() else "none"
