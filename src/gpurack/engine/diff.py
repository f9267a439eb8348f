"""`--diff`: what a write would change, unless it is secret."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyinfra import logger

from gpurack.decide.decision import Step, Write
from gpurack.defaults import DIFF_LIMIT, READ_LIMIT
from gpurack.engine.redaction import MASK

if TYPE_CHECKING:
    from pyinfra.api.host import Host

_shown: set[tuple[str, str, int]] = set()
# What others wrote beside our keys into a file that everybody may read, such as a login in containerd's root
# file, is known to nobody here by its value.
_ASSIGNED = re.compile(
    r"""(?i)^(?P<key>.?\s*["']?(?:[\w-]*password|auth|authorization|identitytoken|[\w-]*secret|token)["']?\s*[=:]\s*)\S.*"""
)


def show_differences(host: Host, steps: Sequence[Step]) -> None:
    """With `--diff`: log a unified diff of every `Write` in `steps`, each once per run."""
    if not host.state.config.DIFF:
        return
    for step in steps:
        if not isinstance(step, Write):
            continue
        key = (host.name, step.path, hash(step.content))
        if key in _shown:
            continue
        _shown.add(key)
        if step.secret:
            logger.info(f"{host.print_prefix}{step.path}: changes are not shown, it holds a secret")
            continue
        old, closed = _old(host, step.path)
        if closed:
            # What stands there now may be a login that the site no longer declares.
            logger.info(f"{host.print_prefix}{step.path}: changes are not shown, only root may read it")
            continue
        for line in differences(old, step.content, step.path):
            logger.info(f"{host.print_prefix}{line}")


def differences(old: str | None, new: str, path: str) -> list[str]:
    """A unified diff, as lines; `old` is None for a file that is not there.

    Values of keys that are named like secrets are masked.
    """
    before = "/dev/null" if old is None else path
    lines = difflib.unified_diff((old or "").splitlines(), new.splitlines(), before, path, lineterm="", n=2)
    return [_ASSIGNED.sub(rf"\g<key>{MASK}", line) for line in lines]


def _old(host: Host, path: str) -> tuple[str | None, bool]:
    """The text that stands there, and whether only its owner may read it."""
    from gpurack.engine.connector import connector_of

    quoted = shlex.quote(path)
    script = f"[ -e {quoted} ] || exit 44; stat -L -c %a -- {quoted}; head -c {DIFF_LIMIT} -- {quoted}"
    answer = connector_of(host).ask(script, limit=READ_LIMIT)
    if answer.code == 44:
        return None, False
    mode, _, text = answer.out.partition("\n")
    return text, not int(mode, 8) & 0o044
