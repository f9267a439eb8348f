"""State of whole files: how they are told on the wire, and read back."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

from gpurack.decide.files import FileState


def script(paths: Iterable[str]) -> str:
    """Shell text that prints one `sha256sum=` and `stat=` line for each of `paths` that is a file."""
    names = " ".join(shlex.quote(path) for path in paths)
    return f"""
for file in {names}; do
  if test -f "$file"; then
    printf 'owned=%s %s\\n' "$(stat -Lc '%a %U:%G' "$file")" "$(sha256sum "$file")"
  fi
done
"""


def parse(values: Iterable[str]) -> Mapping[str, FileState]:
    """The values of `owned=` lines, by path."""
    found = {}
    for value in values:
        mode, owner, sha256, path = value.split(" ", 3)
        found[path.strip().removeprefix("*")] = FileState(sha256=sha256, mode=int(mode, 8), owner=owner)
    return found
