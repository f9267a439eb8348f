"""The rack as a whole: up, down, reset, reboot; and the repair of what a killed run left.

Every function that changes something takes the rack's lock, says what it waits for through `progress`, and
may be repeated: what is as wanted stays. Only processes recorded, or in the lab's own cgroups, are ever
ended.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from gpurack.errors import GpurackError, Problem, Refused
from gpurack.lab import cgroups, container, lay, machine, mirror, network, reach, root, state, vm
from gpurack.lab.process import Background, Progress
from gpurack.lab.state import KNOWN_HOSTS, Kind, RackHost

GRACE = {"container": 10.0, "vm": 60.0}  # seconds a host gets to power itself off; measured 1-7 and 15-25


class Machinery(Protocol):
    """What both kinds of hosts can do (modules `container` and `vm`)."""

    def create(self, host: RackHost, root: Path, rack: Iterable[RackHost]) -> None: ...
    def created(self, host: RackHost) -> bool: ...
    def erase(self, host: RackHost) -> None: ...
    def boot(self, host: RackHost) -> None: ...
    def running(self, host: RackHost) -> bool: ...
    def leader(self, host: RackHost) -> int | None: ...
    def stop(self, host: RackHost, patience: float) -> None: ...


KINDS: dict[Kind, Machinery] = {"container": container, "vm": vm}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostState:
    """+ leader: PID 1 of a container, or the emulator, as the machine numbers it; + ssh: it answers."""

    name: str
    address: str
    kind: Kind
    running: bool
    leader: int | None
    ssh: bool
    detail: str


def up(
    hosts: Sequence[RackHost], progress: Progress, *, bare: bool = False, with_mirror: bool = True
) -> None:
    """Boot what does not run, all at once, and the site mirror; returns when every host answers by ssh.

    + bare: every host is as after its first boot: what it wrote is dropped. Without it a host keeps its disk.
    Raises Refused with every lack of the machine, or every host that did not come up.
    """
    machine.check(frozenset(host.kind for host in hosts))
    with state.locked():
        machine.prepare(progress)
        repair(progress)
        lay.way_in()
        # building is the longest wait of all, and needs nothing of the hosts
        built = Background(lambda: mirror.prepare(progress)) if with_mirror else None
        image = root.ensure(progress)
        network.up()
        rack = _rack(hosts)
        for host in hosts:
            _boot_if_needed(host, image, rack, bare, progress)
        _trust(rack)
        _wait(hosts, progress)  # also those that ran: a run killed while they booted did not
        if built is not None:
            built.result()
        if with_mirror:
            network.plug("mirror", network.MIRROR_ADDRESS)
            mirror.start(progress)
            mirror.fill(progress)


def down(progress: Progress) -> None:
    """Stop everything and give back every mount, namespace, link, cgroup and sysctl. Disks of hosts stay."""
    machine.require_root()
    with state.locked():
        _stop(state.known(), progress)
        mirror.stop()
        _ghosts(progress, keep=frozenset())
        if not cgroups.remove():
            raise Refused(
                Problem(
                    code="E-LAB-09",
                    what="a cgroup of the rack is still in use",
                    found=f"processes {', '.join(map(str, cgroups.members())) or 'that just ended'}",
                    next="run gpurack lab down again in a few seconds",
                )
            )
        network.down()
        machine.restore()


def reset(names: Sequence[str], progress: Progress) -> None:
    """Make these hosts (all, when empty) as after their first boot, as if re-imaged. Host keys stay."""
    machine.require_root()
    with state.locked():
        chosen = find(*names) if names else state.known()
        repair(progress)
        image = root.ensure(progress)
        network.up()
        for host in chosen:
            _boot_if_needed(host, image, state.known(), True, progress)
        _wait(chosen, progress)


def reboot(name: str, progress: Progress, *, cut: bool = False) -> None:
    """Power the host off and on again; returns when ssh answers.

    + cut: as if the power failed: nothing on the host is told.
    A guest starts with the memory and CPUs that `vm.configure` set last.
    """
    machine.require_root()
    with state.locked():
        (host,) = find(name)
        progress(f"{'cutting the power of' if cut else 'stopping'} {name}")
        _kind(host).stop(host, 0.0 if cut else GRACE[host.kind])
        network.up()
        _kind(host).boot(host)
        _wait([host], progress)


def power_cut(name: str) -> None:
    """The host stops at once, as if its power failed, and stays off until `up` or `reboot`."""
    with state.locked():
        (host,) = find(name)
        _kind(host).stop(host, 0.0)


def status() -> tuple[HostState, ...]:
    """Every host that the rack knows, asked in parallel."""
    asked = [Background(partial(_state, host)) for host in state.known()]
    return tuple(one.result() for one in asked)


def nodes() -> str:
    """What the cluster's own API says of its nodes, as kubectl prints it; empty when there is no cluster."""
    for host in state.known():
        if host.kind == "container" and _kind(host).running(host):
            answer = reach.ask(host, _NODES)
            if answer:
                return answer
    return ""


def known_hosts() -> str:
    """Host keys of every host of the rack, as known_hosts lines. They outlive resets."""
    return reach.known_hosts(state.known())


def find(*names: str) -> tuple[RackHost, ...]:
    """Hosts by name. Refused for one that the rack does not have."""
    known = {host.name: host for host in state.known()}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise Refused(
            Problem(
                code="E-LAB-10",
                what=f"the rack has no host {', '.join(unknown)}",
                found=", ".join(known) or "no host at all",
                next="gpurack lab up starts the hosts of a site document",
            )
        )
    return tuple(known[name] for name in names)


def log_of(name: str) -> Path:
    """The host's console as a file: what it printed while it booted, and until now."""
    (host,) = find(name)
    return host.folder / "console.log"


def repair(progress: Progress) -> None:
    """End ghosts and give back what stopped hosts still hold. Running hosts are left alone."""
    known = state.known()
    stopped = [host for host in known if not _kind(host).running(host)]
    for host in stopped:
        if cgroups.members(host.name) or host.name in cgroups.names():
            progress(f"cleaning up after {host.name}, which did not stop as it should")
        _kind(host).stop(host, 0.0)
    _ghosts(progress, keep=frozenset(host.name for host in known if host not in stopped))


# ---------------------------------------------------------------------------------------------- details
def _kind(host: RackHost) -> Machinery:
    return KINDS[host.kind]


def _rack(hosts: Sequence[RackHost]) -> tuple[RackHost, ...]:
    """The hosts of this call and those known from earlier ones, by address."""
    known = {host.name: host for host in state.known()} | {host.name: host for host in hosts}
    return tuple(sorted(known.values(), key=lambda host: tuple(map(int, host.address.split(".")))))


def _boot_if_needed(
    host: RackHost, image: Path, rack: Sequence[RackHost], bare: bool, progress: Progress
) -> None:
    kind = _kind(host)
    before = {one.name: one for one in state.known()}.get(host.name)
    changed = before is not None and before != host
    if before is not None and changed:
        _kind(before).stop(before, 0.0)
        _kind(before).erase(before)
    elif kind.running(host):
        if not bare:
            return
        kind.stop(host, 0.0)  # its disk is dropped: nothing to save
    if bare or changed or not kind.created(host):
        progress(f"laying {host.name} ({host.kind}, {host.address})")
        kind.create(host, image, rack)
    kind.boot(host)


def _wait(hosts: Sequence[RackHost], progress: Progress) -> None:
    """Until all answer. One that was on its way down when it was found running is booted again, once."""

    def one(host: RackHost) -> None:
        kind = _kind(host)
        for last in (False, True):
            try:
                took = reach.wait(host, progress, runs=partial(kind.running, host))
            except reach.Stopped:
                if last:
                    raise
                kind.stop(host, 0.0)
                kind.boot(host)
            else:
                progress(f"{host.name} is up after {took:.0f} s")
                return

    _all(one, hosts)


def _stop(hosts: Sequence[RackHost], progress: Progress) -> None:
    def one(host: RackHost) -> None:
        if _kind(host).running(host):
            progress(f"stopping {host.name}")
        _kind(host).stop(host, GRACE[host.kind])

    _all(one, hosts)


def _all(task: Callable[[RackHost], None], hosts: Sequence[RackHost]) -> None:
    """Do `task` for all hosts at once; problems of all of them together."""
    problems: list[Problem] = []
    for running in [Background(partial(task, host)) for host in hosts]:
        try:
            running.result()
        except GpurackError as error:
            problems += error.problems
    if problems:
        raise Refused(problems)


def _ghosts(progress: Progress, keep: frozenset[str]) -> None:
    """End everything that runs in the lab's cgroups under a name that should not."""
    for name in cgroups.names():
        if name in keep:
            continue
        ghosts = cgroups.members(name)
        if ghosts:
            progress(f"ending {len(ghosts)} processes that a killed run left as {name}")
        cgroups.kill(name)
        cgroups.remove(name)
    # a run killed before it remembered the host leaves a folder without a name
    for folder in sorted((state.ROOT / "hosts").glob("*")):
        if not state.recall(folder.name):
            container.unmount(folder / "root")
            shutil.rmtree(folder)


def _trust(rack: Sequence[RackHost]) -> None:
    new = KNOWN_HOSTS.with_suffix(".new")
    new.write_text(reach.known_hosts(rack))
    new.replace(KNOWN_HOSTS)


def _state(host: RackHost) -> HostState:
    kind = _kind(host)
    running = kind.running(host)
    answer = reach.ask(host, _ABOUT, timeout=20.0) if running else None
    return HostState(
        name=host.name,
        address=host.address,
        kind=host.kind,
        running=running,
        leader=kind.leader(host),
        ssh=answer is not None,
        detail=", ".join((answer or "").splitlines()) or ("no answer" if running else "off"),
    )


_NODES = """\
[ ! -e /etc/kubernetes/admin.conf ] ||
    kubectl --kubeconfig /etc/kubernetes/admin.conf --request-timeout 5s get nodes 2> /dev/null || :
"""
_ABOUT = """\
systemctl is-system-running || :
echo "Linux $(uname -r)"
command -v kubelet > /dev/null && kubelet --version || echo bare
"""
