"""Everything that a host says about its kubelet, by one script: files, unit, process, saved state, health."""

from __future__ import annotations

from base64 import b64decode

from gpurack.decide.kubelet import boot
from gpurack.decide.kubelet.align import HEALTHZ
from gpurack.decide.kubelet.checkpoints import damage, parse_cpu_state, parse_memory_state
from gpurack.decide.kubelet.snapshot import (
    CONFIG,
    CPU_STATE,
    DROP_IN_DIR,
    EXTRA_ARGS,
    KUBEADM_FLAGS,
    KUBECONFIG,
    MEMORY_STATE,
    STATE_DIR,
    File,
    Service,
    Snapshot,
)
from gpurack.facts.probe import Probe

# Lines of kubelet's journal that say why it stopped, or read a file leniently (R7, R9, R20, R24, R33).
_TELLING = (
    "command failed|Failed to (start|initialize)|failed to (run|load|walk|validate)|checkpoint|"
    "lenient decoding|machine state|unknown flag|not equal to the value|invalid configuration|reserved"
)

# Contents travel as base64, so that no file can break the form of the answer. The journal is read only when
# kubelet is not well: a large one takes a second to open. A process that logged the fatal line ends at once,
# so five minutes of its journal are enough.
_SCRIPT = rf"""
file() {{
  [ -f "$1" ] && printf 'file\t%s\t%s\t%s\n' "$1" "$(stat -c %Y "$1")" "$(base64 -w0 < "$1")"
}}
for path in {CONFIG} {KUBEADM_FLAGS} {EXTRA_ARGS} {boot.GUARD} {boot.UNIT} {boot.STORED}; do
  file "$path"
done
if [ -d {DROP_IN_DIR} ]; then
  printf 'dir\n'
  find {DROP_IN_DIR} -name '*.conf' ! -type d | while IFS= read -r path; do file "$path"; done
fi
for path in {STATE_DIR}/*_state; do file "$path"; done
[ -e {KUBECONFIG} ] && printf 'joined\n'
shown=$(systemctl show kubelet.service -p LoadState -p UnitFileState -p ActiveState -p SubState \
  -p NRestarts -p MainPID -p ExecMainStartTimestampMonotonic -p InvocationID) || exit 1
unit() {{ printf '%s\n' "$shown" | sed -n "s/^$1=//p"; }}
load=$(unit LoadState) restarts=$(unit NRestarts) pid=$(unit MainPID) invocation=$(unit InvocationID) well=no
printf 'unit\t%s\t%s\t%s\t%s\t%s\t%s\n' "$load" "$(unit UnitFileState)" "$(unit ActiveState)" \
  "$(unit SubState)" "$restarts" "$(unit ExecMainStartTimestampMonotonic)"
if [ "${{pid:-0}}" -gt 0 ]; then
  printf 'command\t%s\n' "$(base64 -w0 < "/proc/$pid/cmdline")"
  case $(readlink "/proc/$pid/exe") in *' (deleted)') printf 'stale\n' ;; esac
  if {HEALTHZ}; then printf 'healthy\n'; well=yes; fi
fi
mine=_SYSTEMD_INVOCATION_ID=$invocation
if [ -n "$invocation" ] && journalctl -q -o cat --since=-5min "$mine" 2>/dev/null |
    grep -q 'Failed to start ContainerManager'; then
  printf 'fatal\n'; well=no
fi
if [ "$load" = loaded ] && {{ [ $well = no ] || [ "${{restarts:-0}}" -gt 0 ]; }}; then
  of="-u kubelet"
  # A process that never restarted is not explained by what its forerunners said.
  [ "${{pid:-0}}" -gt 0 ] && [ "${{restarts:-0}}" -eq 0 ] && of=$mine
  journalctl -q -o cat $of -n 300 2>/dev/null | grep -E '{_TELLING}' | cut -c1-600 | tail -n 12 |
    while IFS= read -r line; do printf 'journal\t%s\n' "$(printf %s "$line" | base64 -w0)"; done
fi
ip -o address show 2>/dev/null |
  while read -r _ _ _ address _; do printf 'address\t%s\n' "${{address%/*}}"; done
printf 'clock\t%s\t%s\t%s\n' \
  "$(cat /proc/sys/kernel/random/boot_id)" "$(date +%s)" "$(cut -d' ' -f1 /proc/uptime)"
printf 'end\n'
"""


class Kubelet(Probe[Snapshot]):
    """A `Snapshot`: never judged, and never partial."""

    script = _SCRIPT

    def parse(self, text: str) -> Snapshot:
        return parse_snapshot(text)


def parse_snapshot(text: str) -> Snapshot:
    """The script's answer as a model. `ValueError` when it was cut off or says something unknown."""
    rows = [line.split("\t") for line in text.splitlines()]
    if not rows or rows[-1] != ["end"]:
        raise ValueError("the kubelet script did not come to its end")
    files: dict[str, File] = {}
    journal: list[str] = []
    addresses: set[str] = set()
    flags: set[str] = set()
    command: tuple[str, ...] = ()
    unit, clock = ["not-found", "", "inactive", "dead", "0", "0"], ["", "0", "0"]
    for row in rows[:-1]:
        match row:
            case ["file", path, mtime, content]:
                files[path] = File(text=_decode(content), mtime=int(mtime))
            case ["unit", *values] if len(values) == len(unit):
                unit = values
            case ["command", content]:
                command = tuple(part for part in _decode(content).split("\0") if part)
            case ["journal", content]:
                journal.append(_decode(content))
            case ["address", address]:
                addresses.add(address)
            case ["clock", *values] if len(values) == len(clock):
                clock = values
            case ["dir" | "joined" | "stale" | "healthy" | "fatal" as flag]:
                flags.add(flag)
            case _:
                raise ValueError(f"unknown row {row!r}")
    cpu, memory = files.pop(CPU_STATE, None), files.pop(MEMORY_STATE, None)
    others = {path: files.pop(path) for path in sorted(files) if _is_state(path)}
    return Snapshot(
        joined="joined" in flags,
        service=_service(unit, flags),
        files=files,
        drop_in_dir="dir" in flags,
        cpu=None if cpu is None else parse_cpu_state(cpu.text),
        memory=None if memory is None else parse_memory_state(memory.text),
        others={path.rpartition("/")[2]: damage(file.text) for path, file in others.items()},
        command=command,
        addresses=frozenset(addresses),
        boot_id=clock[0],
        now=int(clock[1]),
        uptime=float(clock[2]),
        healthy="healthy" in flags,
        journal=tuple(journal),
    )


def _service(unit: list[str], flags: set[str]) -> Service:
    load, enabled, active, sub, restarts, started = unit
    return Service(
        loaded=load == "loaded",
        enabled=enabled not in ("disabled", "masked"),
        active=active,
        sub=sub,
        restarts=int(restarts or 0),
        started=int(started) / 1e6 if active == "active" and int(started or 0) else None,
        stale_binary="stale" in flags,
        fatal="fatal" in flags,
    )


def _is_state(path: str) -> bool:
    return path.startswith(f"{STATE_DIR}/") and path.endswith("_state")


def _decode(content: str) -> str:
    return b64decode(content, validate=True).decode(errors="replace")
