"""What lies on disks after a run: secrets only their owner can read, and nothing that was meant to go."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from testinfra.host import Host

from gpurack.engine.run import state_dir
from gpurack.site.load import load

pytestmark = pytest.mark.lab

PLACES = (
    "/etc/kubernetes /etc/containerd /etc/apt /etc/gpurack /var/lib/kubelet/pki /var/lib/gpurack "
    "/var/log/gpurack /run/gpurack /root /tmp /var/tmp /home"
)
# One shell pattern for each kind of secret. The login of a registry is sent as a header in hosts.toml.
SECRETS = r"PRIVATE KEY-----|client-key-data:|[aA]uthorization *=|://[^/ ]+:[^/ ]+@"
TOKEN = r"(^|[^a-z0-9.-])[a-z0-9]{6}\.[a-z0-9]{16}([^a-z0-9.-]|$)"


def test_secrets_are_readable_by_root_alone(node: Host) -> None:
    found = node.check_output(f"grep -rlE -- '{SECRETS}' {PLACES} 2>/dev/null || :").splitlines()
    assert any(file.startswith("/var/lib/kubelet/pki/") for file in found), "the search finds nothing at all"
    for file in found:
        facts = node.check_output(f"stat -L -c '%a %U' '{file}'")
        assert facts in ("600 root", "400 root"), f"{file}: {facts}"


def test_folders_of_secrets_are_not_writable_by_others(node: Host) -> None:
    folders = "/etc/kubernetes /etc/kubernetes/pki /var/lib/kubelet/pki /etc/containerd/certs.d /run/gpurack"
    for line in node.check_output(f"stat -c '%a %U %n' {folders} 2>/dev/null || :").splitlines():
        mode, owner, name = line.split()
        assert owner == "root", name
        assert not int(mode, 8) & 0o022, line


def test_no_join_token_lies_around(node: Host) -> None:
    found = node.run(f"grep -rlE -- '{TOKEN}' {PLACES} 2>/dev/null")
    assert found.stdout == ""


def test_no_temporary_file_or_unit_of_a_run_is_left(node: Host) -> None:
    folders = "/etc /usr/local /opt /var/lib/kubelet /var/lib/gpurack /root /tmp /run/gpurack"
    left = node.check_output(f"find {folders} -xdev -name '.gpurack.*' 2>/dev/null || :")
    assert left == ""
    assert node.run("ls /run/gpurack/*.yaml /run/gpurack/*.sh /etc/kubernetes/tmp").stdout == ""
    assert node.check_output("find /run/systemd/transient -name 'gpurack-*' 2>/dev/null || :") == ""


def test_nobody_holds_the_lock(node: Host) -> None:
    assert node.run("[ ! -e /run/gpurack/lock ] || flock -n /run/gpurack/lock true").rc == 0


def test_files_that_we_write_say_so_and_appear_once(node: Host) -> None:
    """Two lines of the same meaning would be the mark of a run that does not look before it writes."""
    ours = node.check_output(f"grep -rl 'Managed by gpurack' {PLACES} /etc/systemd /etc/sysctl.d 2>/dev/null")
    for file in ours.splitlines():
        assert node.check_output(f"grep -c 'Managed by gpurack' '{file}'") in ("1", "2"), file
    for file in ("/etc/fstab", "/etc/hosts", "/etc/default/kubelet", "/etc/modules-load.d/gpurack.conf"):
        assert node.check_output(f"grep -vE '^ *(#|$)' {file} 2>/dev/null | sort | uniq -d") == "", file


def test_the_controller_keeps_its_secrets_to_itself(joined_rack: Path) -> None:
    folder = state_dir(load(joined_rack))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "kubeconfig").stat().st_mode) == 0o600
    for file in folder.rglob("*"):
        if file.is_file() and any(
            word in file.read_text(errors="replace") for word in ("PRIVATE KEY", "key-data")
        ):
            assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0, file
