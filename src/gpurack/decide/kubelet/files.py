"""What the files around kubelet say together, and what in them would defeat our drop-in (R24-R28)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from gpurack.decide.kubelet.config import (
    PLACEMENT,
    Document,
    Values,
    drop_in,
    effective,
    overriding,
    parse_document,
    without_appended,
)
from gpurack.decide.kubelet.flags import arguments, given, with_flags
from gpurack.decide.kubelet.snapshot import CONFIG, DROP_IN, DROP_IN_DIR, EXTRA_ARGS, KUBEADM_FLAGS, Snapshot
from gpurack.decide.numa import Reservation
from gpurack.errors import Problem
from gpurack.site.models import NumaPolicy

# Command-line flags win over every document (R26), so these would defeat the drop-in without a word.
_DEFEATING = (
    "cpu-manager-policy",
    "cpu-manager-policy-options",
    "memory-manager-policy",
    "topology-manager-policy",
    "topology-manager-policy-options",
    "topology-manager-scope",
    "reserved-cpus",
    "reserved-memory",
    "kube-reserved",
    "system-reserved",
    "eviction-hard",
    "root-dir",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """+ before: effective values that kubelet reads today
    + below, above: documents read before and after ours
    + repaired: config.yaml without what was appended by hand, when there is such a thing
    + fragment: config.yaml is no document of kubelet's and the host has not joined
    + extra_args: what /etc/default/kubelet has to say"""

    before: Values
    below: tuple[Document, ...]
    above: tuple[Document, ...]
    extra_args: str
    repaired: str | None = None
    appended: tuple[str, ...] = ()
    fragment: bool = False
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def gates(self) -> Mapping[str, Any]:
        found = effective((*self.below, *self.above)).get("featureGates")
        return found if isinstance(found, Mapping) else {}


def judge(policy: NumaPolicy, addresses: tuple[str, ...], found: Snapshot) -> Judged:
    """Everything that the files mean for `policy`. Never raises; what can't work is in `problems`."""
    problems: list[Problem] = []
    notes: list[str] = []
    base, repaired, appended, fragment = _base(found, problems, notes)
    raw = parse_document(found.text(CONFIG) or "") if found.joined else Document()
    documents = {path: parse_document(found.text(path) or "") for path in found.drop_ins if path != DROP_IN}
    problems += _broken(documents)
    ours = PurePosixPath(DROP_IN).parts
    earlier = tuple(one for path, one in documents.items() if PurePosixPath(path).parts < ours)
    later = {path: one for path, one in documents.items() if PurePosixPath(path).parts > ours}
    extra_args, reads_dir = _flags(addresses, found, problems, notes)
    _override(policy, later, problems, notes)
    for path, document in {CONFIG: base, **documents}.items():
        notes += _unknown(path, document)
    below, above = (base, *earlier), tuple(later.values())
    own = parse_document(found.text(DROP_IN) or "")
    together = effective((*below, *above))
    cgroups = [key for key in ("systemReservedCgroup", "kubeReservedCgroup") if together.get(key)]
    if cgroups and (policy.reserved.cpus or policy.reserved.cpus_per_numa_node):
        problems.append(
            Problem(
                code="E-KUBELET-07",
                what=f"reserved CPUs together with {' and '.join(cgroups)}",
                rule="R1: kubelet refuses reservedSystemCPUs beside a reserved cgroup",
                next="take the reserved cgroups out of kubelet's configuration, or reserve no CPUs by id",
            )
        )
    return Judged(
        before=effective((raw, *earlier, own, *above) if reads_dir else (raw,)),
        below=below,
        above=above,
        extra_args=extra_args,
        repaired=repaired,
        appended=appended,
        fragment=fragment,
        problems=tuple(problems),
        notes=tuple(notes),
    )


def _base(
    found: Snapshot, problems: list[Problem], notes: list[str]
) -> tuple[Document, str | None, tuple[str, ...], bool]:
    """config.yaml as it will be: (document, repaired text, appended keys, is a fragment).

    Before the join it counts for nothing, for kubeadm writes it anew.
    """
    text = found.text(CONFIG)
    if text is None:
        return Document(), None, (), False
    document = parse_document(text)
    if not found.joined:
        return Document(), None, (), document.broken is not None or not document.is_config
    try:
        repaired = without_appended(text)
    except ValueError as error:
        problems.append(_unreadable(CONFIG, str(error)))
        return document, None, (), False
    if repaired is not None:
        rest = parse_document(repaired)
        lost = tuple(key for key in document.values if key not in rest.values)
        keys = tuple(dict.fromkeys((*document.duplicates, *lost)))
        return rest, repaired, keys, False
    if document.broken or not document.is_config:
        problems.append(
            _unreadable(CONFIG, document.broken or "no apiVersion and kind of KubeletConfiguration")
        )
    if document.duplicates:
        notes.append(
            f"R24: {CONFIG} gives {', '.join(document.duplicates)} twice; kubelet takes the last silently"
        )
    return document, None, (), False


def _unreadable(path: str, why: str) -> Problem:
    return Problem(
        code="E-KUBELET-02",
        what=f"{path} can't be read",
        found=why,
        rule="R24: kubelet stops, or reads something else than is written",
        next="kubeadm upgrade node phase kubelet-config renders it again (R30)",
    )


def _broken(documents: Mapping[str, Document]) -> Iterator[Problem]:
    """Unlike in config.yaml, a key given twice is fatal here: `strict decoding error` (tried with 1.34.4)."""
    for path, document in documents.items():
        if document.broken or document.duplicates or not document.is_config:
            twice = ", ".join(document.duplicates)
            yield Problem(
                code="E-KUBELET-03",
                what=f"kubelet can't read the drop-in {path}",
                found=document.broken
                or (f"keys given twice: {twice}" if twice else None)
                or "no apiVersion kubelet.config.k8s.io/v1beta1 and kind KubeletConfiguration",
                rule="R24, R28: fatal at kubelet's start",
                next="repair the file, or rename it so that it does not end in .conf",
            )


def _override(
    policy: NumaPolicy, later: Mapping[str, Document], problems: list[Problem], notes: list[str]
) -> None:
    """Drop-ins of others that are read after ours: theirs stay, and whoever defeats the pool is named."""
    ours = drop_in(policy, Reservation(), {})
    for path, document in later.items():
        keys = set(overriding(ours, document.values))
        # Values that are computed per host can't be right in a file of somebody else's.
        keys |= {key for key in ("reservedMemory", "reservedSystemCPUs") if key in document.values}
        thresholds = {key for key in keys if key.startswith("evictionHard.") and "memory" not in key}
        if defeating := sorted(keys - thresholds):
            problems.append(
                Problem(
                    code="E-KUBELET-04",
                    what=f"a later drop-in sets keys of ours: {', '.join(defeating)}",
                    found=path,
                    rule="R26, R28: the last drop-in wins, and reservedMemory has to add up to the byte (R2)",
                    next=f"take the keys out, or let its name sort before {PurePosixPath(DROP_IN).name}",
                )
            )
        if thresholds:
            notes.append(f"{path} sets {', '.join(sorted(thresholds))} after us; its values hold")


def _flags(
    addresses: tuple[str, ...], found: Snapshot, problems: list[Problem], notes: list[str]
) -> tuple[str, bool]:
    """The text of /etc/default/kubelet, and whether kubelet reads the drop-in directory today."""
    text = found.text(EXTRA_ARGS)
    flags = {"config-dir": DROP_IN_DIR, "node-ip": ",".join(addresses)}
    try:
        extra = arguments(text)
        kubeadm = arguments(found.text(KUBEADM_FLAGS), "KUBELET_KUBEADM_ARGS")
        wanted = with_flags(text, flags)
    except ValueError as error:
        problems.append(
            Problem(
                code="E-KUBELET-05",
                what="kubelet's arguments can't be taken apart",
                found=f"{EXTRA_ARGS} or {KUBEADM_FLAGS}: {error}",
                next="repair the quotes",
            )
        )
        return text or "", False
    everywhere = (*kubeadm, *extra, *found.command)
    strangers = {one.rstrip("/") for one in given(everywhere, "config-dir")} - {DROP_IN_DIR}
    if strangers:
        problems.append(
            Problem(
                code="E-KUBELET-06",
                what="kubelet already reads drop-ins from another directory",
                found=", ".join(sorted(strangers)),
                wanted=DROP_IN_DIR,
                rule="R28: there can be only one, and the files in the other would lose their effect",
                next=f"move those files to {DROP_IN_DIR} and take --config-dir out of kubelet's arguments",
            )
        )
    if defeating := [f"--{flag}" for flag in _DEFEATING if given(everywhere, flag)]:
        problems.append(
            Problem(
                code="E-KUBELET-08",
                what=f"command-line flags decide what the pool decides: {', '.join(defeating)}",
                found=f"{EXTRA_ARGS}, {KUBEADM_FLAGS} or a drop-in of kubelet's unit",
                rule="R26: flags win over every configuration file",
                next="take them out; what they say belongs into the pool's numa",
            )
        )
    if absent := [one for one in addresses if found.addresses and one not in found.addresses]:
        problems.append(
            Problem(
                code="E-KUBELET-09",
                what=f"the host does not have its address {', '.join(absent)}",
                found=", ".join(sorted(found.addresses)),
                wanted=", ".join(addresses),
                rule="kubelet stops when --node-ip is on no interface",
                next="correct the address in the site document, or configure it on the host",
            )
        )
    other = set(given(kubeadm, "node-ip")) - {flags["node-ip"]}
    if other:
        notes.append(
            f"{KUBEADM_FLAGS} gives --node-ip {', '.join(sorted(other))}; ours comes later and holds"
        )
    return wanted, DROP_IN_DIR in given((*kubeadm, *extra), "config-dir")


def _unknown(path: str, document: Document) -> Iterator[str]:
    for key, meant in document.unknown.items():
        cure = f"; {meant} was probably meant" if meant else ""
        weight = " that decides where pods run" if meant in PLACEMENT else ""
        yield f"R24: {path}: kubelet knows no key {key}{weight} and ignores it{cure}"
