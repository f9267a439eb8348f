"""Fact: what kubeadm and kubelet left on a host (R37, R49). Keys and tokens never leave the host."""

from __future__ import annotations

import base64
import shlex
from datetime import UTC, datetime
from typing import Any

import yaml

from gpurack.decide.certificates import Certificate, Damaged, certificates, pins
from gpurack.decide.control_plane import INIT_LOG, KUBECTL, MARK
from gpurack.decide.kubeadm import JOIN_LOG, Kubeconfig, Traces
from gpurack.decide.kubeadm_config import JOIN_CONFIG
from gpurack.decide.kubeadm_output import Outcome, outcome
from gpurack.facts.pairs import Pairs
from gpurack.facts.probe import Probe, in_c_locale

_CERTIFICATES = "/-----BEGIN CERTIFICATE-----/,/-----END CERTIFICATE-----/"
_CLIENT = "/var/lib/kubelet/pki/kubelet-client-current.pem"


class KubeadmTraces(Probe[Traces]):
    """Everything that says where a host stands between bare and joined. Needs root."""

    script = rf"""
conf() {{ [ -e "$2" ] || return 0; echo "exists=$1"
  sed -E -e 's/(client-key-data|token):.*/\1: removed/' -e "s/^/$1=/" "$2"; }}
cert() {{ if [ -e "$2" ]; then echo "exists=$1"; elif [ -L "$2" ]; then echo "dangling=$1"; else return 0; fi
  [ ! -e "$2" ] || sed -n '{_CERTIFICATES}'"s/^/$1=/p" "$2"; }}
echo "now=$(date -u +%s)"
echo "machine_id=$(cat /etc/machine-id 2>/dev/null)"
echo "product_uuid=$(cat /sys/class/dmi/id/product_uuid 2>/dev/null)"
conf kubelet_conf /etc/kubernetes/kubelet.conf
conf bootstrap_conf /etc/kubernetes/bootstrap-kubelet.conf
cert client {_CLIENT}
cert ca /etc/kubernetes/pki/ca.crt
for f in config.yaml instance-config.yaml; do [ ! -e /var/lib/kubelet/$f ] || echo exists=config; done
for f in /etc/kubernetes/manifests/*.yaml; do
  [ ! -e "$f" ] || {{ n=${{f##*/}}; echo "part=${{n%.yaml}}"; }}; done
[ ! -e /etc/kubernetes/admin.conf ] || echo part=admin.conf
[ ! -e /etc/kubernetes/pki/ca.key ] || echo part=ca.key
[ ! -e {MARK} ] || echo exists=mark
[ ! -e {JOIN_CONFIG} ] || echo exists=leftover
cat /proc/net/tcp /proc/net/tcp6 2>/dev/null |
  awk '$4=="0A" {{ n=split($2, a, ":"); print "listen=" a[n] }}' | sort -u
"""

    def parse(self, text: str) -> Traces:
        return parse(text)


class KubeadmOutcome(Probe[Outcome]):
    """How the last `kubeadm init` or `kubeadm join` of ours ended. + verb: `init` or `join`"""

    def command(self, verb: str) -> str:  # type: ignore[override]
        log = {"init": INIT_LOG, "join": JOIN_LOG}[verb]
        return in_c_locale(f"tail -n 80 {log} 2>/dev/null")

    def parse(self, text: str) -> Outcome:
        return outcome(text)


def parse(text: str) -> Traces:
    """`ValueError` for an answer that is not whole."""
    answer = Pairs(text)
    there = frozenset(answer.all("exists"))
    dangling = frozenset(answer.all("dangling"))
    return Traces(
        now=datetime.fromtimestamp(int(answer.some("now")), UTC),
        machine_id=answer.one("machine_id"),
        product_uuid=answer.one("product_uuid"),
        kubelet_conf=_kubeconfig(answer, "kubelet_conf") if "kubelet_conf" in there else None,
        bootstrap_conf=_kubeconfig(answer, "bootstrap_conf") if "bootstrap_conf" in there else None,
        client=_certificate(answer, "client", there, dangling),
        ca=_certificate(answer, "ca", there, dangling),
        config="config" in there,
        parts=frozenset(answer.all("part")),
        unfinished_init="mark" in there,
        leftover="leftover" in there,
        listening=frozenset(int(port, 16) for port in answer.all("listen")),
    )


def _kubeconfig(answer: Pairs, key: str) -> Kubeconfig | Damaged:
    try:
        document = yaml.safe_load("\n".join(answer.all(key)))
        cluster: dict[str, Any] = document["clusters"][0]["cluster"]
        user: dict[str, Any] = document["users"][0]["user"]
        embedded = _decoded(user.get("client-certificate-data"))
        # Not kubeadm's way, but a kubeconfig may name its CA by file: that is foreign, not damaged.
        trusted = _decoded(cluster.get("certificate-authority-data"))
        return Kubeconfig(
            server=str(cluster["server"]),
            pins=pins(trusted) if trusted else frozenset(),
            embedded=certificates(embedded)[0] if embedded else None,
        )
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, yaml.YAMLError) as error:
        return Damaged(reason=f"{key.replace('_', '.')} can't be read ({type(error).__name__})")


def _certificate(
    answer: Pairs, key: str, there: frozenset[str], dangling: frozenset[str]
) -> Certificate | Damaged | None:
    if key in dangling:
        return Damaged(reason=f"the {key} certificate is a link to a file that is gone")
    if key not in there:
        return None
    text = "\n".join(answer.all(key))
    if not text:
        return Damaged(reason=f"the {key} certificate file holds no certificate")
    try:
        return certificates(text)[0]
    except ValueError:
        return Damaged(reason=f"the {key} certificate is damaged")


def _decoded(data: str | None) -> str | None:
    return base64.b64decode(data).decode() if data else None


class SignedCredential(Probe[tuple[str, str]]):
    """The cluster's CA and the certificate that it signed for a request of ours, both PEM and public."""

    def command(self, request: str) -> str:  # type: ignore[override]
        certificate = "-o jsonpath='{.status.certificate}'"
        return in_c_locale(
            f"{KUBECTL}; sed 's/^/ca=/' /etc/kubernetes/pki/ca.crt; "
            f'echo "signed=$(kubectl get csr {shlex.quote(request)} {certificate})"'
        )

    def parse(self, text: str) -> tuple[str, str]:
        answer = Pairs(text)
        ca = "".join(f"{line}\n" for line in answer.all("ca"))
        signed = base64.b64decode(answer.some("signed")).decode()
        if not certificates(ca) or not certificates(signed):
            raise ValueError("no certificate")
        return ca, signed
