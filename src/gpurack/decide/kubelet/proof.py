"""Does kubelet run what was wanted? Told by the host (R20, R21), the state files (R6) and configz (R22)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpurack.decide.decision import Await, Decision, settled
from gpurack.decide.kubelet.align import HEALTHZ, Wanted
from gpurack.decide.kubelet.checkpoints import CpuState, Damaged, MemoryState
from gpurack.decide.kubelet.flags import given
from gpurack.decide.kubelet.snapshot import CPU_STATE, DROP_IN_DIR, MEMORY_STATE, Snapshot
from gpurack.defaults import KUBELET_LOOP_RESTARTS, KUBELET_PROOF_DEADLINE, KUBELET_WATCH
from gpurack.errors import Problem
from gpurack.site.quantity import parse_bytes

# Ends as soon as the verdict is certain, good or bad; which of the two, the next reading tells. One process
# that lives for the whole watch means "no restart during the watch", and needs no memory between probes.
_WATCH = f"""\
properties='-p ExecMainStartTimestampMonotonic -p NRestarts -p SubState'
set -- $(systemctl show kubelet $properties | sort | sed 's/.*=//')
started=$1 restarts=$2 sub=$3
[ "$sub" = auto-restart ] && [ "$restarts" -ge {KUBELET_LOOP_RESTARTS} ] && exit 0
[ "$sub" = running ] || exit 1
up=$(cut -d. -f1 /proc/uptime)
[ $((up - started / 1000000)) -gt {KUBELET_WATCH} ] || exit 1  # both are rounded down
{HEALTHZ}
"""

# Journal patterns, first match names the cause: (text in the journal, code, what, rule, next).
_CAUSES = (
    (
        "the expected machine state is different from the real one",
        "E-KUBELET-20",
        "memory state drift after reboot",
        "R9, O-03: per-node memory totals moved; nothing in the configuration is wrong",
        "drain, stop kubelet, remove memory_manager_state, start; the boot guard does so after a boot",
    ),
    (
        "differs from state checkpoint policy",
        "E-KUBELET-21",
        "a state file was saved under another policy",
        "R7, R9",
        "drain, stop kubelet, remove the state file that the journal names, start",
    ),
    (
        "checkpoint is corrupted",
        "E-KUBELET-22",
        "a checkpoint is damaged",
        "R7, O-04",
        "drain, stop kubelet, move the damaged file aside, start",
    ),
    (
        "doesn't match with CPUs in state",
        "E-KUBELET-23",
        "the set of online CPUs changed under saved CPU state",
        "R7",
        "drain, stop kubelet, remove cpu_manager_state, start",
    ),
    (
        "is not equal to the value",
        "E-KUBELET-24",
        "reservedMemory does not add up",
        "R2",
        "look for a drop-in or flag that sets kubeReserved, systemReserved or evictionHard",
    ),
    (
        "unable to determine reserved CPU resources",
        "E-KUBELET-25",
        "CPU policy static without a CPU reservation",
        "R1",
        "look for a drop-in that removes reservedSystemCPUs",
    ),
    (  # before the directory: the same line begins with the text about the directory
        "failed to load kubelet dropin file",
        "E-KUBELET-27",
        "a drop-in that kubelet can't read",
        "R24, R28: kind missing, a key given twice, or no YAML",
        "repair the file that the journal names",
    ),
    (
        "failed to walk through kubelet dropin directory",
        "E-KUBELET-26",
        "kubelet's drop-in directory is missing",
        "R28",
        f"make {DROP_IN_DIR}, or run gpurack again",
    ),
    (
        "unknown flag",
        "E-KUBELET-28",
        "an argument that this kubelet does not know",
        "R33",
        "take it out of kubeadm-flags.env or /etc/default/kubelet",
    ),
)


def watch(found: Snapshot) -> Decision:
    """Nothing when kubelet is proven already; else one wait, for all hosts at the same time.

    The wait also ends when kubelet is certainly broken; `judge` on a new reading says which.
    """
    if found.stable:
        return settled("kubelet has been healthy for longer than the watch")
    return Decision(
        reason="kubelet started a moment ago",
        steps=(
            Await(
                probe=_WATCH,
                reason=f"kubelet stays up for {KUBELET_WATCH} s",
                deadline=KUBELET_PROOF_DEADLINE,
                every=2.0,
                journal="kubelet",
            ),
        ),
    )


def judge(wanted: Wanted, found: Snapshot) -> tuple[Problem, ...]:
    """Why kubelet does not run what is wanted, from the host's side. Empty is proof."""
    if not found.stable:
        return (diagnose(found),)
    return tuple(_mismatches(wanted, found))


def diagnose(found: Snapshot) -> Problem:
    """The cause of a kubelet that does not stay up, as far as unit, journal and state files name one."""
    service = found.service
    state = f"{service.active} ({service.sub}), {service.restarts} restarts"
    journal = "\n".join(found.journal)
    for text, code, what, rule, cure in _CAUSES:
        if text in journal:
            line = next(line for line in reversed(found.journal) if text in line)
            return Problem(code=code, what=what, found=f"{state}; {line.strip()}", rule=rule, next=cure)
    damaged = {
        **{
            path: one
            for path, one in ((CPU_STATE, found.cpu), (MEMORY_STATE, found.memory))
            if _is_damaged(one)
        },
        **{name: one for name, one in found.others.items() if one is not None},
    }
    if damaged:
        return Problem(
            code="E-KUBELET-22",
            what=f"damaged checkpoints: {', '.join(damaged)}",
            found=state,
            rule="O-04",
            next="drain, stop kubelet, move them aside, start",
        )
    last = found.journal[-1].strip() if found.journal else "nothing in the journal names a cause"
    return Problem(
        code="E-KUBELET-29",
        what="kubelet does not stay up" if not found.running else "kubelet is not healthy",
        found=f"{state}; {last}",
        rule="R20",
        next="journalctl -u kubelet on the host",
    )


def _is_damaged(state: object) -> bool:
    return isinstance(state, Damaged)


def _mismatches(wanted: Wanted, found: Snapshot) -> Iterator[Problem]:
    if DROP_IN_DIR not in given(found.command, "config-dir"):
        yield Problem(
            code="E-KUBELET-30",
            what="kubelet runs without our drop-in directory",
            found=" ".join(found.command),
            wanted=f"--config-dir={DROP_IN_DIR}",
            rule="R28",
            next="look for a drop-in of kubelet's unit whose ExecStart leaves out $KUBELET_EXTRA_ARGS",
        )
    pairs: tuple[tuple[str, CpuState | MemoryState | Damaged | None, str], ...] = (
        (CPU_STATE, found.cpu, wanted.policy.cpu),
        (MEMORY_STATE, found.memory, wanted.policy.memory),
    )
    for path, state, policy in pairs:
        name = state.policy if isinstance(state, CpuState | MemoryState) else None
        if name != policy:
            reason = state.reason if isinstance(state, Damaged) else "no file"
            yield Problem(
                code="E-KUBELET-31",
                what="the policy that kubelet last ran with is not the wanted one",
                found=f"{path}: {name or reason}",
                wanted=policy,
                rule="R6, R21: the state file is the proof of the policy",
                next="compare configz with the drop-in; a later drop-in or a flag may win",
            )


# ---------------------------------------------------------------------------------------- configz
def configz_differences(wanted: Mapping[str, Any], configz: Mapping[str, Any]) -> tuple[str, ...]:
    """Where kubelet's effective configuration is not what was wanted, one line each.

    + wanted: by top-level key, as `align.expected` gives it; quantities may be spelt differently
    + configz: the answer of `/api/v1/nodes/NODE/proxy/configz`, with or without its `kubeletconfig` wrapper

    Only keys of `wanted` are compared. An absent map, list or text equals an empty one: that is how Go leaves
    them out. What `reservedSystemCPUs` does to kubeReserved and systemReserved is not visible there (R22).
    """
    inner = configz.get("kubeletconfig", configz)
    return tuple(_compare(wanted, inner if isinstance(inner, Mapping) else {}, ""))


def _compare(wanted: Mapping[str, Any], found: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for key, value in wanted.items():
        other = found.get(key)
        if isinstance(value, Mapping) and isinstance(other, Mapping):
            yield from _compare(value, other, f"{prefix}{key}.")
        elif _plain(value) != _plain(other):
            yield f"{prefix}{key}: kubelet has {_words(other)}, wanted {_words(value)}"


def _plain(value: Any) -> Any:
    """Comparable: quantities as bytes, lists without order (reservedMemory), nothing for what is empty."""
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items() if one is not None} or None
    if isinstance(value, list):
        return sorted((_plain(one) for one in value), key=repr) or None
    if isinstance(value, str):
        try:
            return parse_bytes(value)
        except ValueError:
            return value or None
    return value


def _words(value: Any) -> str:
    return "nothing" if value is None else str(value)
