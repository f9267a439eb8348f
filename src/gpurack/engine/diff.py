"""`--diff`: what a write would change, unless it is secret."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyinfra import logger

from gpurack.decide.decision import Step, Write
from gpurack.defaults import DIFF_LIMIT, READ_LIMIT

if TYPE_CHECKING:
    from pyinfra.api.host import Host

_shown: set[tuple[str, str, int]] = set()


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
        for line in differences(_old(host, step.path), step.content, step.path):
            logger.info(f"{host.print_prefix}{line}")


def differences(old: str | None, new: str, path: str) -> list[str]:
    """A unified diff, as lines; `old` is None for a file that is not there."""
    before = "/dev/null" if old is None else path
    return list(
        difflib.unified_diff((old or "").splitlines(), new.splitlines(), before, path, lineterm="", n=2)
    )


def _old(host: Host, path: str) -> str | None:
    from gpurack.engine.connector import connector_of

    quoted = shlex.quote(path)
    script = f"[ -e {quoted} ] || exit 44; head -c {DIFF_LIMIT} -- {quoted}"
    answer = connector_of(host).ask(script, limit=READ_LIMIT)
    return None if answer.code == 44 else answer.out
