"""One run changes a host at a time: a lock on the host that dies with the connection that holds it.

Taken before the first change. What an earlier, interrupted run left at work (apt, kubeadm: transient units)
is waited for first.
"""

from __future__ import annotations

import shlex
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gpurack.defaults import LOCK_LIMIT, TRANSACTION_LIMIT
from gpurack.engine.run import current, operator
from gpurack.engine.steps import NOT_IN_TIME, RUNTIME_FOLDER, TICK
from gpurack.errors import GpurackError, Lost, Problem, Refused
from gpurack.report.events import Waiting

if TYPE_CHECKING:
    from pyinfra.api.host import Host


class OvertakenError(GpurackError):
    """Another run was at work on this host until now: what we read is out of date. Nothing was done yet."""


_held: set[str] = set()
NO_HOLDER = "nobody"


def hold(host: Host) -> None:
    """Hold the lock of `host` until the run ends.

    `OvertakenError` when it was ours only after waiting, `Refused` when it was not to be had in time.
    """
    if host.name in _held:
        return
    from gpurack.engine.connector import connector_of

    connector = connector_of(host)
    held = threading.Event()
    said: list[str] = []
    before: list[str] = []
    waited = False

    def heard(error: bool, line: str) -> None:
        nonlocal waited
        if line == "held":
            held.set()
        elif line.startswith(f"{TICK} "):
            waited = True
            _, seconds, reason = line.split(" ", 2)
            current().emit(Waiting(host=host.name, reason=reason, seconds=int(seconds), deadline=LOCK_LIMIT))
        elif line.startswith("was "):
            before.append(line.removeprefix("was "))
        elif not error:
            said.append(line)

    answer = connector.keep_running(_script(), until=held, limit=LOCK_LIMIT + TRANSACTION_LIMIT, heard=heard)
    if answer is None:
        _held.add(host.name)
        # It may also have come and gone between our connecting and now.
        if waited or before != [connector.seen_holder]:
            raise OvertakenError(
                Problem(code="E-LOCK-02", what="another run was at work on this host until now")
            )
        return
    if answer.code == NOT_IN_TIME:
        raise Refused(
            Problem(
                code="E-LOCK-01",
                what=f"another run holds this host; waited {LOCK_LIMIT} s for it",
                host=host.name,
                found="; ".join(said) or "its name is not known",
                next="wait until it is done, or end it where it runs, then run the same command again",
            )
        )
    raise Lost(
        Problem(
            code="E-LOCK-03",
            what="the lock of this host could not be taken",
            host=host.name,
            found=f"exit {answer.code}: {'; '.join(answer.tail) or 'it said nothing'}",
            next="look whether /run of the host is writable and has room",
        )
    )


def _script() -> str:
    holder = f"run {current().id} of {operator()} since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
    return f"""set -u; umask 077
mkdir -p -m 0700 {RUNTIME_FOLDER} && exec 9>>{RUNTIME_FOLDER}/lock || exit 71
now() {{ read -r u _ </proc/uptime; echo "${{u%%.*}}"; }}; began=$(now)
until flock -n 9; do
  [ $(($(now) - began)) -lt {LOCK_LIMIT} ] || {{ cat {RUNTIME_FOLDER}/holder; exit {NOT_IN_TIME}; }}
  echo "{TICK} $(($(now) - began)) the lock of this host, held by $(cat {RUNTIME_FOLDER}/holder 2>/dev/null)"
  flock -w {min(5, LOCK_LIMIT)} 9 && break
done
echo "was $(cat {RUNTIME_FOLDER}/holder 2>/dev/null || echo {NO_HOLDER})"
echo {shlex.quote(holder)} >{RUNTIME_FOLDER}/holder
{transactions_script()}
echo held
exec sleep infinity"""


def look_script() -> str:
    """Before anything is read: wait for left-over transactions, say who changed this host last."""
    return f"""now() {{ read -r u _ </proc/uptime; echo "${{u%%.*}}"; }}
{transactions_script()}
cat {RUNTIME_FOLDER}/holder 2>/dev/null; exit 0"""


def transactions_script() -> str:
    """Waits until no transient unit of ours is at work, with signs of life; exits 75 past the limit."""
    return f"""busy() {{ b=; for f in /run/systemd/transient/gpurack-*.service; do [ -e "$f" ] || continue
  n=${{f##*/}}; case "$(systemctl show -p ActiveState --value "$n")" in
    active|activating|deactivating|reloading) b="$b $n";; esac; done; [ -n "$b" ]; }}
at=$(now); next=0
while busy; do
  [ $(($(now) - at)) -lt $next ] ||
    {{ next=$((next + 5)); echo "{TICK} $(($(now) - at)) work that an earlier run left behind:$b"; }}
  [ $(($(now) - at)) -lt {TRANSACTION_LIMIT} ] || {{ echo "still at work:$b"; exit {NOT_IN_TIME}; }}
  sleep 2
done"""
