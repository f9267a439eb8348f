from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpurack.decide.version import Version, from_server, parse, skew


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("v1.33.0", (1, 33, 0)),
        ("v1.30.12", (1, 30, 12)),
        ("v1.34.1-eks-113cf36", (1, 34, 1)),
        ("v1.31.0+k3s1", (1, 31, 0)),
        ("v1.36.0-alpha.0.307+481b2dc7cf50d8-dirty", (1, 36, 0)),
        ("1.31.6-1.1", (1, 31, 6)),
        ("Kubernetes v1.34.4", (1, 34, 4)),
        ("1.25+", (1, 25, 0)),
    ],
)
def test_o_36_every_spelling_of_a_version_has_its_three_numbers(
    text: str, numbers: tuple[int, int, int]
) -> None:
    found = parse(text)
    assert (found.major, found.minor, found.patch) == numbers


def test_o_36_a_server_that_says_25_plus_is_read() -> None:
    assert from_server({"major": "1", "minor": "25+"}) == Version(1, 25)
    assert from_server({"major": "1", "minor": "34", "gitVersion": "v1.34.4"}) == Version(1, 34, 4)


@pytest.mark.parametrize("text", ["", "latest", "1", "v1.x", "1.34.4 and more"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no Kubernetes version"):
        parse(text)


def test_a_pre_release_comes_before_its_release_and_1_9_before_1_10() -> None:
    ordered = [
        "1.9.0",
        "1.10.0",
        "1.36.0-alpha.0.307",
        "1.36.0-alpha.1",
        "1.36.0-beta.0",
        "1.36.0-rc.1",
        "1.36.0",
    ]
    assert sorted(map(parse, reversed(ordered))) == [parse(text) for text in ordered]


@given(st.tuples(*[st.integers(0, 999)] * 3), st.tuples(*[st.integers(0, 999)] * 3))
def test_versions_order_as_their_numbers(one: tuple[int, ...], other: tuple[int, ...]) -> None:
    def written(numbers: tuple[int, ...]) -> Version:
        return parse("v" + ".".join(map(str, numbers)))

    assert (written(one) < written(other)) == (one < other)


@pytest.mark.parametrize(
    ("kubelet", "server", "refused"),
    [
        ("v1.33.0", "v1.30.12", True),  # as in O-36
        ("1.34.9", "1.34.0", False),  # the patch level may be newer
        ("1.35.0", "1.34.4", True),
        ("1.31.0", "1.34.4", False),
        ("1.30.0", "1.34.4", True),
    ],
)
def test_o_36_a_kubelet_that_does_not_fit_the_api_server_is_refused(
    kubelet: str, server: str, refused: bool
) -> None:
    problem = skew(server=parse(server), kubelet=parse(kubelet))
    assert (problem is not None) == refused
    if problem:
        assert str(parse(kubelet)) in str(problem)
        assert str(parse(server)) in str(problem)
