from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from gpurack.site.ranges import MOST_HOSTS, spread, unfold

PLAIN = st.text(st.characters(exclude_characters="[]", codec="utf-8"), max_size=12)


@given(PLAIN)
def test_text_without_brackets_stands_for_itself(text: str) -> None:
    assert unfold(text) == (text,)


@given(PLAIN, PLAIN, st.integers(0, 300), st.integers(0, 300))
def test_a_range_counts_from_first_to_last(before: str, after: str, first: int, more: int) -> None:
    values = unfold(f"{before}[{first}:{first + more}]{after}")
    assert values == tuple(f"{before}{number}{after}" for number in range(first, first + more + 1))


@given(st.integers(0, 99), st.integers(0, 99))
def test_zero_padding_is_kept(first: int, more: int) -> None:
    last = first + more
    values = unfold(f"n[{first:04}:{last:04}]")
    assert all(len(value) == 5 for value in values)
    assert [int(value[1:]) for value in values] == list(range(first, last + 1))


def test_without_a_leading_zero_the_width_grows() -> None:
    assert unfold("n[9:11]") == ("n9", "n10", "n11")


def test_numbers_are_decimal_in_an_ipv6_address_too() -> None:
    assert unfold("2001:db8::[9:11]") == ("2001:db8::9", "2001:db8::10", "2001:db8::11")


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("n[]", "E-SITE-10", "empty"),
        ("n[:]", "E-SITE-10", "empty"),
        ("n[1]", "E-SITE-10", "FIRST:LAST"),
        ("n[1:2:3]", "E-SITE-10", "FIRST:LAST"),
        ("n[a:b]", "E-SITE-10", "FIRST:LAST"),
        ("n[-1:2]", "E-SITE-10", "FIRST:LAST"),
        ("n[1:2", "E-SITE-10", "partner"),
        ("n1:2]", "E-SITE-10", "partner"),
        ("n[[1:2]]", "E-SITE-10", "partner"),
        ("n[1:2]-[1:2]", "E-SITE-10", "more than one"),
        ("n[01:8]", "E-SITE-10", "widths"),
        ("n[01:100]", "E-SITE-10", "widths"),
        ("n[2:1]", "E-SITE-11", "backwards"),
        (f"n[0:{MOST_HOSTS}]", "E-SITE-10", "members"),
    ],
)
def test_a_bad_range_is_refused(text: str, code: str, says: str) -> None:
    with pytest.raises(PydanticCustomError, match=says) as caught:
        unfold(text)
    assert caught.value.type == code


def test_the_largest_range_is_taken() -> None:
    assert len(unfold(f"n[1:{MOST_HOSTS}]")) == MOST_HOSTS


def test_a_range_of_another_length_is_refused() -> None:
    assert spread("10.0.0.[1:2]", 2, "n[1:2]", "address") == ("10.0.0.1", "10.0.0.2")
    with pytest.raises(PydanticCustomError, match=r"2 hosts, but address '10\.0\.0\.1' is 1"):
        spread("10.0.0.1", 2, "n[1:2]", "address")
