"""Fact: what runs on a host that must not be disturbed."""

from __future__ import annotations

import json
from typing import Any

from gpurack.decide.kubeadm_config import CRI_SOCKET
from gpurack.decide.liveness import Signs
from gpurack.facts.pairs import Pairs
from gpurack.facts.probe import Probe

STATIC = (
    "kubernetes.io/config.source"  # annotation of a pod sandbox; `api` for everything that is no static pod
)


class LiveSigns(Probe[Signs]):
    """Running containers by the runtime, shims by /proc, holders of GPU device files. Needs root."""

    script = rf"""
for d in /proc/[0-9]*; do read -r n <"$d/comm" || continue
  case "$n" in containerd-shim*) echo shim=1; break;; esac; done 2>/dev/null
if [ -S {CRI_SOCKET.removeprefix("unix://")} ] && command -v crictl >/dev/null; then
  ask() {{ timeout 10 crictl --runtime-endpoint {CRI_SOCKET} --timeout 8s "$@" -o json 2>/dev/null |
    tr -d '\n'; }}
  c=$(ask ps); echo "containers=$c"
  case "$c" in *io.kubernetes.pod.name*) echo "pods=$(ask pods --state Ready)";; esac
fi
for f in /dev/nvidia*; do [ -c "$f" ] || continue
  find /proc/[0-9]*/fd -lname '/dev/nvidia*' 2>/dev/null | cut -d/ -f3 | sort -u | while read -r p; do
    echo "gpu=$p $(cat /proc/"$p"/comm 2>/dev/null)"; done; break
done
true
"""

    def parse(self, text: str) -> Signs:
        return parse(text)


def parse(text: str) -> Signs:
    """`ValueError` for an answer that is not whole."""
    answer = Pairs(text)
    said = "".join(answer.all("containers"))
    if not said:
        return Signs(blind=bool(answer.all("shim")), gpu_users=answer.all("gpu"))
    pods = "".join(answer.all("pods"))
    static = {pod["id"] for pod in _items(pods, "items") if _is_static(pod)} if pods else set()
    return Signs(
        workloads=tuple(
            sorted(
                _named(container)
                for container in _items(said, "containers")
                if container.get("podSandboxId") not in static
                and container["labels"].get("io.kubernetes.pod.namespace") != "kube-system"
            )
        ),
        gpu_users=answer.all("gpu"),
    )


def _items(text: str, key: str) -> list[dict[str, Any]]:
    return list(json.loads(text).get(key) or ())


def _is_static(pod: dict[str, Any]) -> bool:
    return bool((pod.get("annotations") or {}).get(STATIC, "api") != "api")


def _named(container: dict[str, Any]) -> str:
    labels = container["labels"]
    parts = (labels.get(f"io.kubernetes.{part}", "?") for part in ("pod.namespace", "pod.name"))
    return "/".join((*parts, container["metadata"]["name"]))
