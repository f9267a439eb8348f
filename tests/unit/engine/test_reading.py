"""Many facts in one command: each answer is its own, whatever the others do. Run by a real shell."""

from __future__ import annotations

import subprocess

from hypothesis import given, settings
from hypothesis import strategies as st

from gpurack.engine.reading import batch_script, split_batch

MARK = "gpurack-0123456789abcdef"


def answers(scripts: list[str]) -> dict[int, tuple[int, str, str]]:
    text = subprocess.run(
        ["sh", "-c", batch_script(scripts, MARK)], capture_output=True, text=True, check=True
    ).stdout
    return {index: (one.code, one.out, one.err) for index, one in split_batch(text, MARK).items()}


def test_exit_codes_output_and_errors_stay_apart() -> None:
    found = answers(["echo one; echo two", "echo bad >&2; exit 7", "printf no-end", "true", "cat"])
    assert found == {
        0: (0, "one\ntwo", ""),
        1: (7, "", "bad"),
        2: (0, "no-end", ""),
        3: (0, "", ""),
        4: (0, "", ""),
    }


def test_one_that_breaks_does_not_touch_the_others() -> None:
    found = answers(["if then", "set -eu; echo $nothing", "x=1; exit 3", "echo ${x-unset}"])
    assert found[0][0] != 0
    assert found[1][0] != 0
    assert found[3] == (0, "unset", "")


def test_blank_lines_at_the_end_are_kept_as_they_were() -> None:
    assert answers([r"printf 'a\n\n'"])[0] == (0, "a\n", "")


def test_an_answer_that_was_cut_off_does_not_count() -> None:
    text = f"one\n{MARK} 0 0\n\n{MARK} end\nhalf of the second"
    assert list(split_batch(text, MARK)) == [0]


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.text(alphabet=st.characters(codec="ascii", exclude_characters="\0\r"), max_size=30), max_size=4
    )
)
def test_what_is_printed_comes_back(texts: list[str]) -> None:
    quoted = ["printf %s '" + text.replace("'", "'\\''") + "'" for text in texts]
    found = answers(quoted)
    assert [found[index][1].rstrip("\n") for index in range(len(texts))] == [
        text.rstrip("\n") for text in texts
    ]
