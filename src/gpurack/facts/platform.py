"""Operating system, kernel, cgroups, boot, and room on the disks that matter."""

from __future__ import annotations

from gpurack.decide.platform import APT, IMAGES, LOGS, NODE, Platform, Room
from gpurack.facts.pairs import Pairs
from gpurack.facts.probe import Probe

_SCRIPT = rf"""
( . /etc/os-release && printf 'id=%s\nversion_id=%s\npretty=%s\n' "$ID" "$VERSION_ID" "$PRETTY_NAME" )
printf 'kernel=%s\n' "$(uname -r)"
printf 'architecture=%s\n' "$(dpkg --print-architecture)"
printf 'cgroup=%s\n' "$(stat -fc %T /sys/fs/cgroup)"
printf 'boot_id=%s\n' "$(cat /proc/sys/kernel/random/boot_id)"
printf 'container=%s\n' "$(systemd-detect-virt --container)"
printf 'machine=%s\n' "$(systemd-detect-virt --vm)"
if test -e /run/reboot-required; then echo reboot=yes; else echo reboot=no; fi
if test -e /run/reboot-required.pkgs; then sort -u /run/reboot-required.pkgs | sed 's/^/reboot_package=/'; fi
for path in {LOGS} {IMAGES} {NODE} {APT}; do
  there=$path
  while ! test -d "$there"; do there=$(dirname "$there"); done
  printf 'room=%s %s\n' "$path" "$(stat -fc '%S %b %a %c %d' "$there")"
done
"""


class HostPlatform(Probe[Platform]):
    """What the host is. Room is measured at the nearest folder that exists."""

    script = _SCRIPT

    def parse(self, text: str) -> Platform:
        return parse(text)


def parse(text: str) -> Platform:
    """Parse the answer of `HostPlatform`; `ValueError` when anything is missing."""
    pairs = Pairs(text)
    return Platform(
        id=pairs.some("id"),
        version_id=pairs.one("version_id"),
        pretty=pairs.some("pretty"),
        kernel=pairs.some("kernel"),
        architecture=pairs.some("architecture"),
        cgroup=2 if pairs.some("cgroup") == "cgroup2fs" else 1,
        boot_id=pairs.some("boot_id"),
        container=_virtual(pairs.some("container")),
        machine=_virtual(pairs.some("machine")),
        reboot=pairs.all("reboot_package") if pairs.flag("reboot") else None,
        rooms=tuple(_room(value) for value in pairs.all("room")),
    )


def _virtual(value: str) -> str | None:
    return None if value == "none" else value


def _room(value: str) -> Room:
    path, *numbers = value.split()
    block, total, available, inodes, inodes_free = (int(number) for number in numbers)
    return Room(
        path=path, total=total * block, available=available * block, inodes=inodes, inodes_free=inodes_free
    )
