from __future__ import annotations

import subprocess
from datetime import timedelta

import pytest

from gpurack.decide.certificates import certificates, pins
from tests.unit.certs import NOW, Authority


def test_the_pin_is_the_one_that_the_kubernetes_manual_computes_with_openssl() -> None:
    pem = Authority().pem
    recipe = "openssl x509 -pubkey -noout | openssl pkey -pubin -outform der | sha256sum"
    known = subprocess.run(["sh", "-c", recipe], input=pem, text=True, capture_output=True, check=True)
    assert certificates(pem)[0].pin == "sha256:" + known.stdout.split()[0]


def test_a_ca_that_was_renewed_with_the_same_key_keeps_its_pin() -> None:
    authority = Authority()
    old, new = authority.pem, authority.pem
    assert old != new
    assert pins(old) == pins(new)


def test_every_ca_of_a_bundle_has_its_pin() -> None:
    one, two = Authority().pem, Authority().pem
    assert pins(one + two) == pins(one) | pins(two)
    assert len(pins(one + two)) == 2


@pytest.mark.parametrize("text", ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n"])
def test_text_without_a_certificate_is_an_error_and_not_an_empty_answer(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        certificates(text)


def test_days_left_count_down_through_zero() -> None:
    (held,) = certificates(Authority().node("gpu-1", until=NOW + timedelta(days=2, hours=1)))
    assert held.common_name == "system:node:gpu-1"
    assert held.organizations == ("system:nodes",)
    assert [held.days_left(NOW + timedelta(days=n)) for n in (0, 2, 3)] == [2, 0, -1]
    assert [held.expired(NOW + timedelta(days=n)) for n in (2, 3)] == [False, True]
