"""How a script travels to a host: a constant short command line, everything else on its standard input.

So nothing of it shows in a process list, there is no limit on its length, the user's login shell never sees
it, and the end of input (time limit, lost connection, `kill -9` of the controller) ends the whole remote
process group.
"""

from __future__ import annotations

import base64
import shlex
from dataclasses import dataclass
from typing import Literal

from gpurack.defaults import GRACE

CUT_SHORT = 252  # exit code: the connection ended before the script had arrived
_MARK = "gpurack"

# The waiting shell is not part of the group that it ends. `wait` on the last process of the pipeline is the
# script's own exit code. sudo reads its password line from the same stream only when it asks for one; so the
# mark says whether that line is still there.
_RUNNER = (
    "exec 3<&0 </dev/null; export LC_ALL=C LANGUAGE=C; PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin; "
    "umask 022; cd /; "
    'IFS= read -r m <&3; [ "$m" = {mark} ] || IFS= read -r m <&3; '
    "d=$(head -c {total} <&3); [ ${{#d}} -eq {total} ] || exit {cut}; "
    'printf %s "$d" | base64 -d | setsid sh -c \'s=$(head -c {script}); eval "$s"\' 3<&- & p=$!; d=; '
    "(trap '' TERM; IFS= read -r m <&3; kill -TERM -$p; sleep {grace}; kill -KILL -$p) >/dev/null 2>&1 & "
    "w=$!; exec 3<&-; wait $p; r=$?; kill -KILL $w 2>/dev/null; exit $r"
)


@dataclass(frozen=True, slots=True)
class Escalation:
    """How to become root: not at all, `sudo` without a password, or with one on its standard input.

    + prompt: whether this sudo knows `-p` (early sudo-rs does not; O-81)
    """

    kind: Literal["none", "sudo", "password"] = "none"
    password: str = ""
    prompt: bool = True

    def prefix(self) -> str:
        if self.kind == "none":
            return ""
        if self.kind == "sudo":
            return "sudo -n -H "
        # -k: always ask, so that an old ticket never leaves the password for the script to read.
        return "sudo -k -S -H " + ("-p '' " if self.prompt else "")


PLAIN = Escalation()


def wire(script: str, payload: bytes = b"", escalation: Escalation = PLAIN) -> tuple[str, bytes]:
    """The command line for the host, and what to send on its standard input.

    `script` runs in a new session under `sh`, in the C locale, in `/`, with umask 022; its standard input is
    `payload`, then end of file.
    """
    body = script.encode()
    package = base64.b64encode(body + payload)
    runner = _RUNNER.format(mark=_MARK, total=len(package), script=len(body), grace=GRACE, cut=CUT_SHORT)
    head = f"{escalation.password}\n" if escalation.kind == "password" else ""
    return f"exec {escalation.prefix()}sh -c {shlex.quote(runner)}", f"{head}{_MARK}\n".encode() + package
