"""Secrets do not leave, in whatever clothes."""

from __future__ import annotations

import base64
import io
import json
import shlex
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpurack.engine import redaction
from gpurack.engine.redaction import MASK, conceal, mask, mask_bytes


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_forms", {})
    monkeypatch.setattr(redaction, "_ordered", ((), ()))


SECRET = 'it\'s "$ecret" \\ pässword'


@pytest.mark.parametrize(
    "shown",
    [
        SECRET,
        json.dumps({"password": SECRET}),
        json.dumps({"password": SECRET}, ensure_ascii=False),
        shlex.quote(SECRET),
        repr({"password": SECRET}),
        f"https://{quote(SECRET, safe='')}@example.com",
        base64.b64encode(SECRET.encode()).decode(),
        *(base64.b64encode(f"{user}:{SECRET}".encode()).decode() for user in ("a", "ab", "abc", "robot$x")),
    ],
)
def test_every_form_is_masked(shown: str) -> None:
    conceal(SECRET)
    assert MASK in mask(shown)
    for form in ("ecret", "pässword", "p\\u00e4ssword", base64.b64encode(SECRET.encode()).decode()[4:20]):
        assert form not in mask(shown)
    assert mask_bytes(shown.encode()) == mask(shown).encode()


@given(
    st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\n\r"), min_size=6, max_size=40),
    st.text(),
)
def test_whatever_is_concealed_is_not_in_what_is_masked(secret: str, around: str) -> None:
    conceal(secret)
    assert secret.strip() == "" or secret not in mask(f"{around}{secret}{around}").replace(MASK, "\0")


def test_each_long_line_of_a_key_is_masked_and_short_ones_are_left() -> None:
    conceal("-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nab\n-----END KEY-----\n")
    assert mask("see MIIEvQIBADANBgkq here") == f"see {MASK} here"
    assert mask("ab is a word") == "ab is a word"


def test_what_is_too_short_to_hide_is_left() -> None:
    conceal("abc")
    assert mask("abc abc") == "abc abc"


def test_the_longer_secret_wins_over_its_part() -> None:
    conceal("token")
    conceal("token-and-more")
    assert mask("token-and-more token") == f"{MASK} {MASK}"


def test_text_and_bytes_written_past_the_text_layer_are_masked() -> None:
    conceal("s3cret-value")
    below = io.BytesIO()
    plain = io.TextIOWrapper(below, encoding="utf-8")
    stream = redaction._masking(plain)
    stream.write("a s3cret-value\n")
    stream.buffer.write(b"b s3cret-value\n")
    stream.flush()
    assert below.getvalue() == f"a {MASK}\nb {MASK}\n".encode()
    assert redaction._masking(stream) is stream
