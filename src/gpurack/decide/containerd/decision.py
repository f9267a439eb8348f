"""What to do about containerd on one host, as one transaction: write, judge, restart, wait, note."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from gpurack import defaults
from gpurack.decide.containerd import candidates, config, schema, symptoms, unit
from gpurack.decide.containerd.config import ROOT, Plan
from gpurack.decide.containerd.models import Snapshot, Version, Wanted
from gpurack.decide.containerd.tables import Table
from gpurack.decide.decision import (
    Await,
    Decision,
    Disruption,
    Reload,
    Remove,
    Run,
    Step,
    Unit,
    Write,
    refuse,
    settled,
)
from gpurack.errors import Problem

NOTE = "/run/gpurack-containerd"  # pid, start time and fingerprint of the process last seen in order
ASIDE = "/etc/containerd/config.toml.before-gpurack"
_CRICTL = f"timeout 10 crictl --runtime-endpoint unix://{candidates.SOCKET} --timeout 8s info"
CRI_READY = f"""{_CRICTL} 2>/dev/null | tr -d ' \\n' | grep -q '"status":true,"type":"RuntimeReady"'"""


def judge(path: str) -> str:
    """Shell text that lets containerd itself read `path` (already quoted) and fails as its daemon would.

    An unknown key is a mere warning for containerd, and a lost setting for us.
    """
    return (
        f"said=$({candidates.BINARY} --config {path} config dump 2>&1 >/dev/null) || "
        '{ printf "%s\\n" "$said" >&2; exit 1; }; '
        'case $said in *"Ignoring unknown key"*) printf "%s\\n" "$said" >&2; exit 1;; esac'
    )


def serve(wanted: Wanted, found: Snapshot, *, executing: bool) -> Decision:
    """Bring containerd to `wanted` and prove that CRI answers.

    + executing: the package step of this run is done, so what is missing now is really missing

    Nothing is restarted unless the effective configuration of the running process differs from the wanted
    one (R92). Everything that a restart would read is written in the same decision, so a live node never
    keeps a half-applied file for its next accidental restart.
    """
    refused = [*candidates.problems_of(found), *(_packages(wanted, found) if executing else ())]
    if refused:
        return refuse(*refused)
    plan = config.plan(wanted, found.files)
    if plan.refused:
        return refuse(*plan.refused)

    unit_steps, unit_reasons = unit.steps(wanted, found.digests)
    after = fingerprint(plan.after, unit.hashes_wanted(wanted))
    restart = _why_restart(found, plan, after)
    unread = unit.unread(found)
    reasons = [*plan.reasons, *unit_reasons, *([unread] if unread else []), *([restart] if restart else [])]
    notes = (*candidates.notes_of(found), *plan.notes, *_limits(found))
    if not reasons and found.service.enabled:
        return settled("containerd runs the wanted configuration", notes=notes)

    unknown = symptoms.unknown_keys(found.judged, found.files)
    ignored = [problem for problem in unknown if not problem.where or problem.where.file != config.DROP_IN]
    if ignored and (restart or plan.texts) and (executing or _installed(found) == wanted.version):
        return refuse(*ignored)

    steps = [*_writes(plan), *unit_steps]
    if steps and restart:
        steps.append(Run(script=judge(ROOT), why="let containerd itself read the whole configuration"))
    rewritten = any(isinstance(step, Write) and step.path == unit.DROP_IN for step in steps)
    if rewritten or unread or (restart and found.service.stale):
        steps.append(Reload())
    if not found.service.enabled:
        steps.append(Unit(name=candidates.UNIT, verb="enable"))
        reasons.append("containerd is not enabled at boot")
    if restart:
        steps += _restart(found)
    steps.append(Run(script=_note(after), why="note which configuration the process runs"))
    return Decision(
        reason="; ".join(reasons),
        steps=tuple(steps),
        disruption=_disruption(found, steps, restart=bool(restart)),
        notes=notes,
    )


def proof(wanted: Wanted, found: Snapshot) -> tuple[Problem, ...]:
    """What is still wrong after the work; read afresh. Empty means proven."""
    problems: list[Problem] = []
    if not found.cri.ready:
        problems.append(symptoms.explain(found.cri.error or found.cri.reason, found))
    elif found.cri.systemd_cgroup.get("runc") is not True:
        problems.append(
            Problem(
                code="E-CTRD-18",
                what="the running containerd does not use the systemd cgroup driver for runc",
                found=f"SystemdCgroup {found.cri.systemd_cgroup.get('runc')}",
                wanted="SystemdCgroup true",
                rule="R96: kubelet takes its cgroup driver from the runtime",
                next="compare `containerd config dump` with `crictl info`; restart containerd if they differ",
            )
        )
    return (*problems, *config.plan(wanted, found.files).refused)


def fingerprint(effective: Table, files: Mapping[str, str]) -> str:
    """One value for all that a starting containerd reads; layout, comments and import paths do not count."""
    values = {key: value for key, value in effective.items() if key not in ("imports", "version")}
    text = json.dumps([values, dict(files)], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _why_restart(found: Snapshot, plan: Plan, after: str) -> str | None:
    """Why the running process does not do, or None."""
    daemon = found.daemon
    if daemon is None:
        return "containerd is not running"
    if found.cri.systemd_cgroup.get("runc") is False:
        return "the running containerd uses cgroupfs for runc"
    on_disk = fingerprint(plan.before, unit.hashes_found(found.digests))
    if found.ran and (found.ran.pid, found.ran.ticks) == (daemon.pid, daemon.ticks):
        if found.ran.fingerprint != after:
            return "the running containerd has another configuration"
    elif on_disk != after:
        return "the effective configuration changes"
    elif newer := _newer(found, plan, daemon.started):
        return f"{newer} changed after containerd started"
    if not found.cri.ready:
        return "CRI does not answer"
    return None


def _newer(found: Snapshot, plan: Plan, started: float) -> str | None:
    """A file that the process cannot have read. Dates in the future (a clock was wrong) prove nothing."""
    dates = {path: found.files[path].changed for path in plan.order if path in found.files}
    dates |= {path: found.digests[path].changed for path in unit.hashes_found(found.digests)}
    return next((path for path, changed in dates.items() if started < changed <= found.now), None)


def _writes(plan: Plan) -> list[Step]:
    steps: list[Step] = []
    if plan.unreadable:
        steps.append(Remove(path=config.DROP_IN))
    if plan.kept is not None:
        steps.append(Write(path=ASIDE, content=plan.kept, mode=0o600, secret=True))
    steps += [
        # keep_mode: a root file with logins may be closed to others, and stays so.
        Write(path=path, content=text, validate=judge('"$1"'), keep_mode=path == ROOT)
        for path, text in plan.texts.items()
    ]
    return steps


def _restart(found: Snapshot) -> list[Step]:
    return [
        Unit(name=candidates.UNIT, verb="restart" if found.service.active else "start"),
        # kubelet asks once at its start what runs; whoever restarts it next must find CRI answering (R94).
        Await(
            probe=CRI_READY,
            reason="containerd answers on its CRI socket",
            deadline=defaults.CRI_DEADLINE,
            journal=candidates.UNIT,
        ),
    ]


def _note(value: str) -> str:
    return (
        f"pid=$(systemctl show -p MainPID --value {candidates.UNIT}); "
        f"printf '%s %s %s\\n' \"$pid\" \"$(cut -d' ' -f22 /proc/$pid/stat)\" {value} > {NOTE}"
    )


def _disruption(found: Snapshot, steps: list[Step], *, restart: bool) -> Disruption:
    if restart and found.containers and found.cri.systemd_cgroup.get("runc") is False:
        return Disruption.DRAIN  # sandboxes made under the other cgroup driver break (R97)
    if restart:
        return Disruption.CONTAINERD_RESTART
    return Disruption.UNIT_RELOAD if any(isinstance(step, Reload) for step in steps) else Disruption.NONE


def _limits(found: Snapshot) -> tuple[str, ...]:
    daemon = found.daemon
    if daemon is None or unit.DROP_IN not in found.digests or daemon.memlock in (None, "unlimited"):
        return ()
    return (f"containerd's memlock limit is {daemon.memlock} bytes in spite of {unit.DROP_IN} (R76)",)


def _packages(wanted: Wanted, found: Snapshot) -> tuple[Problem, ...]:
    """After the package step: the program that is there must read what we are about to write."""
    pinned = ".".join(map(str, wanted.version))
    if not any(one.path == candidates.BINARY for one in found.binaries):
        return (
            Problem(
                code="E-CTRD-16",
                what=f"{candidates.BINARY} is not there",
                found=", ".join(one.path for one in found.binaries) or "no containerd at all",
                wanted=f"containerd.io {pinned}",
                rule="R82: one source of containerd, from its package",
                next="see what the package step said, then run again",
            ),
        )
    installed = _installed(found)
    if installed and schema.wanted_by(installed) != schema.wanted_by(wanted.version):
        return (
            Problem(
                code="E-CTRD-16",
                what="the installed containerd reads another schema than the pinned one",
                found=".".join(map(str, installed)),
                wanted=pinned,
                rule="R88, R110: files are written for the release that reads them",
                next="bring the package to its pin first (on a live node in a window), then run again",
            ),
        )
    return ()


def _installed(found: Snapshot) -> Version | None:
    return next((one.version for one in found.binaries if one.path == candidates.BINARY), None)
