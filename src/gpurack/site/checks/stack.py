"""Versions that can't belong together by their spelling. What was tested together is the matrix's subject."""

from __future__ import annotations

import re

from gpurack.site.draft import Draft
from gpurack.site.models import Stack

_UPSTREAM = re.compile(r"\d+\.\d+\.\d+", re.ASCII)
_DEBIAN = re.compile(r"(\d+:)?\d[A-Za-z0-9.+~-]*", re.ASCII)
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", re.ASCII)


def check(draft: Draft) -> None:
    stack = draft.stack
    if stack is None:
        return
    for field, version in (("kubernetes", stack.kubernetes), ("containerd", stack.containerd)):
        if not _UPSTREAM.fullmatch(version):
            plain = _UPSTREAM.search(version)
            draft.add(
                "E-SITE-60",
                f"stack.{field} is {version!r}, which is no exact version",
                ("stack", field),
                wanted="three numbers, as 1.34.4",
                next=f"write {plain[0]}" if plain else "pin one exact version",
            )
            return
    _packages(stack, draft)
    for field, tag in stack.images:
        if not _TAG.fullmatch(tag):
            draft.add("E-SITE-60", f"{tag!r} is no image tag", ("stack", "images", field))


def _packages(stack: Stack, draft: Draft) -> None:
    minor = stack.kubernetes.rsplit(".", 1)[0]
    begins = {
        "kubelet": f"{stack.kubernetes}-",
        "kubeadm": f"{stack.kubernetes}-",
        "kubectl": f"{stack.kubernetes}-",
        "cri_tools": f"{minor}.",
        "containerd_io": f"{stack.containerd}-",
    }
    for field, version in stack.packages:
        path = ("stack", "packages", field)
        if not _DEBIAN.fullmatch(version):
            draft.add(
                "E-SITE-60",
                f"{version!r} is no exact Debian version",
                path,
                next=f"apt-cache policy {field.replace('_', '-')} shows what the source has",
            )
        elif not version.startswith(begins.get(field, "")):
            upstream = "stack.containerd" if field == "containerd_io" else "stack.kubernetes"
            draft.add(
                "E-SITE-61",
                f"package {field.replace('_', '-')} {version} does not belong to {upstream}",
                path,
                wanted=f"a version that begins with {begins[field]}",
                rule="R60: kubelet, kubeadm and kubectl are one release"
                if field.startswith("kube")
                else None,
            )
