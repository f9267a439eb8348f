"""Every source of swap: running, fstab, units, generators, zram services."""

from __future__ import annotations

from gpurack.decide.swap import Active, Swap, SwapUnit
from gpurack.facts.pairs import Pairs
from gpurack.facts.probe import Probe

# Lines of files are carried behind a mark, so that no content can look like an answer. `list-units` knows
# what generators made (GPT, zram-generator), `list-unit-files` what is enabled and not loaded. The services
# are zram-tools', Ubuntu's zram-config, and dphys-swapfile: they call swapon themselves. `is-enabled` reads
# the disk, where `show` would repeat what systemd read at its last reload. With a type instead of a pattern,
# `list-unit-files` first works out the state of every unit file: 0.8 s instead of 0.01 s.
_SCRIPT = r"""
sed 's/^/swaps=/' /proc/swaps
if test -f /etc/fstab; then
  echo fstab=yes
  sed 's/^/line=/' /etc/fstab
  if test -n "$(tail -c 1 /etc/fstab)"; then echo ending=no; else echo ending=yes; fi
else echo fstab=no; fi
printf 'available=%s\n' "$(sed -n 's/^MemAvailable: *\([0-9]*\) kB$/\1/p' /proc/meminfo)"
printf 'container=%s\n' "$(systemd-detect-virt --container)"
{ systemctl list-units --type swap --all --plain --no-legend
  systemctl list-unit-files '*.swap' --plain --no-legend
  printf '%s\n' zramswap.service zram-config.service dphys-swapfile.service
} | sed 's/^[^[:alnum:]-]*//; s/ .*//' | sort -u | while read -r unit; do
  systemctl show -p Id,LoadState,ActiveState,SourcePath -- "$unit" | sed 's/^/unit=/'
  printf 'unit=File=%s\nunit=\n' "$(systemctl is-enabled -- "$unit" 2>/dev/null)"
done
"""


class SwapSources(Probe[Swap]):
    """What swaps now, and what would at the next boot."""

    script = _SCRIPT

    def parse(self, text: str) -> Swap:
        return parse(text)


def parse(text: str) -> Swap:
    """Parse the answer of `SwapSources`; `ValueError` when anything is missing."""
    pairs = Pairs(text)
    header, *lines = pairs.all("swaps")
    if not header.startswith("Filename"):
        raise ValueError(f"/proc/swaps begins with {header!r}")
    return Swap(
        active=tuple(_active(line) for line in lines),
        fstab=_fstab(pairs),
        units=_units(pairs.all("unit")),
        available=int(pairs.some("available")) * 1024,
        container=pairs.some("container") != "none",
    )


def _active(line: str) -> Active:
    path, _, size, used, _ = line.rsplit(maxsplit=4)
    return Active(path=path.replace("\\040", " "), size=int(size) * 1024, used=int(used) * 1024)


def _fstab(pairs: Pairs) -> str | None:
    if not pairs.flag("fstab"):
        return None
    text = "\n".join(pairs.all("line"))
    return text + "\n" if text and pairs.flag("ending") else text


def _units(lines: tuple[str, ...]) -> tuple[SwapUnit, ...]:
    units: dict[str, SwapUnit] = {}
    block: dict[str, str] = {}
    for line in lines:
        if line:
            key, _, value = line.partition("=")
            block[key] = value
            continue
        unit = SwapUnit(
            name=block["Id"],
            active=block["ActiveState"],
            file=block["File"],
            source=block.get("SourcePath", ""),
        )
        if block["LoadState"] != "not-found" or unit.active == "active":
            units[unit.name] = unit
        block = {}
    return tuple(units.values())
