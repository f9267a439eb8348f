"""What was found of containerd on one host, and what is wanted. Nothing here judges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Version = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """One TOML file as it lies on the host.

    + changed: seconds since the epoch of its last status change (ctime: a package's file keeps an old mtime)
    """

    path: str
    text: str
    changed: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """A file that is compared as a whole and may hold secrets, so only its hash travels.

    + ours: its first line says that gpurack manages it
    """

    path: str
    sha256: str
    mode: int
    changed: float = 0.0
    ours: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Binary:
    """One `containerd` program, by its real path. + owner: the Debian package it came from."""

    path: str
    version: Version | None = None
    owner: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """One running containerd.

    + ticks: start time in the kernel's own ticks: with `pid` it names this process and no other
    + started: the same moment in seconds since the epoch
    + memlock: soft limit as the kernel prints it (`unlimited` or bytes)
    """

    pid: int
    exe: str
    arguments: tuple[str, ...] = ()
    ticks: int = 0
    started: float = 0.0
    unit: str | None = None
    sockets: tuple[str, ...] = ()
    memlock: str | None = None

    @property
    def config(self) -> str:
        """The root file it was started with."""
        for at, argument in enumerate(self.arguments):
            if argument in ("-c", "--config", "-config") and at + 1 < len(self.arguments):
                return self.arguments[at + 1]
            for flag in ("--config=", "-config=", "-c="):
                if argument.startswith(flag):
                    return argument.removeprefix(flag)
        return "/etc/containerd/config.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """`containerd.service` as systemd sees it."""

    found: bool = False
    active: bool = False
    enabled: bool = False
    stale: bool = False  # NeedDaemonReload
    drop_ins: tuple[str, ...] = ()
    main_pid: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cri:
    """What the CRI socket answered.

    + systemd_cgroup: by runtime handler, as the *running* process has it
    + error: why there is no answer
    """

    ready: bool = False
    reason: str = ""
    default_runtime: str = ""
    systemd_cgroup: Mapping[str, bool] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What gpurack noted about the process that it last saw in order (`/run/gpurack-containerd`)."""

    pid: int
    ticks: int
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything that decisions about containerd rest on, read at one moment.

    + now: the host's clock, seconds since the epoch
    + units: by unit name, the containerd program its ExecStart names
    + files: TOML files that the root file can load, by path
    + digests: hosts.toml, certificates, unit drop-in, environment file, by path
    + kubelet_endpoint: as kubelet is told; None when kubelet is not set up
    + containers: how many containers run now
    + judged: lines that containerd itself printed about the files on disk (`config dump`); asked for before
      a change only
    """

    now: float = 0.0
    binaries: tuple[Binary, ...] = ()
    units: Mapping[str, str] = field(default_factory=dict)
    daemons: tuple[Daemon, ...] = ()
    service: Service = Service()
    files: Mapping[str, ConfigFile] = field(default_factory=dict)
    digests: Mapping[str, Digest] = field(default_factory=dict)
    kubelet_endpoint: str | None = None
    containers: int = 0
    judged: tuple[str, ...] = ()
    ran: Ran | None = None
    cri: Cri = Cri()

    @property
    def daemon(self) -> Daemon | None:
        """The process of `containerd.service`."""
        for daemon in self.daemons:
            if daemon.pid and daemon.pid == self.service.main_pid:
                return daemon
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """+ user, password: as the registry wants them; both are secrets by now."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryHosts:
    """Where images of one registry namespace come from.

    + mirrors: URLs, tried in order; empty means the registry itself
    + ca: PEM text
    """

    name: str
    mirrors: tuple[str, ...] = ()
    ca: str | None = None
    login: Login | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """containerd as the stack and the site want it on one host.

    + version: the pinned containerd; decides the schema of every file of ours
    + sandbox: image of the pause container, by its full name
    + proxy: URL, may hold a login; + no_proxy: entries in order
    + ca_bundle: PEM text that containerd trusts beside the host's own
    """

    version: Version
    sandbox: str
    proxy: str | None = field(default=None, repr=False)
    no_proxy: tuple[str, ...] = ()
    ca_bundle: str | None = None
    registries: tuple[RegistryHosts, ...] = ()
