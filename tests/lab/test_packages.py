"""The package flow with real apt, dpkg and packages, in a root of its own: nothing on the rack is touched.

The host is the lab's root image under an overlay that lives in a mount namespace and goes with it. Its apt
asks the rack's mirror; the steps of each decision are run as they are, by chroot instead of ssh.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

from gpurack.decide import apt, apt_run, packages
from gpurack.decide.apt_messages import hear, read_log
from gpurack.decide.decision import Await, Decision, Remove, Run, Step, Transact, Write
from gpurack.facts.apt import AptSources, UpdateLog
from gpurack.facts.packages import InstalledPackages, Simulated, TransactionLog
from gpurack.facts.probe import Probe
from gpurack.lab import root
from gpurack.site.load import load
from gpurack.site.models import AptSource

pytestmark = pytest.mark.lab
T = TypeVar("T")
_MOUNT = """
set -e
mount -t tmpfs none "$1"; mkdir "$1/up" "$1/work" "$1/root"
mount -t overlay overlay -o lowerdir="$2",upperdir="$1/up",workdir="$1/work" "$1/root"
mount --bind /proc "$1/root/proc"
for device in null zero urandom random; do
  touch "$1/root/dev/$device"; mount --bind "/dev/$device" "$1/root/dev/$device"
done
rm -f "$1/root/etc/apt/sources.list" "$1"/root/etc/apt/sources.list.d/*
touch "$1/root/mounted"; exec sleep 3600
"""


class Host:
    """A root to run scripts in."""

    def __init__(self, folder: Path) -> None:
        argv = ["unshare", "--mount", "/bin/sh", "-c", _MOUNT, "sh", str(folder), str(root.folder())]
        self.folder = folder / "root"
        self.process = subprocess.Popen(argv)
        self.path = Path(f"/proc/{self.process.pid}/root{self.folder}")
        end = time.monotonic() + 30
        while not (self.path / "mounted").exists():
            assert self.process.poll() is None, "the root could not be mounted"
            assert time.monotonic() < end
            time.sleep(0.05)

    def argv(self, script: str) -> list[str]:
        enter = ["nsenter", f"--mount=/proc/{self.process.pid}/ns/mnt", "chroot", str(self.folder)]
        return [*enter, "/bin/sh", "-c", script]

    def sh(self, script: str) -> str:
        return subprocess.run(
            self.argv(script), capture_output=True, text=True, check=False, timeout=300
        ).stdout

    def read(self, fact: type[Probe[T]], **arguments: Any) -> T:
        # No systemd here, so kubelet's unit has no state to tell.
        out = self.sh(str(fact().command(**arguments))).replace("\nactive=\n", "\nactive=inactive\n")
        return fact().process(out.split("\n"))

    def carry_out(self, decision: Decision) -> Decision:
        for step in decision.steps:
            self.perform(step)
        return decision

    def perform(self, step: Step) -> None:
        match step:
            case Write():
                path = self.path / step.path.lstrip("/")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(step.content)
                path.chmod(step.mode)
            case Remove():
                (self.path / step.path.lstrip("/")).unlink()
            case Transact():
                self.log(step.unit).write_text(self.sh(step.script))
            case Run():
                self.sh(step.script)
            case Await():
                self.sh(step.probe)
            case _:
                raise AssertionError(step)

    def log(self, unit: str) -> Path:
        folder = self.path / "var/log/gpurack"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{unit}.log"

    def install(self, pins: Mapping[str, str]) -> Decision:
        """As operations/packages.py does it; the first refusal or the proof."""
        first = self.carry_out(packages.install(pins, self.read(InstalledPackages)))
        if not first.steps:
            return first
        fresh = packages.judge_update(self.read(UpdateLog), self.read(AptSources).keyrings)
        if fresh.refused:
            return fresh
        found = self.read(InstalledPackages)
        names = tuple(f"{name}={version}" for name, version in packages.due(pins, found).items())
        if names:
            judged = packages.judge_simulation(pins, found, self.read(Simulated, pins=names))
            if judged.refused:
                return judged
        self.carry_out(packages.transaction(pins, found))
        return packages.proven(pins, self.read(TransactionLog), self.read(InstalledPackages))

    def held(self) -> set[str]:
        return set(self.sh("apt-mark showhold").split())

    def package(self, name: str, version: str, *, depends: str = "", postinst: str = "") -> None:
        """Build and install a package of somebody else."""
        tree = self.path / "tmp" / name
        (tree / "DEBIAN").mkdir(parents=True)
        fields = f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: x <x@example.test>\n"
        fields += f"Depends: {depends}\n" if depends else ""
        (tree / "DEBIAN/control").write_text(f"{fields}Description: of somebody else\n")
        if postinst:
            (tree / "DEBIAN/postinst").write_text(postinst)
            (tree / "DEBIAN/postinst").chmod(0o755)
        self.sh(f"dpkg-deb -b /tmp/{name} /tmp/{name}.deb && dpkg -i /tmp/{name}.deb")


def _pins(revision: int = 1) -> dict[str, str]:
    given = load(_SITE).stack.packages
    pins = {
        "kubelet": given.kubelet,
        "kubeadm": given.kubeadm,
        "kubectl": given.kubectl,
        "cri-tools": given.cri_tools,
        "kubernetes-cni": given.kubernetes_cni,
        "containerd.io": given.containerd_io,
    }
    if revision == 1:
        return pins
    return {name: f"{version[:-1]}{revision}" for name, version in pins.items()}


_SITE = Path(__file__).resolve().parents[2] / "inventories" / "lab.yaml"


def _source(name: str, given: AptSource) -> apt.Source:
    return apt.Source(
        name=name,
        uri=given.uri,
        suite=given.suite,
        components=given.components,
        key=Path(str(given.key.file)).read_text(),
        fingerprint=given.key.fingerprint,
    )


def _wanted() -> tuple[apt.Source, ...]:
    given = load(_SITE).sources
    return (_source("kubernetes", given.kubernetes), _source("containerd", given.containerd))


@pytest.fixture
def host(bare_rack: Path, tmp_path: Path) -> Iterator[Host]:  # noqa: ARG001 - the rack's mirror is asked
    made = Host(tmp_path)
    try:
        made.carry_out(apt.sources(_wanted(), apt.Way(), time.time(), made.read(AptSources)))
        yield made
    finally:
        made.process.kill()
        made.process.wait()


def codes(decision: Decision) -> list[str]:
    return [problem.code for problem in decision.refused]


def test_a_bare_root_gets_every_pin_and_the_second_run_does_nothing(host: Host) -> None:
    assert not host.install(_pins()).refused
    assert host.held() == set(packages.MANAGED)
    assert packages.install(_pins(), host.read(InstalledPackages)).steps == ()
    assert apt.sources(_wanted(), apt.Way(), time.time(), host.read(AptSources)).steps == ()


def test_o_27_an_edited_file_stays_and_a_deleted_one_stays_deleted(host: Host) -> None:
    host.install(_pins())
    edited, deleted = host.path / "etc/containerd/config.toml", host.path / "etc/default/kubelet"
    edited.write_text(edited.read_text() + "# edited by an administrator\n")
    before = edited.read_bytes()
    deleted.unlink()

    assert not host.install(_pins(revision=2)).refused

    assert edited.read_bytes() == before
    assert not deleted.exists()
    assert host.held() == set(packages.MANAGED)


def test_o_26_a_version_that_is_nowhere_and_a_downgrade_are_refused(host: Host) -> None:
    assert codes(host.install({**_pins(), "kubelet": "1.34.4-9.9"})) == ["E-PKG-02"]
    assert host.read(InstalledPackages).version("kubeadm") is None
    host.install(_pins(revision=2))
    assert set(codes(host.install(_pins()))) == {"E-PKG-06"}


def test_o_23_packages_are_held_after_an_install_that_failed(host: Host) -> None:
    host.install(_pins())
    out = host.sh(apt_run.install({"kubelet": "9.9"}, release=["kubelet"], hold=_pins(), finish=False))
    assert [problem.code for problem in hear(read_log(out)).problems] == ["E-PKG-13"]
    assert host.held() == set(packages.MANAGED)


@pytest.mark.parametrize("moment", ["Unpacking kubectl", "Setting up containerd.io"])
def test_o_27_a_transaction_that_lost_its_power_is_finished_by_the_next_run(host: Host, moment: str) -> None:
    host.sh(apt_run.update().script)
    (step,) = packages.transaction(_pins(), host.read(InstalledPackages)).steps
    assert isinstance(step, Transact)
    log = host.log("packages")
    with log.open("w") as out:
        running = subprocess.Popen(host.argv(step.script), stdout=out, stderr=out, start_new_session=True)
        while moment not in log.read_text() and running.poll() is None:
            time.sleep(0.001)
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()
    assert host.read(InstalledPackages).cut

    assert not host.install(_pins()).refused
    assert host.sh("dpkg --audit") == ""
    assert host.held() == set(packages.MANAGED)


def test_o_20_the_distributions_containerd_is_refused_with_what_depends_on_it(host: Host) -> None:
    host.package("runc", "1.1.12-0ubuntu3")
    host.package("containerd", "1.7.12-0ubuntu4", depends="runc")
    host.package("docker.io", "24.0.7-0ubuntu4", depends="containerd (>= 1.2.6-0ubuntu1~), runc")

    decision = host.install(_pins())

    assert codes(decision) == ["E-PKG-07"]
    assert "docker.io depend on it" in str(decision.refused[0].found)
    # Were it not refused here, apt would take them away; the simulation sees that as well.
    host.sh(apt_run.update().script)
    simulated = host.read(Simulated, pins=("containerd.io=" + _pins()["containerd.io"],))
    assert set(simulated.removes) == {"docker.io", "containerd", "runc"}


def test_o_27_a_cut_transaction_of_somebody_else_is_reported(host: Host) -> None:
    host.package("odd", "1", postinst="#!/bin/sh\nexit 1\n")
    assert codes(host.install(_pins())) == ["E-PKG-09"]


def test_o_25_conflicting_keyrings_are_found_before_apt_breaks(host: Host) -> None:
    kubernetes = _wanted()[0]
    other = host.path / "etc/apt/sources.list.d/old.list"
    other.write_text(f"deb {kubernetes.uri.rstrip('/')} /\n")
    assert codes(apt.sources(_wanted(), apt.Way(), time.time(), host.read(AptSources))) == ["E-APT-01"]
    # And it is true: with ours beside it, apt can't read its sources any more.
    assert [p.code for p in hear(read_log(host.sh(apt_run.update().script))).problems] == ["E-APT-14"]


def test_o_21_a_source_with_another_key_is_refused_with_the_key(host: Host) -> None:
    kubernetes, containerd = _wanted()
    (host.path / kubernetes.keyring.lstrip("/")).write_text(containerd.key)
    decision = host.install(_pins())
    assert codes(decision) == ["E-APT-12"]
    assert kubernetes.keyring in decision.refused[0].what
