"""Secrets are references in the site document, never values.

`env:NAME` reads a variable of the controller, `file:/path` a file that only its owner may read,
`command:program arguments` the first line that a program prints (a password manager, for instance).
"""

from __future__ import annotations

import os
import re
import shlex
import stat
import subprocess
from pathlib import Path

from gpurack.errors import BadInput, Problem

_REFERENCE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|(file|command):\s*\S.*", re.ASCII)
_COMMAND_SECONDS = 30  # a password manager may ask for a touch or a PIN

# What no document may hold, whatever the field is called. Matched values are never shown.
_CLEAR = (
    (re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY"), "a private key"),
    (re.compile(r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\."), "a signed token (JWT)"),
    (re.compile(r"(?<![a-z0-9.-])[a-z0-9]{6}\.[a-z0-9]{16}(?![a-z0-9.-])"), "a bootstrap token"),
    (re.compile(r"(?<![A-Za-z0-9])(gh[pousr]_[A-Za-z0-9]{30,}|glpat-[A-Za-z0-9_-]{20,})"), "an access token"),
    (re.compile(r"(?<![A-Za-z0-9])nvapi-[A-Za-z0-9_-]{20,}"), "an NGC API key"),
    (re.compile(r"(?<![A-Z0-9])AKIA[A-Z0-9]{16}(?![A-Z0-9])"), "a cloud access key"),
    (re.compile(r"://[^/@\s:]*:[^/@\s]+@"), "a password inside a URL"),
)


def is_reference(text: str) -> bool:
    """Whether `text` names a secret instead of holding one."""
    return _REFERENCE.fullmatch(text) is not None


def clear_secret(text: str) -> str | None:
    """What kind of secret `text` holds in clear ("a private key"), or None."""
    if is_reference(text):
        return None
    return next((kind for pattern, kind in _CLEAR if pattern.search(text)), None)


def read_reference(reference: str, *, secret: bool = True) -> str:
    """The value that `reference` names, without its final line break.

    + secret: whether a file that others may read is refused; public values (a fingerprint) set it to False

    `BadInput` when it can't be read. Its text names the reference, never the value or a command's output.
    """
    kind, _, name = reference.partition(":")
    name = name.strip()
    if kind == "env":
        value = os.environ.get(name)
        if value is None:
            raise _refused(
                "E-SITE-51", f"the variable {name} is not set", reference, f"export {name}=... first"
            )
    elif kind == "file":
        value = _from_file(Path(name).expanduser(), reference, secret)
    elif kind == "command":
        value = _from_command(name, reference)
    else:
        raise _refused("E-SITE-50", "this is no reference", "(not shown)", "write env:, file: or command:")
    value = value.rstrip("\r\n")
    if not value:
        raise _refused("E-SITE-51", "the reference leads to an empty value", reference, "fill it")
    return value


def _from_file(path: Path, reference: str, secret: bool) -> str:
    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise _refused("E-SITE-52", f"the file can't be read: {reason}", reference, f"ls -l {path}") from None
    if secret and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise _refused(
            "E-SITE-53",
            f"others than its owner may use this file (mode {stat.S_IMODE(mode):04o})",
            reference,
            f"chmod 600 {path}",
        )
    return text


def _from_command(command: str, reference: str) -> str:
    try:
        words = shlex.split(command)
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        if isinstance(error, subprocess.TimeoutExpired):
            reason = f"no answer within {_COMMAND_SECONDS} s"
        else:
            reason = getattr(error, "strerror", None) or str(error)
        raise _refused(
            "E-SITE-55", f"the command did not run: {reason}", reference, "run it by hand"
        ) from None
    if done.returncode:
        raise _refused("E-SITE-55", f"the command ended with {done.returncode}", reference, "run it by hand")
    return done.stdout.split("\n", 1)[0]


def _refused(code: str, what: str, reference: str, step: str) -> BadInput:
    return BadInput(Problem(code=code, what=what, found=reference, next=step))
