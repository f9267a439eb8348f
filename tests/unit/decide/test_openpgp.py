"""Keys are read as gpg reads them; `data/keys` was made by gpg 2.2 for these tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpurack.decide.openpgp import read_keys

KEYS = Path(__file__).parent / "data" / "keys"


@pytest.mark.parametrize(
    ("name", "fingerprint", "created", "expires"),
    [
        ("good", "CE56463C62A276C79CE410B9E0E06CC79D00C837", 1767225600, None),
        ("old", "44905DD2F0357BE94DD10EC33393D3AA20499ABA", 1704067200, 1735689600),
        ("other", "383B5D905A9A48691B2D707CC865695F017974D6", 1767225600, 1830297600),
    ],
)
def test_a_key_says_what_gpg_says_about_it(
    name: str, fingerprint: str, created: int, expires: int | None
) -> None:
    (key,) = read_keys((KEYS / f"{name}.asc").read_text())
    assert (key.fingerprint, key.created, key.expires, key.revoked) == (fingerprint, created, expires, False)


def test_every_key_of_a_file_is_seen() -> None:
    text = (KEYS / "good.asc").read_text() + (KEYS / "old.asc").read_text()
    assert [key.id for key in read_keys(text)] == ["E0E06CC79D00C837", "3393D3AA20499ABA"]


@pytest.mark.parametrize("text", ["", "hello", "-----BEGIN PGP PRIVATE KEY BLOCK-----\n"])
def test_what_is_no_public_key_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="PUBLIC KEY"):
        read_keys(text)


@given(st.data())
def test_a_damaged_key_never_reads_as_another_error(data: st.DataObject) -> None:
    lines = (KEYS / "good.asc").read_text().splitlines()
    number = data.draw(st.integers(2, len(lines) - 3))
    lines[number] = lines[number][: data.draw(st.integers(0, len(lines[number])))]
    try:
        read_keys("\n".join(lines) + "\n")
    except ValueError:
        return
