from __future__ import annotations

from dataclasses import replace

import pytest

from gpurack.decide.cluster import Identity, Record, judge, recorded

PIN, OTHER = "sha256:" + "2" * 64, "sha256:" + "1" * 64
FOUND = Identity(
    name="prod",
    server="https://api.example.test:6443",
    published=frozenset({PIN}),
    trusted=frozenset({PIN}),
    uid="8f6e",
    version="v1.34.4",
)
RECORD = Record(uid="8f6e", pins=(PIN,))


def codes(
    found: Identity, record: Record | None = RECORD, wanted: str = "api.example.test:6443"
) -> list[str]:
    return [problem.code for problem in judge(name="prod", wanted=wanted, found=found, record=record)]


@pytest.mark.parametrize("record", [RECORD, None])
def test_the_sites_own_cluster_is_let_in(record: Record | None) -> None:
    assert codes(FOUND, record) == []


@pytest.mark.parametrize("name", ["", "kubernetes"])
def test_a_cluster_whose_builder_gave_it_no_name_is_let_in(name: str) -> None:
    assert codes(replace(FOUND, name=name)) == []


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (replace(FOUND, name="stage"), "E-CLUSTER-10"),
        (replace(FOUND, server=""), "E-CLUSTER-11"),
        (replace(FOUND, server="https://old-api.example.test:6443"), "E-CLUSTER-12"),
        (replace(FOUND, published=frozenset({OTHER})), "E-CLUSTER-13"),
        (replace(FOUND, uid="0000"), "E-CLUSTER-14"),
        (replace(FOUND, published=frozenset({OTHER}), trusted=frozenset({OTHER})), "E-CLUSTER-15"),
    ],
)
def test_each_sign_of_another_cluster_is_refused_under_its_own_code(found: Identity, code: str) -> None:
    assert codes(found) == [code]


def test_all_signs_are_told_at_once() -> None:
    found = replace(FOUND, name="stage", server="https://b:6443", uid="0000")
    assert codes(found) == ["E-CLUSTER-10", "E-CLUSTER-12", "E-CLUSTER-14"]


def test_o_30_during_a_rotation_any_ca_that_both_sides_know_is_a_pin() -> None:
    rotating = replace(FOUND, published=frozenset({PIN, OTHER}), trusted=frozenset({PIN, OTHER}))
    assert codes(rotating) == []
    assert rotating.pins == (OTHER, PIN)
    assert replace(FOUND, published=frozenset({PIN, OTHER})).pins == (PIN,)


def test_o_30_without_a_match_both_sides_are_shown_and_verification_is_not_skipped() -> None:
    (problem,) = judge(
        name="prod",
        wanted="api.example.test:6443",
        found=replace(FOUND, published=frozenset({OTHER})),
        record=RECORD,
    )
    assert OTHER in str(problem.found)
    assert PIN in str(problem.wanted)
    assert "never skipped" in str(problem.next)


def test_o_32_an_ipv6_endpoint_is_the_same_in_both_spellings() -> None:
    found = replace(FOUND, server="https://[2001:db8::19e]:6443")
    assert codes(found, wanted="[2001:DB8:0::19e]:6443") == []


def test_the_record_survives_its_file() -> None:
    assert recorded(RECORD.written()) == RECORD
    for text in ("", "{}", "[]", "null"):
        with pytest.raises((ValueError, KeyError, TypeError)):
            recorded(text)
