"""Whole files of ours: what differs from what is on the host."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpurack.decide.decision import Decision, Write, settled


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """A regular file. + owner: `user:group`."""

    sha256: str
    mode: int
    owner: str


def lay(wanted: Iterable[Write], found: Mapping[str, FileState]) -> Decision:
    """Write those of `wanted` that are missing or differ in content, mode or owner.

    + found: by path; a path that is not in it does not exist on the host
    """
    steps = tuple(write for write in wanted if not same(write, found.get(write.path)))
    if not steps:
        return settled("every file is as wanted")
    missing = [write.path for write in steps if write.path not in found]
    changed = [write.path for write in steps if write.path in found]
    reasons = [f"missing: {', '.join(missing)}"] if missing else []
    reasons += [f"not as wanted: {', '.join(changed)}"] if changed else []
    return Decision(reason="; ".join(reasons), steps=steps)


def same(write: Write, found: FileState | None) -> bool:
    """Whether the file on the host already is what `write` would make it."""
    if found is None or found.sha256 != hashlib.sha256(write.content.encode()).hexdigest():
        return False
    return write.keep_mode or (found.mode == write.mode and found.owner == write.owner)
