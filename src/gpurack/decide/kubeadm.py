"""Where a host stands between bare and joined, and what kubeadm has to do about it (R37-R59).

`standing` is a pure function of what was found (R50): "the join failed" is never a reason to reset. Only the
half states of R49 are reset, and `engine.carry_out` keeps every step here off a live host.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from gpurack.decide import endpoint, kubeadm_config
from gpurack.decide.certificates import Certificate, Damaged
from gpurack.decide.cni import CONFLIST
from gpurack.decide.decision import (
    Decision,
    Disruption,
    Remove,
    Step,
    Transact,
    Unit,
    Write,
    refuse,
    settled,
)
from gpurack.decide.identity import usable_uuid
from gpurack.decide.kubeadm_config import JOIN_CONFIG, Join
from gpurack.decide.node import NodeInApi
from gpurack.errors import Problem

JOIN_LOG = "/var/log/gpurack/kubeadm-join.log"  # where a Transact step of that name keeps its output
BOOTSTRAP_CONF = "/etc/kubernetes/bootstrap-kubelet.conf"
KUBELET_PORT = 10250
ROTATION_FLOOR = 30  # days; kubelet renews a one-year certificate when about 40 to 100 days are left


class Standing(StrEnum):
    """Between bare and joined. The letters are the rows of R49."""

    FRESH = "never joined"
    BOOTSTRAPPING = "a: bootstrap-kubelet.conf is left"
    UNSIGNED = "b: kubelet.conf without a client certificate"
    UNBOUND = "c: files of a join without kubelet.conf"
    EXPIRED = "g: the client certificate has expired"
    DAMAGED = "files of a join are damaged"
    FOREIGN = "e, f: of another cluster"
    MEMBER = "joined"

    @property
    def half(self) -> bool:
        return self not in (Standing.FRESH, Standing.FOREIGN, Standing.MEMBER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubeconfig:
    """A kubeconfig of the host without its secrets.

    + pins: of the CA that it trusts; + embedded: client certificate inside the file, if it is there
    """

    server: str
    pins: frozenset[str]
    embedded: Certificate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """What kubeadm and kubelet left on a host.

    + now: the host's own clock
    + client: newest client certificate of kubelet; + ca: /etc/kubernetes/pki/ca.crt
    + config: /var/lib/kubelet/config.yaml or instance-config.yaml is there
    + parts: what there is of a control plane: manifests, `admin.conf`, `ca.key`, `etcd`
    + unfinished_init: our mark of an init that did not come to its end
    + leftover: our join configuration, which holds a token, is still there
    + listening: TCP ports that something listens on
    """

    now: datetime
    machine_id: str
    product_uuid: str
    kubelet_conf: Kubeconfig | Damaged | None = None
    bootstrap_conf: Kubeconfig | Damaged | None = None
    client: Certificate | Damaged | None = None
    ca: Certificate | Damaged | None = None
    config: bool = False
    parts: frozenset[str] = frozenset()
    unfinished_init: bool = False
    leftover: bool = False
    listening: frozenset[int] = frozenset()

    @property
    def credential(self) -> Certificate | Damaged | None:
        """What kubelet shows to the API: the rotated file, else (early in an init) the embedded one."""
        if self.client is None and isinstance(self.kubelet_conf, Kubeconfig):
            return self.kubelet_conf.embedded
        return self.client

    @property
    def member(self) -> bool:
        """Whether anything here says that this host belongs, or belonged, to a cluster."""
        return self.kubelet_conf is not None or self.client is not None

    @property
    def node_name(self) -> str | None:
        """The name that the certificate is bound to (R55, O-38)."""
        held = self.credential
        if isinstance(held, Certificate) and held.common_name.startswith("system:node:"):
            return held.common_name.removeprefix("system:node:")
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """+ name: of the Node; + address: first address of the host; + servers: API URLs that count as ours;
    + pins: of the cluster's CA."""

    name: str
    address: str
    servers: tuple[str, ...]
    pins: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """+ action: `reset` means reset, then join; + reason: for the plan row."""

    action: str
    reason: str
    standing: Standing
    refused: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def joins(self) -> bool:
        return self.action in ("join", "reset")


def standing(found: Traces, goal: Goal) -> Standing:
    """Total: every set of traces has exactly one standing."""
    if foreign(found, goal):
        return Standing.FOREIGN
    held = found.credential
    if found.bootstrap_conf is not None:
        # kubeadm removes that file last, so with a valid certificate kubelet has come through on its own.
        whole = isinstance(found.kubelet_conf, Kubeconfig) and isinstance(held, Certificate)
        return Standing.MEMBER if whole and not _expired(held, found) else Standing.BOOTSTRAPPING
    if any(isinstance(item, Damaged) for item in (found.kubelet_conf, found.ca)):
        return Standing.DAMAGED
    if found.kubelet_conf is None:
        return Standing.UNBOUND if found.client or found.ca or found.config else Standing.FRESH
    # R38: kubelet writes kubelet.conf before it owns a certificate.
    if not isinstance(held, Certificate):
        return Standing.UNSIGNED
    return Standing.EXPIRED if _expired(held, found) else Standing.MEMBER


def _expired(held: Certificate | Damaged | None, found: Traces) -> bool:
    return isinstance(held, Certificate) and held.expired(found.now)


def foreign(found: Traces, goal: Goal) -> str | None:
    """The other cluster that the traces speak of, as text for a person, or `None`."""
    for label, conf in (
        ("kubelet.conf", found.kubelet_conf),
        ("bootstrap-kubelet.conf", found.bootstrap_conf),
    ):
        if not isinstance(conf, Kubeconfig):
            continue
        if not any(endpoint.same(conf.server, server) for server in goal.servers):
            return f"{label} -> server: {conf.server}"
        if conf.pins and not conf.pins & goal.pins:
            return f"{label} -> CA {', '.join(sorted(conf.pins))}"
    if isinstance(found.ca, Certificate) and found.ca.pin not in goal.pins:
        return f"/etc/kubernetes/pki/ca.crt -> CA {found.ca.common_name} {found.ca.pin}"
    return None


def judge(found: Traces, goal: Goal, node: NodeInApi | None) -> Verdict:
    """What has to happen so that the host becomes, or stays, the Node `goal.name`.

    + node: the Node of that name as the API has it, `None` when there is none
    """
    place = standing(found, goal)
    if place is Standing.FOREIGN:
        return _no(place, _of_another_cluster(foreign(found, goal) or "", goal))
    taken = _taken(found, node, place)
    if taken:
        return _no(place, taken)
    held = found.credential
    if place is Standing.MEMBER and isinstance(held, Certificate):
        return _member(held, found, goal, node)
    if place is Standing.FRESH:
        if KUBELET_PORT in found.listening:
            return _no(place, port_taken())
        adopts = f"; adopts the NotReady Node {node.name} of this machine" if node else ""
        return Verdict(action="join", reason="never joined" + adopts, standing=place, notes=_adopted(node))
    return Verdict(action="reset", reason=_half(place, found), standing=place, notes=_adopted(node))


def join(verdict: Verdict, found: Traces, wanted: Join) -> Decision:
    """The verdict as steps. `wanted.token` may be a placeholder while a run is only planned."""
    if verdict.refused:
        return refuse(*verdict.refused)
    left = tuple(
        Remove(path=path)
        for path, there in (
            (JOIN_CONFIG, found.leftover),
            (BOOTSTRAP_CONF, found.bootstrap_conf is not None),
        )
        if there
    )
    if verdict.action == "restart":
        return Decision(
            reason=verdict.reason,
            steps=(*left, Unit(name="kubelet.service", verb="restart")),
            disruption=Disruption.KUBELET_RESTART,
            notes=verdict.notes,
        )
    if not verdict.joins:
        if left:
            names = ", ".join(step.path for step in left)
            return Decision(reason=f"an interrupted join left {names}", steps=left, notes=verdict.notes)
        return settled(verdict.reason, notes=verdict.notes)
    # A half state was cleared before; while planning it still counts as the join that it becomes.
    steps: tuple[Step, ...] = (
        # With the pod CIDR of an earlier life the Node would turn Ready before it has its own network.
        Remove(path=CONFLIST),
        Write(
            path=JOIN_CONFIG,
            content=kubeadm_config.join(wanted),
            mode=0o600,
            secret=True,
            validate='kubeadm config validate --config "$1"',
        ),
        Transact(unit="kubeadm-join", script=recorded("join", JOIN_CONFIG), why="join the cluster"),
    )
    return Decision(
        reason=verdict.reason, steps=steps, disruption=Disruption.KUBELET_RESTART, notes=verdict.notes
    )


def clear(verdict: Verdict) -> Decision:
    """Reset a half-finished join: first thing in a deploy, because kubelet can't come up in such a state."""
    if verdict.refused:
        return refuse(*verdict.refused)
    if verdict.action != "reset":
        return settled(f"no half-finished join: {verdict.reason}")
    return Decision(reason=verdict.reason, steps=(RESET,), disruption=Disruption.DRAIN)


def recorded(verb: str, config: str, *, flags: str = "", then: str = "") -> str:
    """A kubeadm run whose configuration goes away in any case, and whose outcome is its last line.

    The exit code says nothing since 1.34 (R40): the kept output is classified instead, so this ends with 0.
    """
    return (
        f"trap 'rm -f {config}' EXIT; kubeadm {verb} --config {config}{flags} 2>&1; rc=$?; "
        f'{then}echo "exit $rc"'
    )


RESET = Transact(
    unit="kubeadm-reset",
    script=(
        f"if command -v kubeadm; then kubeadm reset --force --cri-socket {kubeadm_config.CRI_SOCKET}; else\n"
        # Left of a join whose packages are gone: what makes a host look joined, and no more.
        "systemctl stop kubelet.service; cd /; rm -rf /etc/kubernetes/kubelet.conf \\\n"
        "  /etc/kubernetes/pki/ca.crt /etc/kubernetes/bootstrap-kubelet.conf \\\n"
        "  /var/lib/kubelet/config.yaml /var/lib/kubelet/instance-config.yaml /var/lib/kubelet/pki; fi"
    ),
    why="clear a half-finished join",
)


def _member(held: Certificate, found: Traces, goal: Goal, node: NodeInApi | None) -> Verdict:
    place = Standing.MEMBER
    if found.node_name != goal.name:
        return _no(
            place,
            Problem(
                code="E-JOIN-05",
                what="the host is joined under another name",
                found=f"certificate of {held.common_name}",
                wanted=f"system:node:{goal.name}",
                rule="R55: kubelet's certificate is bound to the name",
                next="correct the name in the site document, or drain, reset and join anew",
            ),
        )
    if node is None:
        # Registration happens once per process: a Node deleted under a running kubelet stays away (R49 d).
        return Verdict(
            action="restart", reason="joined, but its Node is gone: register again", standing=place
        )
    left = held.days_left(found.now)
    notes = (
        (f"kubelet's client certificate has {left} days left and was not renewed",)
        if left < ROTATION_FLOOR
        else ()
    )
    return Verdict(action="none", reason="already joined", standing=place, notes=notes)


def same_machine(found: Traces, node: NodeInApi) -> bool:
    """Whether the Node is this machine: by machine-id, else by product UUID (O-34)."""
    if node.machine_id and node.machine_id == found.machine_id:
        return True
    uuid = usable_uuid(node.system_uuid)
    return uuid is not None and uuid == usable_uuid(found.product_uuid)


def _taken(found: Traces, node: NodeInApi | None, place: Standing) -> Problem | None:
    if node is None or (same_machine(found, node) and (place is Standing.MEMBER or not node.ready)):
        return None
    seen = (
        f"{node.name} {'Ready' if node.ready else 'NotReady'} InternalIP {', '.join(node.addresses)} "
        f"systemUUID {node.system_uuid} machineID {node.machine_id}"
    )
    here = f"systemUUID {found.product_uuid} machineID {found.machine_id}"
    if same_machine(found, node):
        return Problem(
            code="E-JOIN-03",
            what="the Node of this host is still Ready, although the host is not joined any more",
            found=seen,
            rule="R46: a Ready Node of that name stops a join",
            next=f"wait a minute until it is NotReady, or kubectl delete node {node.name}; then run again",
        )
    return Problem(
        code="E-JOIN-04",
        what="the name is taken by another machine",
        found=seen,
        wanted=here,
        rule="R46, O-34",
        next=f"rename one of them; if that machine is gone for good, kubectl delete node {node.name}",
    )


def _of_another_cluster(found: str, goal: Goal) -> Problem:
    return Problem(
        code="E-JOIN-02",
        what="the host carries files of another cluster",
        found=found,
        wanted=f"{goal.servers[0]} with CA {', '.join(sorted(goal.pins))}",
        rule="R42, R49 f: kubeadm would keep the foreign CA, and kubelet would trust it",
        next="drain and delete it there, then kubeadm reset -f on the host, and run again",
    )


def port_taken() -> Problem:
    """Another kubelet, or something in its place (O-33)."""
    return Problem(
        code="E-JOIN-06",
        what=f"something that is no joined kubelet listens on port {KUBELET_PORT}",
        rule="R41: Port-10250 (O-33); a preflight error is never ignored wholesale",
        next=f"ss -ltnp sport = :{KUBELET_PORT} on the host",
    )


def _half(place: Standing, found: Traces) -> str:
    if place is Standing.EXPIRED:
        held = found.credential
        days = -held.days_left(found.now) if isinstance(held, Certificate) else 0
        return f"client certificate expired {days} days ago, no bootstrap file; needs a new token"
    if place is Standing.UNSIGNED and isinstance(found.client, Damaged):
        return f"{place}: {found.client.reason}"
    return f"half-joined ({place})"


def _adopted(node: NodeInApi | None) -> tuple[str, ...]:
    if node and node.unschedulable:
        return (f"the Node {node.name} is cordoned from an earlier life; gpurack leaves that to its owner",)
    return ()


def _no(place: Standing, problem: Problem) -> Verdict:
    return Verdict(action="none", reason=problem.what, standing=place, refused=(problem,))
