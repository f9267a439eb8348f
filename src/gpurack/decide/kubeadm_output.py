"""What a failed kubeadm said, told apart by its output: exit codes say nothing since 1.34 (R40, R41)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpurack.errors import Problem

_PREFLIGHT = re.compile(r"\[ERROR (?P<id>[^\]]+)\]: (?P<text>.+)")
_PHASE = re.compile(r"error execution phase (?P<phase>[\w/-]+): (?P<text>.+)", re.DOTALL)
_JWS = re.compile(r'could not find a JWS signature in the cluster-info ConfigMap for token ID "(?P<id>\w+)"')
_NAME = re.compile(r'a Node with name "(?P<name>[^"]+)" and status "Ready" already exists')
_EXIT = re.compile(r"exit (\d+)")

# What cures a preflight error, by the beginning of its id in lower case (kubeadm ignores case too).
_CURES = (
    ("fileavailable", "left-overs of an earlier life: kubeadm reset -f on the host, then run again (R42)"),
    ("port-", "something listens there already: ss -ltnp on the host (O-33)"),
    ("cri", "containerd does not answer: crictl info; journalctl -u containerd -n 50 (R44)"),
    ("systemverification", "the kernel or its cgroups are not what kubeadm supports (R66)"),
    ("kubeletversion", "kubelet and cluster are too far apart (R57)"),
    ("imagepull", "an image can't be pulled: check sources.registries and the mirror"),
    ("filecontent", "a sysctl is not set: the role base sets it; something undoes it later (R63)"),
    ("isprivileged", "kubeadm needs root: check ssh.sudo"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The end of a kubeadm log. + code: `None` when it never came to its end."""

    code: int | None
    text: str


def outcome(text: str) -> Outcome:
    """The tail of a log that `decide.kubeadm.recorded` wrote."""
    body, _, last = text.rstrip("\n").rpartition("\n")
    match = _EXIT.fullmatch(last)
    return Outcome(code=int(match[1]), text=body) if match else Outcome(code=None, text=text)


def classify(verb: str, found: Outcome, *, log: str) -> tuple[Problem, ...]:
    """Why it failed, one problem per preflight error; empty when it did not fail."""
    if found.code == 0:
        return ()
    if found.code is None:
        return (_problem("E-KUBEADM-01", f"kubeadm {verb} was cut off before its end", None, log, None),)
    preflight = [
        _problem("E-KUBEADM-02", f"preflight: {match['id']}", match["text"].strip(), log, _cure(match["id"]))
        for match in _PREFLIGHT.finditer(found.text)
    ]
    if preflight:
        return tuple(preflight)
    if match := _JWS.search(found.text):
        cure = "run again: every run makes a token of its own that lives for 15 minutes"
        return (_problem("E-KUBEADM-03", f"the token {match['id']} is expired or unknown", None, log, cure),)
    if match := _NAME.search(found.text):
        cure = f"rename one of the machines, or kubectl delete node {match['name']} if that one is gone"
        what = f"a Ready Node {match['name']} exists already"
        return (_problem("E-KUBEADM-04", what, None, log, cure),)
    if match := _PHASE.search(found.text):
        journal = "journalctl -u kubelet -n 50 on the host" if "kubelet" in match["phase"] else None
        what = f"kubeadm {verb} failed in its phase {match['phase']}"
        return (_problem("E-KUBEADM-05", what, match["text"], log, journal),)
    return (_problem("E-KUBEADM-06", f"kubeadm {verb} failed", found.text[-300:], log, None),)


def _problem(code: str, what: str, found: str | None, log: str, cure: str | None) -> Problem:
    short = " ".join(found.split())[:400] if found else None
    return Problem(
        code=code, what=what, found=short, rule="R40", next=f"{cure + '; ' if cure else ''}log: {log}"
    )


def _cure(identifier: str) -> str | None:
    return next((cure for start, cure in _CURES if identifier.lower().startswith(start)), None)
