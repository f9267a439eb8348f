"""Steps of a decision as scripts for `/bin/sh` on the host. Pure text: what runs can be read here."""

from __future__ import annotations

import hashlib
import shlex
from dataclasses import dataclass

from gpurack.decide.decision import Await, Reload, Remove, Run, Step, Transact, Unit, Write
from gpurack.defaults import COMMAND_LIMIT, PROGRESS_EVERY

RUNTIME_FOLDER = (
    "/run/gpurack"  # lock, holder, transaction scripts and results: gone with a reboot, as they should
)
LOG_FOLDER = "/var/log/gpurack"  # what transactions said
TICK = "gpurack-tick"  # a line of a long script that only says how far it is
NOT_IN_TIME = 75  # exit code of a wait that ran out
_UNIT_LIMIT = 180  # seconds; systemd itself gives a unit 90 to start and 90 to stop


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One script for one host.

    + phrase: what it does, for people
    + awaits: what a sign of life names, if not the phrase
    + within: the limit for people, in seconds, if not `limit` (which leaves time to clean up)
    + unit: whose journal explains a failure
    + log: file on the host with everything that was said
    """

    phrase: str
    script: str
    payload: bytes = b""
    limit: float = COMMAND_LIMIT
    unit: str | None = None
    log: str | None = None
    awaits: str | None = None
    within: int | None = None


def order(step: Step) -> Order:
    """`step` as a script."""
    match step:
        case Write():
            return _write(step)
        case Remove():
            return Order(phrase=f"remove {step.path}", script=f"rm -f -- {shlex.quote(step.path)}")
        case Run():
            payload = (step.stdin or "").encode()
            return Order(phrase=step.why, script=step.script, payload=payload, limit=step.deadline)
        case Transact():
            return _transact(step)
        case Reload():
            return Order(
                phrase="systemctl daemon-reload", script="systemctl daemon-reload", limit=_UNIT_LIMIT
            )
        case Unit():
            script = f"systemctl --no-ask-password {step.verb} -- {shlex.quote(step.name)}"
            phrase = f"systemctl {step.verb} {step.name}"
            return Order(phrase=phrase, script=script, limit=_UNIT_LIMIT, unit=step.name)
        case Await():
            return _await(step)


def _write(step: Write) -> Order:
    content = step.content.encode()
    owner = f'chown -- {shlex.quote(step.owner)} "$t"; chmod -- {step.mode:04o} "$t"'
    if step.keep_mode:
        same = 'chown --reference="$d" -- "$t"; chmod --reference="$d" -- "$t"'
        owner = f'if [ -e "$d" ]; then {same}; else {owner}; fi'
    check = (
        f'( trap - PIPE; set +eu; set -- "$t"; eval {shlex.quote(step.validate)} ) >&2'
        if step.validate
        else ":"
    )
    script = f"""set -eu; umask 077
d={shlex.quote(step.path)}; dir=$(dirname -- "$d")
if [ -d "$d" ]; then echo "$d is a folder" >&2; exit 73; fi
[ -d "$dir" ] || (umask 022; mkdir -p -- "$dir")
rm -f -- "$dir"/.gpurack.??????
t=$(mktemp -- "$dir/.gpurack.XXXXXX")
trap 'rm -f -- "$t"' EXIT; trap 'exit 143' HUP INT TERM
trap '' PIPE  # without a reader, the shell's own "Terminated" would end it before it has cleaned up
cat >"$t"
echo "{hashlib.sha256(content).hexdigest()}  $t" | sha256sum -c --status - ||
    {{ echo "the content did not arrive whole (disk full?)" >&2; exit 74; }}
{owner}
{check}
sync -- "$t"; mv -fT -- "$t" "$d"; sync -- "$dir"
trap - EXIT"""
    return Order(phrase=f"write {step.path}", script=script, payload=content)


# An uptime does not jump when the clock is set.
_CLOCK = 'now() { read -r u _ </proc/uptime; echo "${u%%.*}"; }; began=$(now); said=$began\n'


def _tick(text: str = "") -> str:
    return (
        f"  t=$(now); [ $((t - said)) -lt {int(PROGRESS_EVERY)} ] || "
        f'{{ said=$t; echo "{TICK} $((t - began)){text}"; }}\n'
    )


def _transact(step: Transact) -> Order:
    unit, log = f"gpurack-{step.unit}", f"{LOG_FOLDER}/{step.unit}.log"
    result, file = f"{RUNTIME_FOLDER}/{unit}.result", f"{RUNTIME_FOLDER}/{unit}.sh"
    # The shell has the file open, so it may remove it first: what it holds stays no longer than needed.
    inner = (
        f"rm -f -- {file}\n(\n{step.script}\n)\nr=$?\n"
        f'echo "$r" >{result}.new && mv -f {result}.new {result}\nexit "$r"\n'
    )
    content = inner.encode()
    why = shlex.quote(f"gpurack: {step.why}")
    script = f"""set -u; umask 077
{_CLOCK}mkdir -p -m 0700 {RUNTIME_FOLDER}; mkdir -p -m 0750 {LOG_FOLDER}
state() {{ systemctl show -p ActiveState --value {unit}.service; }}
case "$(state)" in active|activating|deactivating|reloading)
  echo "{unit}.service of another run is at work" >&2; exit 76;; esac
rm -f {result} {result}.new; systemctl reset-failed {unit}.service 2>/dev/null
cat >{file} && echo "{hashlib.sha256(content).hexdigest()}  {file}" | sha256sum -c --status - ||
    {{ rm -f {file}; echo "the script did not arrive whole (no room in /run?)" >&2; exit 74; }}
[ ! -s {log} ] || mv -f {log} {log}.1
: >{log} || exit 74
systemd-run --quiet --unit={unit} --description={why} --setenv=LC_ALL=C --setenv=LANGUAGE=C \\
  --setenv=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin --setenv=HOME=/root \\
  -p RuntimeMaxSec={step.deadline} -p StandardOutput=append:{log} -p StandardError=append:{log} \\
  -- /bin/sh {file} || exit 71
turn=0
while [ ! -e {result} ]; do
  sleep 0.2; turn=$(((turn + 1) % 10))
  if [ $turn = 0 ]; then case "$(state)" in active|activating|deactivating|reloading) ;; *)
    [ -e {result} ] ||
      {{ tail -n 20 {log} >&2; echo "{unit}.service ended before it was done" >&2; exit 77; }}
  esac; fi
{_tick(f" $(tail -n 1 {log} | cut -c 1-100)")}done
r=$(cat {result}); [ "$r" = 0 ] || tail -n 20 {log} >&2
exit "$r"
"""
    # The unit ends itself at its deadline; the time on top is for systemd to do so.
    return Order(
        phrase=step.why,
        script=script,
        payload=content,
        limit=step.deadline + 30,
        within=step.deadline,
        unit=unit,
        log=log,
    )


def _await(step: Await) -> Order:
    script = f"""P={shlex.quote(step.probe)}; export P
{_CLOCK}while :; do
  left=$(({step.deadline} - $(now) + began)); [ $left -gt 0 ] || left=1
  out=$(timeout -k 1 $left sh -c 'eval "$P"' 2>&1 </dev/null) && exit 0
  [ $(($(now) - began)) -lt {step.deadline} ] || break
{_tick(' $(printf "%s" "$out" | tail -n 1 | cut -c 1-100)')}  sleep {step.every}
done
printf '%s\\n' "$out" | tail -n 5 >&2; exit {NOT_IN_TIME}"""
    limit = step.deadline + 15  # the last probe may start just before the deadline
    return Order(
        phrase=f"wait: {step.reason}",
        awaits=step.reason,
        script=script,
        limit=limit,
        within=step.deadline,
        unit=step.journal,
    )
