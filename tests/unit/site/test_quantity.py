from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpurack.site.quantity import format_bytes, parse_bytes, parse_cpu_list


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("1024", 1024),
        ("8Gi", 8 * 2**30),
        ("1.5Gi", 3 * 2**29),
        ("100M", 10**8),
        ("0.5k", 500),
        ("1Ei", 2**60),
    ],
)
def test_a_quantity_is_exact_bytes(text: str, value: int) -> None:
    assert parse_bytes(text) == value


@pytest.mark.parametrize(
    "text", ["", "-1", "8 Gi", "8gi", "8Gb", "8GiB", "1e3", "10%", "100m", "0.3", "0.1Ki", "٣Gi", "8Gi\n"]
)
def test_what_is_no_whole_number_of_bytes_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"quantity|whole number"):
        parse_bytes(text)


@given(st.integers(0, 2**63))
def test_formatting_and_parsing_are_inverse(value: int) -> None:
    assert parse_bytes(format_bytes(value)) == value


@given(st.integers(0, 10**6), st.integers(0, 999), st.sampled_from(["Ki", "Mi", "Gi", "k", "M", "G"]))
def test_a_decimal_fraction_is_never_rounded(whole: int, thousandths: int, suffix: str) -> None:
    unit = parse_bytes(f"1{suffix}")
    exact = (whole + Fraction(thousandths, 1000)) * unit
    text = f"{whole}.{thousandths:03}{suffix}"
    if exact.denominator == 1:
        assert parse_bytes(text) == exact
    else:
        with pytest.raises(ValueError, match="whole number"):
            parse_bytes(text)


@given(st.sets(st.integers(0, 4096), min_size=1, max_size=60))
def test_a_cpu_list_reads_back_as_its_cpus(cpus: set[int]) -> None:
    assert parse_cpu_list(",".join(map(str, sorted(cpus)))) == tuple(sorted(cpus))


@given(st.integers(0, 500), st.integers(0, 500))
def test_a_cpu_range_includes_both_ends(first: int, more: int) -> None:
    assert parse_cpu_list(f"{first}-{first + more}") == tuple(range(first, first + more + 1))


@pytest.mark.parametrize("text", ["", "0,", "3-1", "0-3,2", "0 1", "a", "-1", "0-"])
def test_a_bad_cpu_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"CPU|backwards|twice"):
        parse_cpu_list(text)
