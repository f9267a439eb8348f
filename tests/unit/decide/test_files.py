"""A whole file is written when its content, mode or owner differs, and not otherwise."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from gpurack.decide.decision import Write
from gpurack.decide.files import FileState, lay

WRITE = Write(path="/etc/x", content="a\n", mode=0o640)
SAME = FileState(sha256=hashlib.sha256(b"a\n").hexdigest(), mode=0o640, owner="root:root")


@pytest.mark.parametrize(
    ("found", "writes"),
    [
        (SAME, 0),
        (None, 1),
        (replace(SAME, mode=0o644), 1),
        (replace(SAME, owner="nobody:nogroup"), 1),
        (replace(SAME, sha256="0" * 64), 1),
    ],
)
def test_a_difference_is_written(found: FileState | None, writes: int) -> None:
    assert len(lay([WRITE], {"/etc/x": found} if found else {}).steps) == writes


def test_a_file_that_keeps_its_mode_is_compared_by_content_alone() -> None:
    keeping = replace(WRITE, keep_mode=True)
    assert lay([keeping], {"/etc/x": replace(SAME, mode=0o600, owner="me:me")}).steps == ()
