"""The first control plane: when to run `kubeadm init`, and when to keep hands off (R49, R50, R53).

A control plane that is there is never reset: losing etcd is losing the cluster. The one exception is an init
of ours that did not come to its end, which our own mark on the host proves, if its cluster was never used.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from gpurack.decide import kubeadm, kubeadm_config
from gpurack.decide.certificates import Certificate
from gpurack.decide.decision import (
    Await,
    Decision,
    Disruption,
    Remove,
    Run,
    Step,
    Transact,
    Write,
    refuse,
    settled,
)
from gpurack.decide.kubeadm import RESET, Traces, recorded
from gpurack.decide.kubeadm_config import INIT_CONFIG, Init
from gpurack.errors import Problem

INIT_LOG = "/var/log/gpurack/kubeadm-init.log"
MARK = "/var/lib/gpurack/kubeadm-init.unfinished"
WHOLE = frozenset(
    {"kube-apiserver", "kube-controller-manager", "kube-scheduler", "admin.conf", "ca.key", "etcd"}
)
# kubectl on the control plane itself; what it caches goes where a reboot clears it.
KUBECTL = "export KUBECONFIG=/etc/kubernetes/admin.conf HOME=/run/gpurack"
CREDENTIAL_FLOOR = 30  # days; a kubeconfig with less left is made anew


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """What the controller knows of the site's cluster.

    + recorded: CA pins of the cluster that this site was built with; + answers: an API server answers for it
    """

    recorded: frozenset[str] = frozenset()
    answers: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The kubeconfig of the site on the controller. + pins: of the CA in it."""

    server: str
    pins: frozenset[str]
    client: Certificate


def clear(found: Traces, known: Elsewhere) -> Decision:
    """Reset an init of ours that did not come to its end: first thing in a deploy."""
    if not found.unfinished_init:
        return settled("no unfinished init")
    pin = found.ca.pin if isinstance(found.ca, Certificate) else None
    if known.answers or (pin and pin in known.recorded):
        return refuse(_in_use(found))
    return Decision(
        reason="an earlier kubeadm init did not come to its end",
        steps=(RESET, Remove(path=MARK)),
        disruption=Disruption.DRAIN,
    )


def init(wanted: Init, found: Traces, known: Elsewhere) -> Decision:
    """Make the first control plane, or say why not."""
    if found.unfinished_init:
        # Cleared before; while planning it still counts as the init that follows.
        return _init(wanted, reason="an earlier kubeadm init did not come to its end")
    if found.parts >= WHOLE and found.kubelet_conf is not None:
        return settled("the control plane is there")
    if not found.parts and found.kubelet_conf is None and found.ca is None:
        if known.answers or known.recorded:
            return refuse(_reinstalled(wanted))
        if kubeadm.KUBELET_PORT in found.listening:
            return refuse(kubeadm.port_taken())
        if found.config or found.client is not None:
            return refuse(_partial(found))
        return _init(wanted, reason="no control plane yet")
    return refuse(_partial(found))


def credential_is_due(held: Held | None, *, server: str, pins: frozenset[str], now: datetime) -> str | None:
    """Why the controller needs a new kubeconfig, or `None`.

    + server: URL that it should have; + pins: of the control plane's own CA
    """
    if held is None:
        return "the controller has no kubeconfig of this cluster"
    if not held.pins & pins:
        return "the controller's kubeconfig is of another CA"
    if held.client.days_left(now) < CREDENTIAL_FLOOR:
        return f"the controller's kubeconfig has {held.client.days_left(now)} days left"
    return None if held.server == server else f"the controller's kubeconfig points to {held.server}"


def sign(name: str, manifest: str, *, reason: str) -> Decision:
    """Have the cluster sign the certificate request `name` on the control plane."""
    signed = f"kubectl get csr {name} -o jsonpath='{{.status.certificate}}'"
    return Decision(
        reason=reason,
        steps=(
            Run(
                script=f"{KUBECTL}; kubectl create -f - && kubectl certificate approve {name}",
                why="request a credential for the controller",
                stdin=manifest,
            ),
            Await(
                probe=f'{KUBECTL}; [ -n "$({signed})" ]',
                reason="the cluster signs the controller's credential",
                deadline=60,
                every=0.5,
            ),
        ),
    )


def _init(wanted: Init, *, reason: str) -> Decision:
    steps: tuple[Step, ...] = (
        Write(path=MARK, content="kubeadm init began; this file goes away when it is done\n", mode=0o600),
        Write(
            path=INIT_CONFIG,
            content=kubeadm_config.init(wanted),
            mode=0o600,
            validate='kubeadm config validate --config "$1"',
        ),
        Transact(
            unit="kubeadm-init",
            script=recorded(
                "init",
                INIT_CONFIG,
                flags=" --skip-token-print",
                then=f"[ $rc -ne 0 ] || rm -f {MARK}; ",
            ),
            why="make the control plane",
        ),
    )
    return Decision(reason=reason, steps=steps, disruption=Disruption.DRAIN)


def _in_use(found: Traces) -> Problem:
    return Problem(
        code="E-INIT-01",
        what="an unfinished init is marked, but the cluster is already known to this site",
        found=", ".join(sorted(found.parts)),
        rule="R50: a control plane that was in use is never reset by a guess",
        next=f"look at {INIT_LOG}; if the control plane is whole, remove {MARK} on the host",
    )


def _reinstalled(wanted: Init) -> Problem:
    return Problem(
        code="E-INIT-02",
        what="the host is bare, but this site has a cluster already",
        found=f"cluster {wanted.cluster} at {wanted.endpoint} is recorded in the site's state folder",
        rule="R53: a second control plane joins, it does not init",
        next="restore the control plane, or remove the site's state folder to build a new cluster",
    )


def _partial(found: Traces) -> Problem:
    return Problem(
        code="E-INIT-03",
        what="half a control plane lies on the host, and gpurack did not begin it",
        found=", ".join(sorted(found.parts)) or "files of a join",
        wanted=", ".join(sorted(WHOLE)),
        rule="R50",
        next="if nothing there is needed: kubeadm reset -f on the host, then run again",
    )
