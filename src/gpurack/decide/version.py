"""Kubernetes versions in the spellings of the field, and the skew that kubelet may have (R57, O-36)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpurack.errors import Problem

_SPELLING = re.compile(
    r"""(?:Kubernetes\s+)?v?(?P<major>\d+)\.(?P<minor>\d+)\+?(?:\.(?P<patch>\d+))?
        (?:-(?P<pre>(?:alpha|beta|rc)\.[0-9.]+))?
        (?:[-+~].*)?""",
    re.VERBOSE,
)
OLDEST_KUBELET = 3  # minors behind the API server that kubelet may be (version skew policy, 1.28 and later)


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """+ pre: `(0, ...)` for a pre-release, which sorts before its release; `(1,)` for the release."""

    major: int
    minor: int
    patch: int = 0
    pre: tuple[int | str, ...] = (1,)

    def __str__(self) -> str:
        tail = "" if self.pre == (1,) else f"-{self.pre[1]}." + ".".join(map(str, self.pre[2:]))
        return f"{self.major}.{self.minor}.{self.patch}{tail}"

    @property
    def line(self) -> tuple[int, int]:
        """Major and minor: what skew rules compare."""
        return self.major, self.minor


def parse(text: str) -> Version:
    """`v1.34.1-eks-113cf36`, `1.31.6-1.1`, `v1.36.0-alpha.0.307+48-dirty`, `1.25+`; else `ValueError`."""
    match = _SPELLING.fullmatch(text.strip())
    if not match:
        raise ValueError(f"{text!r} is no Kubernetes version")
    pre: tuple[int | str, ...] = (1,)
    if match["pre"]:
        word, *numbers = match["pre"].strip(".").split(".")
        pre = (0, word, *(int(number) for number in numbers))
    return Version(int(match["major"]), int(match["minor"]), int(match["patch"] or 0), pre)


def from_server(answer: dict[str, str]) -> Version:
    """The API's `/version`: `gitVersion` when it is there, else `major` and `minor`, which may end in `+`."""
    if answer.get("gitVersion"):
        return parse(answer["gitVersion"])
    return parse(f"{answer['major'].rstrip('+')}.{answer['minor'].rstrip('+')}")


def skew(*, server: Version, kubelet: Version) -> Problem | None:
    """Why this kubelet may not serve under this API server, or `None`.

    kubeadm does not catch a kubelet that is too new (R57), so this is asked before anything is installed.
    """
    if kubelet.line > server.line:
        what = "the pinned kubelet is newer than the API server"
        cure = f"pin stack.kubernetes to {server.major}.{server.minor}.x, or upgrade the control plane first"
    elif kubelet.line < (server.major, server.minor - OLDEST_KUBELET):
        what = f"the pinned kubelet is more than {OLDEST_KUBELET} minors older than the API server"
        cure = f"pin stack.kubernetes to {server.major}.{server.minor}.x"
    else:
        return None
    return Problem(
        code="E-CLUSTER-08",
        what=what,
        found=f"API server {server}, kubelet {kubelet}",
        rule="R57: kubelet is never newer than the API server, and at most three minors older",
        next=cure,
    )
