from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpurack.decide.decision import Write
from gpurack.decide.names import BEGIN, END, Hosts, endpoint

NAME, ADDRESS = "api.example.test", "192.0.2.11"
PLAIN = "127.0.0.1 localhost\n# $HOME & friends\n"


def written(content: str, *resolved: str) -> str | None:
    steps = endpoint(name=NAME, address=ADDRESS, found=Hosts(content=content, resolved=resolved)).steps
    if not steps:
        return None
    (write,) = steps
    assert isinstance(write, Write)
    assert write.keep_mode
    return write.content


def test_a_name_that_dns_knows_is_left_to_it() -> None:
    assert written(PLAIN, "198.51.100.7") is None


def test_a_name_that_nobody_knows_gets_a_block_at_the_end() -> None:
    assert written(PLAIN) == f"{PLAIN}{BEGIN}\n{ADDRESS} {NAME}\n{END}\n"


@given(st.lists(st.sampled_from(["127.0.0.1 localhost", "", "\t# x", "$HOME & 'y'", "192.0.2.9 old"])))
def test_o_83_the_block_is_replaced_in_place_and_a_second_run_changes_nothing(lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    first = written(text)
    assert first is not None
    assert first.count(BEGIN) == first.count(END) == 1
    assert first.startswith(text)
    assert written(first, ADDRESS) is None
    moved = first.replace(f"{ADDRESS} {NAME}", f"192.0.2.99 {NAME}") + "10.0.0.1 after\n"
    assert written(moved, "192.0.2.99") == first + "10.0.0.1 after\n"


def test_a_file_without_a_last_line_break_keeps_its_last_line() -> None:
    assert str(written("127.0.0.1 localhost")).splitlines()[:2] == ["127.0.0.1 localhost", BEGIN]


@pytest.mark.parametrize(
    "content",
    [f"{BEGIN}\n1.2.3.4 x\n", f"x\n{END}\n", f"{END}\n{BEGIN}\n", f"{BEGIN}\n{END}\n{BEGIN}\n{END}\n"],
)
def test_o_83_a_broken_block_is_refused(content: str) -> None:
    decision = endpoint(name=NAME, address=ADDRESS, found=Hosts(content=content, resolved=()))
    assert [problem.code for problem in decision.refused] == ["E-NAME-01"]
