"""What it takes to run a pool's resource managers on one host, and what that disturbs.

Everything that would stop kubelet, or make it hand out what is not there, is refused here, before a byte is
written (R1-R5, R12, R14). New hosts get files only; a host that has joined gets one transaction: stop, write,
remove only the state that conflicts, start (R19).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

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
from gpurack.decide.kubelet import boot, files
from gpurack.decide.kubelet.checkpoints import Conflict, Damaged, cpu_conflict, memory_conflict
from gpurack.decide.kubelet.config import PLACEMENT, Document, Values, drop_in, effective, render
from gpurack.decide.kubelet.options import judge as judge_options
from gpurack.decide.kubelet.snapshot import (
    CONFIG,
    CPU_STATE,
    DROP_IN,
    DROP_IN_DIR,
    EXTRA_ARGS,
    MEMORY_STATE,
    STATE_DIR,
    Snapshot,
)
from gpurack.decide.numa import Reservation, Topology, reserve
from gpurack.decide.pci import Function, without_numa_node
from gpurack.defaults import KUBELET_HEALTH_DEADLINE
from gpurack.errors import Problem, Where
from gpurack.site.models import Node, NumaPolicy

HEALTHZ = (
    'bash -c \'exec 3<>/dev/tcp/127.0.0.1/10248 && printf "GET /healthz HTTP/1.0\\r\\n\\r\\n" >&3 '
    '&& read -r line <&3 && case $line in *" 200 "*) exit 0 ;; esac; exit 1\' 2>/dev/null'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """+ kubernetes: the pin; + addresses: node IPs, the main one first; + where: of the pool's `numa`."""

    policy: NumaPolicy
    kubernetes: str
    addresses: tuple[str, ...]
    where: Where

    @classmethod
    def of(cls, node: Node) -> Wanted:
        """A host without a pool runs without resource managers."""
        return cls(
            policy=node.pool.numa if node.pool else NumaPolicy(),
            kubernetes=node.site.stack.kubernetes,
            addresses=tuple(str(address) for address in node.host.addresses),
            where=Where(node.site.file, None, f"pools.{node.host.pool}.numa" if node.pool else "hosts"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Everything found on one host."""

    kubelet: Snapshot
    topology: Topology
    gpus: tuple[Function, ...] = ()


def align(wanted: Wanted, found: Host) -> Decision:
    """What it takes to run `wanted`. Total: every snapshot has an answer.

    Refused with every problem at once when it could not run; steps in the order of R19 otherwise. On a live
    host the disruption says what the steps would cost: a changed policy or reservation needs a drain.
    """
    judged = files.judge(wanted.policy, wanted.addresses, found.kubelet)
    reservation, impossible = reserve(wanted.policy, found.topology, wanted.where)
    problems = (
        *impossible,
        *judge_options(wanted.policy, wanted.kubernetes, judged.gates, found.topology, wanted.where),
        *_judge_gpus(wanted, found),
        *judged.problems,
    )
    if problems:
        return refuse(*problems)
    plan = _Plan(wanted=wanted, found=found, judged=judged, reservation=reservation)
    return plan.decision()


def expected(wanted: Wanted, found: Host) -> Values:
    """The effective values that kubelet must report for keys of ours (configz, R22)."""
    judged = files.judge(wanted.policy, wanted.addresses, found.kubelet)
    reservation, _ = reserve(wanted.policy, found.topology, wanted.where)
    ours = drop_in(wanted.policy, reservation, effective(judged.below))
    merged = effective((*judged.below, Document(values=ours), *judged.above))
    return {key: merged.get(key) for key in ours if key not in ("apiVersion", "kind")}


def _judge_gpus(wanted: Wanted, found: Host) -> Iterator[Problem]:
    lost = without_numa_node(found.gpus, len(found.topology.nodes))
    if lost and wanted.policy.topology == "single-numa-node":
        yield Problem(
            code="E-NUMA-06",
            what="single-numa-node, and firmware does not say on which NUMA node GPUs are",
            where=Where(wanted.where.file, wanted.where.line, f"{wanted.where.field}.topology"),
            found=f"numa_node -1: {', '.join(gpu.address for gpu in lost)}",
            rule="O-09: to kubelet they are near every node, so the policy would promise what it can't keep",
            next="get a firmware with PCI-to-NUMA tables, or use topology: best-effort",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """One host whose policy is possible."""

    wanted: Wanted
    found: Host
    judged: files.Judged
    reservation: Reservation

    def decision(self) -> Decision:
        kubelet = self.found.kubelet
        configuration = [*self._configuration()]
        guard = [*self._guard()]
        enabled = [*self._enabled()]
        restart = [*self._restart_reasons(bool(configuration))]
        state = [*self._state(bool(restart))]
        reasons = [
            *(reason for reason, _ in (*configuration, *guard, *enabled)),
            *restart,
            *(reason for reason, _ in state),
        ]
        notes = (*self.judged.notes, *self._notes(bool(restart)))
        if not reasons:
            return settled("kubelet's resource managers are as wanted", notes=notes)
        writes = [step for _, step in (*configuration, *guard)]
        removes = [Remove(path=path) for _, path in state]
        steps: list[Step] = []
        transaction = kubelet.joined and bool(restart or state)
        if kubelet.service.loaded and (transaction or (state and kubelet.service.active != "inactive")):
            steps.append(Unit(name="kubelet.service", verb="stop"))  # a running kubelet rewrites state (R19)
        if not kubelet.drop_in_dir:
            # Before anything names it: a missing directory is fatal (R28).
            steps.append(
                Run(script=f"install -d -m 0755 {DROP_IN_DIR}", why="make kubelet's drop-in directory")
            )
        steps += [*writes, *removes]
        if any(isinstance(step, Write) and step.path == boot.UNIT for step in writes):
            steps.append(Reload())
        steps += [step for _, step in enabled]
        if transaction:
            # A stop does not clear the count of automatic restarts, and the proof goes by it.
            forget = "systemctl reset-failed kubelet.service 2>/dev/null || :"
            steps.append(Run(script=forget, why="forget kubelet's earlier restarts"))
            steps.append(Unit(name="kubelet.service", verb="start"))
            steps.append(
                Await(
                    probe=HEALTHZ,
                    reason="kubelet answers on its health port",
                    deadline=KUBELET_HEALTH_DEADLINE,
                    journal="kubelet",
                )
            )
        return Decision(
            reason="; ".join(reasons),
            steps=tuple(steps),
            disruption=self._disruption(bool(restart), bool(state), guard),
            notes=notes,
        )

    # ------------------------------------------------------------------------------------ files
    def _configuration(self) -> Iterator[tuple[str, Write | Remove]]:
        """Changes that kubelet reads at its start, each with its reason."""
        kubelet, judged = self.found.kubelet, self.judged
        if judged.repaired is not None:
            reason = f"{CONFIG} carries keys appended by hand ({', '.join(judged.appended)})"
            yield reason, Write(path=CONFIG, content=judged.repaired, mode=0o644, keep_mode=True)
        elif judged.fragment:
            yield f"{CONFIG} is a fragment without kind, left by hand before the join", Remove(path=CONFIG)
        text = render(drop_in(self.wanted.policy, self.reservation, effective(judged.below)))
        if kubelet.text(DROP_IN) != text:
            yield self._why_drop_in(), Write(path=DROP_IN, content=text)
        if kubelet.text(EXTRA_ARGS) != judged.extra_args:
            reason = f"{EXTRA_ARGS} has to name the drop-in directory and the node's addresses"
            yield reason, Write(path=EXTRA_ARGS, content=judged.extra_args, keep_mode=True)

    def _why_drop_in(self) -> str:
        changes = self._changes()
        words = ", ".join(f"{key} {_short(old)} -> {_short(new)}" for key, (old, new) in changes.items())
        if words:
            return f"kubelet's resource managers: {words}"
        return f"{DROP_IN} is not as we lay it down"

    def _changes(self) -> dict[str, tuple[Any, Any]]:
        """Effective values before and after, where they differ."""
        kubelet, judged = self.found.kubelet, self.judged
        new = drop_in(self.wanted.policy, self.reservation, effective(judged.below))
        after = effective((*judged.below, Document(values=new), *judged.above))
        before = judged.before if kubelet.joined else effective(())
        keys = [key for key in (*new, *PLACEMENT) if key not in ("apiVersion", "kind")]
        return {
            key: (before.get(key), after.get(key))
            for key in dict.fromkeys(keys)
            if (before.get(key) or None) != (after.get(key) or None)
        }

    def _guard(self) -> Iterator[tuple[str, Write]]:
        """The boot guard (R10). The stored id first: under a running kubelet it must name this boot."""
        kubelet = self.found.kubelet
        if boot.STORED not in kubelet.files and kubelet.boot_id:
            yield "boot id not stored", Write(path=boot.STORED, content=f"{kubelet.boot_id}\n")
        if kubelet.text(boot.GUARD) != boot.GUARD_TEXT:
            yield "boot guard not laid down", Write(path=boot.GUARD, content=boot.GUARD_TEXT, mode=0o755)
        if kubelet.text(boot.UNIT) != boot.UNIT_TEXT:
            yield "boot guard not in kubelet's unit", Write(path=boot.UNIT, content=boot.UNIT_TEXT)

    # ------------------------------------------------------------------------------------ process and state
    def _enabled(self) -> Iterator[tuple[str, Unit]]:
        """A reboot must bring kubelet back; its package enables it, people disable it."""
        service = self.found.kubelet.service
        if service.loaded and not service.enabled:
            yield "kubelet is not enabled at boot", Unit(name="kubelet.service", verb="enable")

    def _restart_reasons(self, configuration: bool) -> Iterator[str]:
        """Why a joined kubelet has to start again; the reasons of changed files are given with the files."""
        kubelet = self.found.kubelet
        if not kubelet.joined:
            return
        if not kubelet.running:
            yield f"kubelet is {kubelet.service.active} ({kubelet.service.sub})"
        elif kubelet.looping:
            yield f"kubelet restarts again and again ({kubelet.service.restarts} times)"
        if unread := kubelet.unread(DROP_IN, EXTRA_ARGS, CONFIG):
            yield f"kubelet has not read {', '.join(unread)} since it was written (R23)"
        if kubelet.service.stale_binary:
            yield "kubelet's package was replaced under the running process (R23)"
        if configuration:
            yield "kubelet has to read its new configuration"

    def _state(self, restart: bool) -> Iterator[tuple[str, str]]:
        """State files that the next start would refuse, with the reason.

        Under a kubelet that runs and stays running nothing is judged: its state describes itself.
        """
        kubelet = self.found.kubelet
        if kubelet.joined and not restart:
            return
        for path, conflict in self._conflicts():
            if conflict is not None:
                yield conflict.reason, path
        for name, damage in kubelet.others.items():
            if damage is not None and not name.startswith("dra_"):  # R16: prepared claims hang on it
                yield f"{name} is damaged: {damage.reason}", f"{STATE_DIR}/{name}"

    def _conflicts(self) -> tuple[tuple[str, Conflict | None], ...]:
        kubelet, policy, topology = self.found.kubelet, self.wanted.policy, self.found.topology
        return (
            (CPU_STATE, cpu_conflict(kubelet.cpu, policy, self.reservation.cpus, topology.online)),
            (MEMORY_STATE, memory_conflict(kubelet.memory, policy, self.reservation, topology)),
        )

    def _notes(self, restart: bool) -> Iterator[str]:
        kubelet = self.found.kubelet
        lost = without_numa_node(self.found.gpus, len(self.found.topology.nodes))
        if lost and self.wanted.policy.topology != "none":
            yield f"O-09: NUMA node unknown for GPUs {', '.join(gpu.address for gpu in lost)}"
        for name, damage in kubelet.others.items():
            if damage is not None and (name.startswith("dra_") or (kubelet.joined and not restart)):
                yield (
                    f"O-04: checkpoint {STATE_DIR}/{name} is damaged ({damage.reason}): drain, stop kubelet, "
                    "move the file aside, start kubelet"
                )
        if kubelet.joined and not restart:
            conflict = self._conflicts()[1][1]
            if conflict is not None and (conflict.drift or isinstance(kubelet.memory, Damaged)):
                yield (f"{conflict.reason}: kubelet runs, and would refuse its state at a mere restart (R9)")

    def _disruption(self, restart: bool, state: bool, guard: list[tuple[str, Write]]) -> Disruption:
        if self.found.kubelet.joined and (state or (restart and PLACEMENT & self._changes().keys())):
            return Disruption.DRAIN
        if restart:
            return Disruption.KUBELET_RESTART
        if any(step.path == boot.UNIT for _, step in guard):
            return Disruption.UNIT_RELOAD
        return Disruption.NONE


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_short(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_short(one) for one in value) + "]"
    return "unset" if value is None else str(value)
