"""How apt is run: nobody is asked, no service is restarted, locks are waited for (R68, O-22, O-24, O-27).

The scripts put apt's exit status into the log and end well themselves: which failure it was is judged by what
apt said (`apt_messages`), not by a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from shlex import quote

from gpurack.decide.apt_messages import RESULT
from gpurack.decide.decision import Await, Transact
from gpurack.defaults import APT_LOCK_WAIT, APT_UPDATE_DEADLINE

# Inside the privileged command, where sudo's env_reset can't drop them (O-24). needrestart is suspended:
# since 24.04 it restarts services after every transaction, containerd and kubelet among them (R68).
_NO_QUESTIONS = """\
export DEBIAN_FRONTEND=noninteractive DEBIAN_PRIORITY=critical APT_LISTCHANGES_FRONTEND=none
export UCF_FORCE_CONFFOLD=1 NEEDRESTART_SUSPEND=1 NEEDRESTART_MODE=l LC_ALL=C LANGUAGE=C
exec </dev/null
"""
_APT = f"apt-get -q -o DPkg::Lock::Timeout={APT_LOCK_WAIT} -o Dpkg::Use-Pty=0 -o APT::Color=0"
# Keep what the host has, a deleted file included (O-27).
_KEEP = "-o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold"

# apt waits for dpkg's lock but not for that of the lists, so all are waited for. /proc/locks knows who holds
# one by inode; the file names behind the holder's descriptors tell it from the same inode elsewhere.
LOCK_PROBE = r"""
held=0
for lock in /var/lib/dpkg/lock-frontend /var/lib/dpkg/lock /var/lib/apt/lists/lock \
  /var/cache/apt/archives/lock
do
  test -e "$lock" || continue
  inode=$(stat -c %i "$lock")
  line="s/^[0-9]*: POSIX  *ADVISORY  *WRITE  *\([0-9][0-9]*\) [^ ]*:$inode .*/\1/p"
  for pid in $(sed -n "$line" /proc/locks); do
    if ls -l "/proc/$pid/fd" 2>/dev/null | grep -qF -- "-> $lock"; then
      echo "$lock is held by process $pid ($(cat "/proc/$pid/comm"))"
      held=1
    fi
  done
done
exit $held
"""


def free_locks() -> Await:
    """Wait for whoever holds apt's and dpkg's locks; say who it is when that takes too long (O-22)."""
    return Await(
        probe=LOCK_PROBE, reason="the locks of apt and dpkg are free", deadline=APT_LOCK_WAIT, every=2.0
    )


def update() -> Transact:
    """Refresh the lists. apt ends 0 on some failures, so its status is not what counts (O-21)."""
    return Transact(
        unit="apt-update",
        script=f"{_NO_QUESTIONS}{_APT} update 2>&1\necho {RESULT}$?",
        why="refresh the lists of packages",
        deadline=APT_UPDATE_DEADLINE + APT_LOCK_WAIT,
    )


def install(pins: Mapping[str, str], *, release: Iterable[str], hold: Iterable[str], finish: bool) -> str:
    """The script that installs `pins` in one call.

    + release: packages whose hold is lifted first; + hold: those that are held when it ends, however it ends
    + finish: configure what a cut transaction left
    """
    held = " ".join(quote(name) for name in hold)
    lines = [
        _NO_QUESTIONS,
        "hold() {\n",
        f"  for name in {held}; do\n",
        "    case $(dpkg-query -W -f '${db:Status-Status}' \"$name\" 2>/dev/null) in\n",
        "      ''|not-installed|config-files) ;;\n",
        '      *) apt-mark hold "$name" ;;\n',
        "    esac\n  done\n}\ntrap hold EXIT\nstatus=0\n",
    ]
    if finish:
        lines.append("dpkg --force-confdef --force-confold --configure -a 2>&1 || status=$?\n")
    if release := " ".join(quote(name) for name in release):
        lines.append(f"apt-mark unhold {release} 2>&1 || status=$?\n")
    if pins:
        exact = " ".join(quote(f"{name}={version}") for name, version in pins.items())
        lines.append(f"{_APT} {_KEEP} -y --no-install-recommends install {exact} 2>&1 || status=$?\n")
    lines.append(f"hold; trap - EXIT\necho {RESULT}$status")
    return "".join(lines)
