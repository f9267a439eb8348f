"""What one host says about its kubelet: files, unit, process, saved state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from gpurack.decide.kubelet.checkpoints import CpuState, Damaged, MemoryState
from gpurack.defaults import KUBELET_LOOP_RESTARTS, KUBELET_WATCH

CONFIG = "/var/lib/kubelet/config.yaml"
DROP_IN_DIR = "/etc/kubernetes/kubelet.conf.d"
DROP_IN = f"{DROP_IN_DIR}/20-gpurack-numa.conf"
KUBECONFIG = "/etc/kubernetes/kubelet.conf"
KUBEADM_FLAGS = "/var/lib/kubelet/kubeadm-flags.env"
EXTRA_ARGS = "/etc/default/kubelet"
STATE_DIR = "/var/lib/kubelet"
CPU_STATE = f"{STATE_DIR}/cpu_manager_state"
MEMORY_STATE = f"{STATE_DIR}/memory_manager_state"


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """+ mtime: seconds since the epoch, by the host's clock."""

    text: str
    mtime: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """`systemctl show kubelet`.

    + started: seconds since boot at which the present process started; None when there is none
    + fatal: the present or last process logged `Failed to start ContainerManager` (R20)
    """

    loaded: bool = False
    enabled: bool = False
    active: str = "inactive"
    sub: str = "dead"
    restarts: int = 0
    started: float | None = None
    stale_binary: bool = False
    fatal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One moment of one host.

    + joined: `/etc/kubernetes/kubelet.conf` exists
    + files: by path, those that exist: kubelet's configuration, drop-ins, flags, and what we lay down
    + cpu, memory: the managers' checkpoints; None when there is no file (R6)
    + others: every other `*_state` file, with what is wrong with it, if anything (O-04)
    + command: arguments of the running process
    + addresses: on the host's interfaces, without prefix length
    + journal: lines that explain a failure; read only when kubelet is not well
    """

    joined: bool = False
    service: Service = Service()
    files: Mapping[str, File] = field(default_factory=dict)
    drop_in_dir: bool = False
    cpu: CpuState | Damaged | None = None
    memory: MemoryState | Damaged | None = None
    others: Mapping[str, Damaged | None] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    addresses: frozenset[str] = frozenset()
    boot_id: str = ""
    now: int = 0
    uptime: float = 0.0
    healthy: bool = False
    journal: tuple[str, ...] = ()

    def text(self, path: str) -> str | None:
        file = self.files.get(path)
        return None if file is None else file.text

    @property
    def drop_ins(self) -> tuple[str, ...]:
        """Paths of all drop-ins in the order in which kubelet merges them (R28: lexical walk)."""
        found = (path for path in self.files if path.startswith(f"{DROP_IN_DIR}/") and path.endswith(".conf"))
        return tuple(sorted(found, key=lambda path: PurePosixPath(path).parts))

    @property
    def running(self) -> bool:
        return self.service.active == "active" and self.service.sub == "running"

    @property
    def age(self) -> float:
        """Seconds that the present process has lived; 0 when there is none."""
        return 0.0 if self.service.started is None else max(0.0, self.uptime - self.service.started)

    @property
    def looping(self) -> bool:
        """Restarted by systemd several times, and the present process is young or none (R20)."""
        young = not self.running or self.age < KUBELET_WATCH
        return self.service.restarts >= KUBELET_LOOP_RESTARTS and young

    @property
    def stable(self) -> bool:
        """One process, healthy, alive for the whole watch, without a fatal line (R20)."""
        return self.running and self.healthy and self.age >= KUBELET_WATCH and not self.service.fatal

    def unread(self, *paths: str) -> tuple[str, ...]:
        """Those of `paths` that were written after the present process started (R23).

        A time in the future means that the clock was set, and says nothing.
        """
        if not self.running:
            return ()
        started = self.now - self.age
        return tuple(
            path for path in paths if path in self.files and started + 1 < self.files[path].mtime <= self.now
        )
