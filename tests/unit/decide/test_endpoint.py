from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpurack.decide.endpoint import parse, same


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("api.example.test:6443", "api.example.test:6443"),
        ("API.Example.test", "api.example.test:6443"),
        ("https://api.example.test:6443", "api.example.test:6443"),
        ("https://api.example.test", "api.example.test:443"),
        ("192.0.2.1:8443", "192.0.2.1:8443"),
        ("[2001:db8::19e]:6443", "[2001:db8::19e]:6443"),
        ("2001:DB8:0::19e", "[2001:db8::19e]:6443"),
        ("https://[2001:db8::19e]:6443", "[2001:db8::19e]:6443"),
    ],
)
def test_an_endpoint_is_written_in_one_way(text: str, written: str) -> None:
    assert str(parse(text)) == written


@pytest.mark.parametrize(
    "text", ["", "http://api:6443", "api:6443/path", "api:port", "2001:db8::zz", "u@api:1"]
)
def test_what_is_no_endpoint_is_refused_and_equals_nothing(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse(text)
    assert not same(text, text)


@given(st.ip_addresses(), st.integers(1, 65535))
def test_every_address_survives_a_round_trip_with_one_pair_of_brackets(address: object, port: int) -> None:
    place = parse(f"[{address}]:{port}" if ":" in str(address) else f"{address}:{port}")
    assert parse(str(place)) == place
    assert parse(place.url) == place
    assert str(place).count("[") == (1 if ":" in str(address) else 0)
