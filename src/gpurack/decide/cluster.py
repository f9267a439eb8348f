"""Whether the cluster that answers is the one that the site document means.

Asked before the first write of every run: a mixed-up kubeconfig must never put a rack into another cluster.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from gpurack.decide import endpoint
from gpurack.errors import Problem

KUBEADM_DEFAULT_NAME = "kubernetes"  # clusterName of a cluster whose builder did not choose one
PIN_RULE = "R52: the hash is taken over the CA's SubjectPublicKeyInfo"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a cluster says that it is.

    + name: clusterName of its kubeadm configuration, empty if it has none
    + server: where kube-public/cluster-info sends a joining kubelet, empty if it has none
    + published: CA pins of cluster-info; + trusted: CA pins of the kubeconfig that we ask with
    + uid: of the namespace kube-system: it lives as long as the cluster
    + version: `gitVersion` of the API server
    """

    name: str
    server: str
    published: frozenset[str]
    trusted: frozenset[str]
    uid: str
    version: str

    @property
    def pins(self) -> tuple[str, ...]:
        """The pins that a joining host is given: several during a rotation of the CA, any may fit (O-30)."""
        return tuple(sorted(self.published & self.trusted))


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The identity that this site's state folder remembers from its first contact."""

    uid: str
    pins: tuple[str, ...]

    def written(self) -> str:
        return json.dumps({"uid": self.uid, "pins": list(self.pins)}, indent=2) + "\n"


def recorded(text: str) -> Record:
    """The inverse of `Record.written`; `ValueError` or `KeyError` for anything else."""
    value = json.loads(text)
    return Record(uid=str(value["uid"]), pins=tuple(value["pins"]))


def judge(*, name: str, wanted: str, found: Identity, record: Record | None) -> tuple[Problem, ...]:
    """Why the cluster is not the one that is meant; empty when it is.

    + name, wanted: `cluster.name` and `cluster.endpoint` of the site document
    + record: from an earlier run, `None` at the first contact
    """
    problems = []
    if found.name not in (name, KUBEADM_DEFAULT_NAME, ""):
        problems.append(
            Problem(
                code="E-CLUSTER-10",
                what="another cluster answers: its name is not the site's",
                found=found.name,
                wanted=name,
                next="check cluster.name and cluster.kubeconfig of the site document",
            )
        )
    if not found.server or not found.published:
        problems.append(
            Problem(
                code="E-CLUSTER-11",
                what="the cluster has no kube-public/cluster-info, so kubeadm can't join hosts to it",
                rule="R51: token discovery reads cluster-info",
                next="kubeadm init phase bootstrap-token on its control plane",
            )
        )
    else:
        problems += _reached(wanted, found)
    if record and record.uid != found.uid:
        problems.append(
            Problem(
                code="E-CLUSTER-14",
                what="this is not the cluster that this site was built with",
                found=f"kube-system {found.uid}, CA {', '.join(sorted(found.trusted))}",
                wanted=f"kube-system {record.uid}, CA {', '.join(record.pins)}",
                next="if it was built anew on purpose, remove cluster.json from the site's state folder",
            )
        )
    elif record and not found.trusted.intersection(record.pins):
        problems.append(
            Problem(
                code="E-CLUSTER-15",
                what="the cluster's CA was replaced since the last run",
                found=", ".join(sorted(found.trusted)),
                wanted=", ".join(record.pins),
                rule=PIN_RULE,
                next="if that was on purpose, remove cluster.json from the site's state folder",
            )
        )
    return tuple(problems)


def _reached(wanted: str, found: Identity) -> list[Problem]:
    problems = []
    if not endpoint.same(found.server, wanted):
        problems.append(
            Problem(
                code="E-CLUSTER-12",
                what="the cluster sends joining hosts to another endpoint than the site's",
                found=found.server,
                wanted=wanted,
                next="correct cluster.endpoint, or cluster-info and controlPlaneEndpoint of the cluster",
            )
        )
    if not found.pins:
        problems.append(
            Problem(
                code="E-CLUSTER-13",
                what="the CA that the cluster publishes is not the CA of the kubeconfig",
                found="cluster-info: " + ", ".join(sorted(found.published)),
                wanted="kubeconfig: " + (", ".join(sorted(found.trusted)) or "no CA"),
                rule=PIN_RULE,
                next="fetch the kubeconfig anew; verification is never skipped",
            )
        )
    return problems
