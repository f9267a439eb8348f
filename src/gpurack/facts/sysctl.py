"""Modules, sysctls, and every file that sets a sysctl at boot."""

from __future__ import annotations

from collections.abc import Iterable

from gpurack.decide.sysctl import KEYS, MODULES, MODULES_FILE, ConfigFile, Kernel, Module, Setting
from gpurack.facts.pairs import Pairs
from gpurack.facts.probe import Probe

# Built into the kernel counts as loaded (O-42). Where the module tree is missing (containers), what the
# module provides is the evidence: a file system in /proc/filesystems, a folder under /proc/sys.
_MODULES = r"""
release=$(uname -r); tree=/lib/modules/$release
printf 'release=%s\n' "$release"
if test -d "$tree"; then echo tree=yes; else echo tree=no; fi
for module in MODULES; do
  loaded=no; available=no
  if test -d "/sys/module/$module"; then loaded=yes
  elif grep -qs "/$module\.ko" "$tree/modules.builtin"; then loaded=yes
  elif test "$module" = overlay && grep -qw overlay /proc/filesystems; then loaded=yes
  elif test "$module" = br_netfilter && test -d /proc/sys/net/bridge; then loaded=yes; fi
  if test -d "$tree" && modinfo -k "$release" "$module" >/dev/null 2>&1; then available=yes; fi
  echo "module=$module $loaded $available"
done
for key in KEYS; do
  path=/proc/sys/$(echo "$key" | tr . /)
  if ! test -e "$path"; then echo "setting=$key absent no"; continue; fi
  if test -w "$path"; then writable=yes; else writable=no; fi
  echo "setting=$key present $writable $(cat "$path")"
done
printf 'container=%s\n' "$(systemd-detect-virt --container)"
"""

# systemd-sysctl's order: by base name over all folders; a name in an earlier folder hides it in later ones.
# /etc/sysctl.conf counts last: `sysctl --system` reads it so, also where no link in sysctl.d points to it.
# The file of ufw is applied whenever ufw starts.
_FILES = r"""
show() { if test -f "$1"; then printf 'file=%s\n' "$1"; sed 's/^/line=/' "$1"; fi; }
for name in $(for folder in /etc /run /usr/local/lib /usr/lib /lib; do
                ls "$folder/sysctl.d" 2>/dev/null; done | grep '\.conf$' | sort -u); do
  for folder in /etc /run /usr/local/lib /usr/lib /lib; do
    if test -e "$folder/sysctl.d/$name" || test -L "$folder/sysctl.d/$name"; then
      show "$folder/sysctl.d/$name"; break
    fi
  done
done
show /etc/sysctl.conf
if systemctl is-enabled --quiet ufw.service 2>/dev/null; then show /etc/ufw/sysctl.conf; fi
if test -f MODULES_FILE; then
  echo modules_file=yes; sed 's/^/modules_line=/' MODULES_FILE
else echo modules_file=no; fi
"""


class KernelSettings(Probe[Kernel]):
    """About every module and key that any node may need."""

    script = _MODULES.replace("MODULES", " ".join(MODULES)).replace("KEYS", " ".join(KEYS)) + _FILES.replace(
        "MODULES_FILE", MODULES_FILE
    )

    def parse(self, text: str) -> Kernel:
        return parse(text)


def parse(text: str) -> Kernel:
    """Parse the answer of `KernelSettings`; `ValueError` when anything is missing."""
    lines = text.splitlines()
    pairs = Pairs("\n".join(line for line in lines if not line.startswith(("file=", "line="))))
    return Kernel(
        release=pairs.some("release"),
        tree=pairs.flag("tree"),
        modules=tuple(_module(value) for value in pairs.all("module")),
        settings=tuple(_setting(value) for value in pairs.all("setting")),
        files=_files(line for line in lines if line.startswith(("file=", "line="))),
        modules_file="".join(f"{line}\n" for line in pairs.all("modules_line"))
        if pairs.flag("modules_file")
        else None,
        container=pairs.some("container") != "none",
    )


def _module(value: str) -> Module:
    name, loaded, available = value.split(" ")
    return Module(name=name, loaded=loaded == "yes", available=available == "yes")


def _setting(value: str) -> Setting:
    key, state, writable, *rest = value.split(" ", 3)
    return Setting(
        key=key, value=" ".join(rest).strip() if state == "present" else None, writable=writable == "yes"
    )


def _files(lines: Iterable[str]) -> tuple[ConfigFile, ...]:
    files: list[ConfigFile] = []
    for line in lines:
        kind, _, value = line.partition("=")
        if kind == "file":
            files.append(ConfigFile(path=value, text=""))
        else:
            files[-1] = ConfigFile(path=files[-1].path, text=files[-1].text + value + "\n")
    return tuple(files)
