"""`gpurack hosts trust` against real hosts: no key is believed that nobody vouched for."""

from __future__ import annotations

import pytest

from tests.lab.watched import Watched
from tests.lab.watched_rack import HOSTS

pytestmark = pytest.mark.lab


def code(watched: Watched, step: str) -> int:
    return int(watched.seen["codes"][f"trust-{step}"])


def test_unknown_keys_are_shown_and_left_alone(watched: Watched) -> None:
    said = watched.said("trust-unasked")
    assert code(watched, "unasked") == 3
    assert said.count("SHA256:") == len(HOSTS)
    assert "add --first-use or --list FILE" in said


def test_a_list_with_another_fingerprint_believes_nothing(watched: Watched) -> None:
    assert code(watched, "other-list") == 1
    assert "NOT in the list; nothing is believed" in watched.said("trust-other-list")
    assert "enrolled" not in watched.said("trust-other-list")


@pytest.mark.parametrize("way", ["list", "first-use"])
def test_a_list_and_an_explicit_first_use_enrol(watched: Watched, way: str) -> None:
    assert code(watched, way) == 0
    assert f"{len(HOSTS)} host keys enrolled" in watched.said(f"trust-{way}")


def test_keys_that_are_believed_stay_so_without_a_question(watched: Watched) -> None:
    said = watched.said("trust-again")
    assert code(watched, "again") == 0
    assert said.count("  trusted") == len(HOSTS)
    assert "enrolled" not in said


def test_a_reimaged_host_has_its_own_message_and_first_use_does_not_help(watched: Watched) -> None:
    said = watched.said("trust-reimaged")
    assert code(watched, "reimaged") == 1
    assert "CHANGED, trusted is SHA256:" in said
    assert f"if it was re-imaged: --replace {HOSTS[1].name}; if not, somebody is in between" in said
    assert "enrolled" not in said


def test_a_reimaged_host_is_believed_by_name(watched: Watched) -> None:
    said = watched.said("trust-replace")
    assert code(watched, "replace") == 0
    assert "replaces SHA256:" in said
    assert "1 host key enrolled" in said
