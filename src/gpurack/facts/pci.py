"""PCI functions, IOMMU, ACS, Secure Boot and what already drives a GPU: one script."""

from __future__ import annotations

from pyinfra.api.command import StringCommand

from gpurack.decide.pci import Function, Iommu, Machine, Room, normal_address
from gpurack.facts.probe import Probe, in_c_locale

# Shell built-ins only in the loops: an eight-GPU server has hundreds of functions, a fork for each is slow.
_SCRIPT = r"""
one() { value=; [ -r "$1" ] && IFS= read -r value < "$1"; [ -n "$value" ]; }
group_type=
for dir in /sys/bus/pci/devices/*; do
  one "$dir/vendor" || continue
  vendor=$value; one "$dir/class" || continue
  class=$value
  case $vendor:$class in 0x10de:*|*:0x02*) ;; *) continue ;; esac
  one "$dir/device"; device=$value
  one "$dir/numa_node" || value=-1
  numa=$value; driver=; group=
  [ -e "$dir/driver" ] && driver=$(readlink "$dir/driver")
  if [ -e "$dir/iommu_group" ]; then
    group=$(readlink "$dir/iommu_group"); group=${group##*/}
    case $vendor in 0x10de) one "/sys/kernel/iommu_groups/$group/type" && group_type=$value ;; esac
  fi
  printf 'pci\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' \
    "${dir##*/}" "$vendor" "$device" "$class" "$numa" "${driver##*/}" "$group"
done
groups=0
for dir in /sys/kernel/iommu_groups/*; do
  [ -d "$dir" ] || continue
  groups=$((groups + 1))
  [ -n "$group_type" ] || { one "$dir/type" && group_type=$value; }
done
if one /proc/cmdline; then
  case " $value " in *" iommu=pt "*|*" iommu.passthrough=1 "*) group_type=${group_type:-identity} ;; esac
fi
printf 'iommu\t%s\t%s\n' "$groups" "$group_type"
sb=/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c
[ -r "$sb" ] && printf 'secureboot\t%s\n' "$(od -An -tu1 "$sb" | tr -s ' \n' ' ')"
one /sys/kernel/security/lockdown && printf 'lockdown\t%s\n' "$value"
for module in nouveau nova_core nova_drm nvidia; do
  [ -d "/sys/module/$module" ] && printf 'module\t%s\n' "$module"
done
smi=$(command -v nvidia-smi) && printf 'smi\t%s\n' "$smi"
[ -e /run/nvidia/driver/usr/bin/nvidia-smi ] && printf 'operator\n'
if command -v dpkg-query > /dev/null; then
  dpkg-query -W -f='${db:Status-Abbrev}\t${Package}\t${Version}\n' 'nvidia-driver-*' 'nvidia-dkms-*' \
    'nvidia-headless-*' 'nvidia-kernel-*' 'nvidia-open*' 'nvidia-fabricmanager*' 'nvidia-persistenced' \
    'nvidia-container-toolkit' 2>/dev/null |
    while IFS=$(printf '\t') read -r status package version; do
      case $status in ii*) printf 'package\t%s %s\n' "$package" "$version" ;; esac
    done
fi
if command -v lspci > /dev/null; then
  printf 'lspci\n'
  lspci -D -vv 2>/dev/null | awk '/^[0-9a-f]/ { slot = $1 } /ACSCtl:.*ReqRedir\+/ { print "acs\t" slot }'
fi
printf 'end\n'
"""


class GpuGround(Probe[Machine]):
    """NVIDIA and network functions, and everything that decides whether a driver may come (R71-R74)."""

    script = _SCRIPT

    def parse(self, text: str) -> Machine:
        return parse_machine(text)


def parse_machine(text: str) -> Machine:
    """The script's answer as a model. `ValueError` when it was cut off or says something unknown."""
    rows = [line.split("\t") for line in text.splitlines()]
    if not rows or rows[-1] != ["end"]:
        raise ValueError("the PCI script did not come to its end")
    functions: list[Function] = []
    modules: set[str] = set()
    packages: list[str] = []
    redirecting: list[str] | None = None
    iommu: Iommu = "off"
    secure_boot: bool | None = None
    lockdown, smi, operator = "none", None, False
    for row in rows[:-1]:
        match row:
            case ["pci", address, vendor, device, kind, numa, driver, group]:
                functions.append(
                    Function(
                        address=normal_address(address),
                        id=f"{_hex(vendor, 4)}:{_hex(device, 4)}",
                        kind=_hex(kind, 6)[:4],
                        numa_node=int(numa) if int(numa) >= 0 else None,
                        driver=driver or None,
                        iommu_group=int(group) if group else None,
                    )
                )
            case ["iommu", groups, kind]:
                iommu = "off" if groups == "0" else "passthrough" if kind == "identity" else "on"
            case ["secureboot", octets]:
                # four bytes of attributes, then the value: the last byte decides (R72)
                secure_boot = octets.split()[-1] == "1"
            case ["lockdown", modes]:
                lockdown = modes.partition("[")[2].partition("]")[0] or "none"
            case ["module", name]:
                modules.add(name)
            case ["smi", path]:
                smi = path
            case ["operator"]:
                operator = True
            case ["package", package]:
                packages.append(package)
            case ["lspci"]:
                redirecting = []
            case ["acs", slot] if redirecting is not None:
                redirecting.append(normal_address(slot))
            case _:
                raise ValueError(f"unknown row {row!r}")
    return Machine(
        functions=tuple(sorted(functions, key=lambda one: one.address)),
        iommu=iommu,
        redirecting=None if redirecting is None else tuple(redirecting),
        secure_boot=secure_boot,
        lockdown=lockdown,
        modules=frozenset(modules),
        driver_packages=tuple(packages),
        nvidia_smi=smi,
        operator_driver=operator,
    )


def _hex(text: str, digits: int) -> str:
    return f"{int(text, 16):0{digits}x}"


class DiskRoom(Probe[tuple[Room, ...]]):
    """Size of the file system under each path, or under its nearest existing parent.

    + paths: absolute, as the pool declares them
    """

    def command(self, paths: tuple[str, ...]) -> StringCommand:  # type: ignore[override]
        script = (
            'for path in "$@"; do at=$path; while [ ! -e "$at" ]; do at=${at%/*}; at=${at:-/}; done; '
            'printf \'%s\\t%s\\n\' "$path" "$(df -P -B1 "$at" | awk \'NR == 2 { print $2 }\')"; done'
        )
        return StringCommand("set", "--", *(f"'{path}'" for path in paths), ";", in_c_locale(script))

    def parse(self, text: str) -> tuple[Room, ...]:
        return tuple(
            Room(path=path, size=int(size)) for path, size in (line.split("\t") for line in text.splitlines())
        )
