"""O-80, O-81: sudo in any language and of any make, told by exit codes and version, not by words."""

from __future__ import annotations

import pytest

from gpurack.engine.channel import Answer
from gpurack.engine.escalate import read_look
from gpurack.errors import Lost


def answer(*lines: str) -> Answer:
    return Answer(0, tuple((False, line) for line in lines))


@pytest.mark.parametrize(
    ("lines", "root", "sudo", "rs", "free"),
    [
        (("uid 0", "sudo none"), True, False, False, False),
        (("uid 1000", "sudo none"), False, False, False, False),
        (("uid 1000", "sudo Sudo version 1.9.15p5", "free 0"), False, True, False, True),
        (("uid 1000", "sudo Sudo version 1.9.15p5", "free 1"), False, True, False, False),
        (("uid 1000", "sudo sudo-rs 0.2.8", "free 0"), False, True, True, True),
        (("uid 1000", "sudo sudo-rs 0.2.2-1", "free 1"), False, True, True, False),
        (("Bienvenue !", "uid 1000", "sudo Sudo version 1.9.13p3", "free 1"), False, True, False, False),
    ],
)
def test_o_80_o_81_what_was_found(
    lines: tuple[str, ...], root: bool, sudo: bool, rs: bool, free: bool
) -> None:
    look = read_look(answer(*lines))
    assert (look.root, look.sudo is not None, look.rs, look.free) == (root, sudo, rs, free)


def test_a_login_shell_that_runs_nothing_is_told_as_such() -> None:
    with pytest.raises(Lost) as caught:
        read_look(Answer(1, ((True, "This account is currently not available."),)))
    problem = caught.value.problems[0]
    assert problem.code == "E-SUDO-06"
    assert problem.found == "This account is currently not available."
