"""`--diff` shows what changes, and no value that is somebody's secret."""

from __future__ import annotations

import pytest

from gpurack.engine.diff import differences


def test_a_new_file_is_shown_whole() -> None:
    assert differences(None, "a = 1\n", "/etc/x")[3:] == ["+a = 1"]


@pytest.mark.parametrize(
    "line",
    [
        'password = "hunter2"',
        '  "Authorization" = "Basic aHVudGVyMg=="',
        "auth: hunter2",
        "identitytoken = 'hunter2'",
        "client_secret=hunter2",
        "token: abcdef.hunter2",
    ],
)
def test_values_of_keys_named_like_secrets_are_masked_on_both_sides(line: str) -> None:
    for old, new in ((line, ""), ("", line), (f"{line}\na", f"{line}\nb")):
        text = "\n".join(differences(old, new, "/etc/x"))
        assert "hunter2" not in text
        assert "aHVudGVyMg" not in text
        assert "********" in text


@pytest.mark.parametrize(
    "line", ["authentication:", "authorization:", "tokens_per_second: 3", 'config_path = "/etc/a"', "auth = "]
)
def test_other_lines_are_shown_as_they_are(line: str) -> None:
    assert f"+{line}" in differences(None, line, "/etc/x")
