"""dpkg's view of what gpurack pins, what apt would do, and what our last transaction said."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

from gpurack.decide.apt_messages import RESULT, Log, read_log
from gpurack.decide.packages import Kubelet, Package, Packages, Simulation
from gpurack.facts.pairs import Pairs
from gpurack.facts.probe import Probe, in_c_locale

LOG = "/var/log/gpurack/packages.log"  # where the engine keeps what the transaction said

# One pass over dpkg's database: ours, rivals, kernels, and everything held or not whole. One that can't be
# read must not look like one without packages.
_SCRIPT = rf"""
all=$(dpkg-query -W -f '${{Package}} ${{Version}} ${{db:Status-Want}} ${{db:Status-Status}}\n') || exit 1
printf '%s\n' "$all" | sed -n \
  -e '/ not-installed$/d' -e '/ hold /b show' -e '/ installed$/!{{/ config-files$/!b show}}' \
  -e '/^kubelet /b show' -e '/^kubeadm /b show' -e '/^kubectl /b show' -e '/^cri-tools /b show' \
  -e '/^kubernetes-cni /b show' -e '/^containerd/b show' -e '/^runc /b show' -e '/^linux-/b show' \
  -e '/nvidia-container/b show' -e 'd' -e ':show' -e 's/^/package=/p'
if dpkg-query -W -f '${{db:Status-Status}}' containerd 2>/dev/null | grep -qx installed; then
  dpkg-query -W -f '${{db:Status-Status}} ${{Package}} ${{Pre-Depends}}, ${{Depends}}\n' |
    grep -E '^installed ([^ ]+) (.*[ ,|])?containerd([ ,|(]|$)' | cut -d ' ' -f 2 | sed 's/^/dependant=/'
fi
for folder in /usr/local/sbin /usr/local/bin /usr/sbin /usr/bin /opt/bin /opt/containerd/bin; do
  if test -f "$folder/containerd"; then
    printf 'binary=%s %s\n' "$folder/containerd" \
      "$(dpkg-query -S "$(readlink -f "$folder/containerd")" 2>/dev/null | sed 's/:.*//')"
  fi
done
if test -e /etc/kubernetes/kubelet.conf; then echo member=yes; else echo member=no; fi
if test -e /var/lib/kubelet/config.yaml; then echo configured=yes; else echo configured=no; fi
printf 'enabled=%s\n' "$(systemctl show -p UnitFileState --value kubelet.service)"
printf 'active=%s\n' "$(systemctl show -p ActiveState --value kubelet.service)"
if test -e {LOG} && ! tail -n 1 {LOG} | grep -q '^{RESULT}'; then echo cut=yes; else echo cut=no; fi
"""
_INST = re.compile(r"Inst (?P<name>\S+?)(?::\w+)? (?:\[(?P<old>[^\]]+)\] )?\((?P<new>\S+)")
_MARK = "gpurack-simulation"


class InstalledPackages(Probe[Packages]):
    """Everything that decides whether packages must be installed, and whether they may."""

    script = _SCRIPT

    def parse(self, text: str) -> Packages:
        return parse(text)


class TransactionLog(Probe[Log]):
    """What our last package transaction said."""

    script = f"cat {LOG}"
    prefetch = False  # there is none before the first transaction

    def parse(self, text: str) -> Log:
        return read_log(text)


class Simulated(Probe[Simulation]):
    """What apt would do for `pins` (`name=version`), and which versions its lists offer. Changes nothing."""

    def command(self, pins: Iterable[str]) -> str:  # type: ignore[override]
        exact = " ".join(shlex.quote(pin) for pin in pins)
        names = " ".join(shlex.quote(pin.partition("=")[0]) for pin in pins)
        return in_c_locale(
            f"apt-cache madison {names}; echo {_MARK}; "
            f"apt-get -s -q -o APT::Color=0 --no-install-recommends install {exact} 2>&1; echo {RESULT}$?"
        )

    def parse(self, text: str) -> Simulation:
        return parse_simulation(text)


def parse(text: str) -> Packages:
    """Parse the answer of `InstalledPackages`; `ValueError` when anything is missing."""
    pairs = Pairs(text)
    found: dict[str, Package] = {}
    for value in pairs.all("package"):
        name, version, want, state = value.split(" ")
        # Two architectures of one package: the one that is whole counts.
        if name not in found or state == "installed":
            found[name] = Package(name=name, version=version, hold=want == "hold", state=state)
    binaries = {}
    for value in pairs.all("binary"):
        path, _, owner = value.partition(" ")
        binaries[path] = owner.split(",")[0] or None
    return Packages(
        found=found,
        dependants=pairs.all("dependant"),
        binaries=binaries,
        member=pairs.flag("member"),
        kubelet=Kubelet(
            enabled=pairs.one("enabled"), active=pairs.some("active"), configured=pairs.flag("configured")
        ),
        cut=pairs.flag("cut"),
    )


def parse_simulation(text: str) -> Simulation:
    """Parse the answer of `Simulated`; `ValueError` when a part is missing."""
    madison, mark, rest = text.partition(f"{_MARK}\n")
    if not mark:
        raise ValueError("apt-cache and apt-get gave no answer")
    available: dict[str, list[str]] = {}
    for line in madison.splitlines():
        name, version, _ = (part.strip() for part in line.split("|", 2))
        available.setdefault(name, []).append(version)
    log = read_log(rest.rstrip("\n"))
    if log.result is None:
        raise ValueError("apt-get -s did not end")
    installs = {m["name"]: (m["old"], m["new"]) for line in log.lines if (m := _INST.match(line))}
    removes = tuple(line.split()[1] for line in log.lines if line.startswith("Remv "))
    return Simulation(
        available={name: tuple(dict.fromkeys(versions)) for name, versions in available.items()},
        installs=installs,
        removes=removes,
        log=log,
    )
