"""Arguments in environment files: ours once, others' untouched."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpurack.decide.kubelet.flags import arguments, assigned, with_flags
from gpurack.decide.kubelet.flags import given as values_given

OURS = {"config-dir": "/etc/kubernetes/kubelet.conf.d", "node-ip": "192.0.2.21"}
LINE = 'KUBELET_EXTRA_ARGS="--config-dir=/etc/kubernetes/kubelet.conf.d --node-ip=192.0.2.21"\n'


@pytest.mark.parametrize(
    ("text", "result"),
    [
        (None, LINE),
        ("", LINE),
        ("KUBELET_EXTRA_ARGS=\n", LINE),
        ("# a conffile\nKUBELET_EXTRA_ARGS=\n", "# a conffile\n" + LINE),
        ("OTHER=1\n", "OTHER=1\n" + LINE),
        (LINE, LINE),
        ("KUBELET_EXTRA_ARGS=--node-ip=192.0.2.9\n", LINE),
        ("KUBELET_EXTRA_ARGS='--node-ip 192.0.2.9 --config-dir /x'\n", LINE),
        ("KUBELET_EXTRA_ARGS=--config-dir=/x --config-dir=/y\n", LINE),
    ],
)
def test_our_flags_are_given_exactly_once(text: str | None, result: str) -> None:
    assert with_flags(text, OURS) == result


def test_arguments_of_others_stay_and_come_first() -> None:
    text = with_flags('KUBELET_EXTRA_ARGS="--v=2 --node-labels=a=b"\n', OURS)
    assert arguments(text)[:2] == ("--v=2", "--node-labels=a=b")


def test_a_continued_line_is_one_line() -> None:
    text = "KUBELET_EXTRA_ARGS=--v=2 \\\n  --node-labels=a=b\nOTHER=1\n"
    assert arguments(text) == ("--v=2", "--node-labels=a=b")
    assert arguments(with_flags(text, OURS))[:2] == ("--v=2", "--node-labels=a=b")
    assert with_flags(text, OURS).endswith("OTHER=1\n")


def test_the_last_assignment_is_the_one_that_counts() -> None:
    text = "KUBELET_EXTRA_ARGS=--v=1\nKUBELET_EXTRA_ARGS=--v=2\n"
    assert assigned(text, "KUBELET_EXTRA_ARGS") == "--v=2"
    assert with_flags(text, OURS).startswith("KUBELET_EXTRA_ARGS=--v=1\n")


def test_a_comment_that_names_the_variable_is_no_assignment() -> None:
    assert assigned("# KUBELET_EXTRA_ARGS=--v=9\n", "KUBELET_EXTRA_ARGS") is None


def test_quotes_that_do_not_match_are_an_error() -> None:
    with pytest.raises(ValueError, match="quotation"):
        with_flags("KUBELET_EXTRA_ARGS=--v='2\n", OURS)


def test_quoted_pieces_side_by_side_are_not_guessed_at() -> None:
    with pytest.raises(ValueError, match="read differently"):
        arguments("KUBELET_EXTRA_ARGS='--v=2' '--node-labels=a=b'\n")


words = st.text(st.characters(codec="ascii", categories=("L", "N"), include_characters="=,./- "), min_size=1)


@given(st.lists(words.map(lambda word: "--x" + word), max_size=4))
def test_merging_is_idempotent_and_loses_no_argument(others: list[str]) -> None:
    text = 'KUBELET_EXTRA_ARGS="' + " ".join(shlex.quote(word) for word in others) + '"\n'
    once = with_flags(text, OURS)
    assert with_flags(once, OURS) == once
    assert list(arguments(once))[: len(others)] == others
    assert values_given(arguments(once), "node-ip") == ("192.0.2.21",)
