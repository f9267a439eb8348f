"""The operating system beneath a node: who it is, what is loaded, what would come back at the next boot."""

from __future__ import annotations

import time

import pytest
from testinfra.host import Host

from gpurack.site.models import Node
from tests.infra.conftest import is_container

pytestmark = pytest.mark.lab

KUBERNETES_SYSCTLS = (
    "net.ipv4.ip_forward",
    "net.bridge.bridge-nf-call-iptables",
    "net.bridge.bridge-nf-call-ip6tables",
)
PINNED = ("kubelet", "kubeadm", "kubectl", "cri-tools", "kubernetes-cni", "containerd.io")


def test_the_host_bears_its_name_and_its_addresses(node: Host, declared: Node) -> None:
    assert node.check_output("hostname") == declared.name
    mine = node.check_output("ip -o addr show scope global | awk '{print $4}'").split()
    for address in declared.host.addresses:
        assert any(one.startswith(f"{address}/") for one in mine), mine


def test_no_two_hosts_share_an_identity(everyone: dict[str, Host]) -> None:
    for what in ("/etc/machine-id", "/sys/class/dmi/id/product_uuid", "/etc/ssh/ssh_host_ed25519_key.pub"):
        found = {name: host.check_output(f"cat {what}") for name, host in everyone.items()}
        assert len(set(found.values())) == len(found), (what, found)
        assert all(found.values())


def test_the_clock_is_right(node: Host) -> None:
    before = time.time()
    there = float(node.check_output("date +%s.%N"))
    assert before - 2 < there < time.time() + 2


def test_modules_are_loaded_now_and_at_every_boot(node: Host) -> None:
    at_boot = node.check_output("cat /etc/modules-load.d/*.conf").split()
    for module in ("overlay", "br_netfilter"):
        assert module in at_boot
    assert node.run("grep -qw overlay /proc/filesystems").rc == 0
    assert node.file("/proc/sys/net/bridge").is_directory, "br_netfilter is neither loaded nor built in"


@pytest.mark.parametrize("key", KUBERNETES_SYSCTLS)
def test_sysctls_hold_now_and_at_every_boot(node: Host, key: str) -> None:
    assert node.sysctl(key) == 1
    lines = node.check_output("systemd-analyze cat-config sysctl.d | sed 's/^-//; s/[[:space:]]//g; s,/,.,g'")
    said = [line.partition("=")[2] for line in lines.splitlines() if line.partition("=")[0] == key]
    assert said, f"no file sets {key}"
    assert said[-1] == "1", f"the last file says {key} = {said[-1]}"


def test_there_is_no_swap_and_none_comes_back(node: Host, declared: Node) -> None:
    in_use = node.check_output("tail -n +2 /proc/swaps")
    if not (is_container(declared) and "shared-kernel" in declared.site.accept):
        assert in_use == ""
    assert [
        line for line in node.check_output("cat /etc/fstab 2>/dev/null || :").splitlines()
        if not line.startswith("#") and line.split()[2:3] == ["swap"]
    ] == []  # fmt: skip
    units = node.check_output("systemctl list-unit-files --type=swap --no-legend --plain || :")
    assert [line for line in units.splitlines() if "masked" not in line] == []


def test_nothing_failed_and_no_reboot_is_pending(node: Host) -> None:
    assert node.check_output("systemctl list-units --failed --no-legend --plain") == ""
    assert not node.file("/run/reboot-required").exists


def test_helpers_of_the_distribution_leave_the_node_alone(node: Host) -> None:
    kept = node.check_output("apt-config dump Unattended-Upgrade::Package-Blacklist")
    for package in PINNED:
        assert f'"{package}$"' in kept
    # The file is Perl; a mistake in it would switch its protection off without a word.
    script = (
        "our %nrconf; do '/etc/needrestart/conf.d/gpurack.conf'; die $@ if $@; "
        "for my $unit (qw(containerd.service kubelet.service)) { "
        "die $unit unless grep { $unit =~ $_ } keys %{$nrconf{override_rc}} }"
    )
    assert node.run("perl -e %s", script).stderr == ""


def test_disks_have_room(node: Host) -> None:
    for place in ("/var/lib/containerd", "/var/lib/kubelet", "/var/log", "/var/cache/apt"):
        used = int(node.check_output(f"df --output=pcent {place} | tail -n 1").strip().rstrip("%"))
        assert used < 85, f"{place} is {used} % full"
