"""Command-line arguments of kubelet in the environment files that its unit reads (R26, R28, R33).

`/etc/default/kubelet` is a conffile that belongs to people as well: their arguments stay, ours appear once.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

_NAME = "KUBELET_EXTRA_ARGS"


def assigned(text: str | None, name: str) -> str | None:
    """The value that systemd takes for `name` from an environment file: the last assignment wins.

    Quotes around the whole value are removed. None when it is not assigned. `ValueError` when only parts of
    it are quoted.
    """
    value = None
    for line in _logical(text or ""):
        match = re.match(rf"\s*{re.escape(name)}=(.*)", line, re.DOTALL)
        if match:
            value = _unquoted(match[1].strip())
    return value


def arguments(text: str | None, name: str = _NAME) -> tuple[str, ...]:
    """The arguments in that value. `ValueError` when its quotes do not match."""
    value = assigned(text, name)
    return tuple(shlex.split(value)) if value else ()


def given(args: Sequence[str], flag: str) -> tuple[str, ...]:
    """Every value that `args` gives for `--flag`, in order: `--flag=value` and `--flag value`."""
    values: list[str] = []
    for index, arg in enumerate(args):
        if arg.startswith(f"--{flag}="):
            values.append(arg.partition("=")[2])
        elif arg == f"--{flag}":
            values.append(args[index + 1] if index + 1 < len(args) else "")
    return tuple(values)


def with_flags(text: str | None, flags: Mapping[str, str]) -> str:
    """`text` with each of `flags` given exactly once; unchanged when it already is so.

    Other arguments, other variables and comments stay as they are. `ValueError` as `arguments`.
    """
    args = arguments(text)
    if all(given(args, flag) == (value,) for flag, value in flags.items()):
        return text or ""
    kept: list[str] = []
    skip = False
    for arg in args:
        name = arg.removeprefix("--").partition("=")[0] if arg.startswith("--") else None
        if skip:
            skip = False
        elif name in flags:
            skip = "=" not in arg
        else:
            kept.append(arg)
    kept.extend(f"--{flag}={value}" for flag, value in flags.items())
    value = " ".join(shlex.quote(arg) for arg in kept)
    line = f'{_NAME}="{value}"' if re.search(r"[\s']", value) and '"' not in value else f"{_NAME}={value}"
    lines = _logical(text or "")
    ours = [index for index, old in enumerate(lines) if re.match(rf"\s*{_NAME}=", old)]
    if ours:
        lines[ours[-1]] = line
    else:
        lines.append(line)
    return "\n".join(lines) + "\n"


def _logical(text: str) -> list[str]:
    """Lines, with those that a backslash continues joined, as systemd reads them. Comments are not joined."""
    lines: list[str] = []
    open_ended = False
    for line in text.splitlines():
        body = line[:-1] if line.endswith("\\") and not line.lstrip().startswith(("#", ";")) else line
        if open_ended:
            lines[-1] += body
        else:
            lines.append(body)
        open_ended = body != line
    return lines


def _unquoted(value: str) -> str:
    """Quotes around the whole are the file's; quotes inside are taken by systemd's splitting later.

    Quoted pieces side by side mean something else to systemd than to a shell: `ValueError`.
    """
    if value[:1] not in ('"', "'"):
        return value
    quote, inner = value[0], value[1:-1]
    if len(value) < 2 or value[-1] != quote or re.search(rf"(?<!\\){quote}", inner):
        raise ValueError(f"quotation that systemd and shells read differently: {value}")
    return re.sub(r"\\([\"\\`$])", r"\1", inner) if quote == '"' else inner
