"""Answers of real hosts (the lab's gpu-1 and gpu-3) and of awkward ones are read strictly."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from gpurack.decide.identity import UNREADABLE
from gpurack.facts import clock, firewall, identity, platform, swap, sysctl
from gpurack.facts.pairs import Pairs

GPU_1 = """\
id=debian
version_id=12
pretty=Debian GNU/Linux 12 (bookworm)
kernel=6.18.44-fc-v857
architecture=amd64
cgroup=tmpfs
boot_id=9a95b7a0-17d4-4da5-b621-2c61e3317fef
container=systemd-nspawn
machine=kvm
reboot=no
room=/var/log 4096 66053021 17002272 16777216 16104891
"""


def test_a_platform_is_read() -> None:
    found = platform.parse(GPU_1)
    assert (found.id, found.version_id, found.cgroup, found.container) == (
        "debian",
        "12",
        1,
        "systemd-nspawn",
    )
    assert found.reboot is None
    assert found.rooms[0].available == 17002272 * 4096


def test_a_pending_reboot_names_its_packages() -> None:
    text = GPU_1.replace(
        "reboot=no", "reboot=yes\nreboot_package=linux-base\nreboot_package=linux-image-generic"
    )
    assert platform.parse(text).reboot == ("linux-base", "linux-image-generic")
    assert platform.parse(GPU_1.replace("reboot=no", "reboot=yes")).reboot == ()


@pytest.mark.parametrize("missing", ["id=", "kernel=", "cgroup=", "boot_id=", "architecture="])
def test_o_85_half_an_answer_is_no_answer(missing: str) -> None:
    text = "\n".join(line for line in GPU_1.splitlines() if not line.startswith(missing))
    with pytest.raises(ValueError, match=missing.rstrip("=")):
        platform.parse(text)


def test_o_85_foreign_output_cannot_be_parsed_and_is_not_nothing() -> None:
    with pytest.raises(ValueError, match="could not parse"):
        Pairs("Architecture :                       x86_64")


@pytest.mark.parametrize(
    "fact", [platform.HostPlatform, identity.HostIdentity, swap.SwapSources, clock.HostClock]
)
def test_o_85_every_script_speaks_the_c_locale(fact: type[platform.HostPlatform]) -> None:
    assert str(fact().command()).startswith("export LC_ALL=C LANGUAGE=C;")


IDENTITY = """\
machine_id=39cb7855ea2b42488c5640da4c62e3be
uuid_state=read
uuid=CA123951-EE62-4260-9CDF-648CDBAFE7A2
hostname=gpu-1
link=eth0 2e:2d:f5:5e:a0:33
link=lo 00:00:00:00:00:00
address=lo 127.0.0.1
address=eth0 10.77.0.12
address=eth0 fe80::2c2d:f5ff:fe5e:a033
"""


def test_an_identity_is_read() -> None:
    found = identity.parse(IDENTITY)
    carrier = found.carrier(ip_address("10.77.0.12"))
    assert carrier is not None
    assert (carrier.name, carrier.mac) == ("eth0", "2e:2d:f5:5e:a0:33")
    assert found.product_uuid == "CA123951-EE62-4260-9CDF-648CDBAFE7A2"


@pytest.mark.parametrize(
    ("state", "uuid"),
    [("uuid_state=unreadable", UNREADABLE), ("uuid_state=absent", None), ("uuid_state=read\nuuid=", None)],
)
def test_o_35_denied_absent_and_empty_are_told_apart(state: str, uuid: str | None) -> None:
    text = IDENTITY.replace("uuid_state=read\nuuid=CA123951-EE62-4260-9CDF-648CDBAFE7A2", state)
    assert identity.parse(text).product_uuid == uuid


def test_the_offset_is_taken_from_the_moment_of_the_answer() -> None:
    found = clock.parse("synchronised=yes\nservice=chrony.service\nat=1000.500000000\n", now=1001.0)
    assert (found.offset, found.services, found.synchronised) == (-0.5, ("chrony",), True)
    assert clock.parse("synchronised=unknown\nat=1.0\n", now=1.0).synchronised is None


SWAP = """\
swaps=Filename				Type		Size		Used		Priority
swaps=/dev/nvme0n1p4                          partition	2097148		128		-2
fstab=yes
line=# static
line=/swap.img none swap sw 0 0
ending=yes
available=1000
container=none
unit=Id=dev-nvme0n1p4.swap
unit=LoadState=loaded
unit=ActiveState=active
unit=SourcePath=
unit=File=generated
unit=
unit=Id=dphys-swapfile.service
unit=LoadState=not-found
unit=ActiveState=inactive
unit=File=
unit=
"""


def test_every_source_of_swap_is_read() -> None:
    found = swap.parse(SWAP)
    assert (found.active[0].path, found.active[0].size, found.active[0].used) == (
        "/dev/nvme0n1p4",
        2097148 * 1024,
        128 * 1024,
    )
    assert found.fstab == "# static\n/swap.img none swap sw 0 0\n"
    assert [unit.name for unit in found.units] == ["dev-nvme0n1p4.swap"]
    assert not found.container


def test_o_40_a_header_alone_means_off() -> None:
    text = "\n".join(line for line in SWAP.splitlines() if "nvme0n1p4 " not in line)
    assert swap.parse(text).active == ()


def test_a_missing_last_line_break_of_fstab_is_kept() -> None:
    fstab = swap.parse(SWAP.replace("ending=yes", "ending=no")).fstab
    assert fstab is not None
    assert not fstab.endswith("\n")
    assert (
        swap.parse(
            "\n".join(x for x in SWAP.splitlines() if not x.startswith(("line=", "ending="))).replace(
                "fstab=yes", "fstab=no"
            )
        ).fstab
        is None
    )


KERNEL = """\
release=6.8.0-88-generic
tree=yes
module=overlay yes no
module=br_netfilter no yes
setting=net.ipv4.ip_forward present yes 0
setting=net.bridge.bridge-nf-call-iptables absent no
container=none
file=/usr/lib/sysctl.d/50.conf
line=kernel.pid_max = 4194304
line=module=evil yes yes
file=/etc/sysctl.conf
modules_file=yes
modules_line=overlay
"""


def test_modules_settings_and_files_are_read_and_no_content_reads_as_an_answer() -> None:
    found = sysctl.parse(KERNEL)
    assert [(m.name, m.loaded, m.available) for m in found.modules] == [
        ("overlay", True, False),
        ("br_netfilter", False, True),
    ]
    assert [(s.key, s.value, s.writable) for s in found.settings] == [
        ("net.ipv4.ip_forward", "0", True),
        ("net.bridge.bridge-nf-call-iptables", None, False),
    ]
    assert [file.path for file in found.files] == ["/usr/lib/sysctl.d/50.conf", "/etc/sysctl.conf"]
    assert found.files[0].text == "kernel.pid_max = 4194304\nmodule=evil yes yes\n"
    assert found.modules_file == "overlay\n"


def test_ufw_is_read_not_run_on_ubuntu() -> None:
    text = "ufw=Status: active\nufw=22/tcp       ALLOW       Anywhere\nforward=DROP\nfirewalld=no\n"
    found = firewall.parse(text)
    assert (found.ufw.active, found.ufw.forward, found.firewalld.active) == (True, "DROP", False)
    assert not firewall.parse("ufw=Status: inactive\nforward=DROP\nfirewalld=no\n").ufw.active


def test_ufw_that_does_not_say_its_status_is_no_answer_not_run_on_ubuntu() -> None:
    with pytest.raises(ValueError, match="need to be root"):
        firewall.parse("ufw=ERROR: You need to be root to run this script\nfirewalld=no\n")


def test_a_zone_of_firewalld_is_read() -> None:
    found = firewall.parse(
        "firewalld=yes\ntarget=default\nservices=dhcpv6-client ssh\nports=10250/tcp\n"
    ).firewalld
    assert (found.services, found.ports) == (("dhcpv6-client", "ssh"), ("10250/tcp",))
