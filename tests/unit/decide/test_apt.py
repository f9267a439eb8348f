"""Sources of ours, none of others; a pair that breaks apt is found before anything is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpurack.decide.apt import (
    CA_FILE,
    OURS,
    PROXY_FILE,
    PROXY_SECRET,
    Apt,
    Entry,
    Source,
    Way,
    bypasses,
    check_key,
    repository,
    sources,
)
from gpurack.decide.decision import Decision, Remove, Write
from gpurack.decide.files import FileState
from gpurack.decide.openpgp import read_keys
from gpurack.facts.apt import entries

KEYS = Path(__file__).parent / "data" / "keys"
GOOD = (KEYS / "good.asc").read_text()
GOOD_ID = "CE56463C62A276C79CE410B9E0E06CC79D00C837"
NOW = 1_796_000_000.0  # 2026-11-30
KUBERNETES = Source(
    name="kubernetes",
    uri="https://repo.example.test/core:/stable:/v1.34/deb/",
    suite="/",
    components=(),
    key=GOOD,
    fingerprint=GOOD_ID,
)
CONTAINERD = replace(
    KUBERNETES,
    name="containerd",
    uri="https://repo.example.test/linux/ubuntu",
    suite="noble",
    components=("stable",),
)
WANTED = (KUBERNETES, CONTAINERD)


def found(*lines: str, path: str = "/etc/apt/sources.list.d/other.list", **more: object) -> Apt:
    return Apt(architecture="amd64", entries=tuple(entries(path, list(lines))), files={}, **more)  # type: ignore[arg-type]


def decide(
    state: Apt, way: Way | None = None, wanted: tuple[Source, ...] = WANTED, now: float = NOW
) -> Decision:
    return sources(wanted, way or Way(), now, state)


def written(decision: Decision) -> dict[str, Write]:
    return {step.path: step for step in decision.steps if isinstance(step, Write)}


def after(decision: Decision) -> dict[str, FileState]:
    import hashlib

    return {
        path: FileState(sha256=hashlib.sha256(w.content.encode()).hexdigest(), mode=w.mode, owner=w.owner)
        for path, w in written(decision).items()
    }


def test_a_source_is_deb822_with_its_own_keyring() -> None:
    text = written(decide(found()))["/etc/apt/sources.list.d/gpurack-containerd.sources"].content
    assert text.splitlines()[1:] == [
        "Types: deb",
        "URIs: https://repo.example.test/linux/ubuntu",
        "Suites: noble",
        "Components: stable",
        "Architectures: amd64",
        "Signed-By: /etc/apt/keyrings/gpurack-containerd.asc",
    ]


def test_a_flat_source_has_no_components() -> None:
    text = written(decide(found()))["/etc/apt/sources.list.d/gpurack-kubernetes.sources"].content
    assert "Suites: /\n" in text
    assert "Components" not in text


def test_keys_come_before_the_sources_that_name_them() -> None:
    paths = list(written(decide(found(), Way(proxy="http://proxy.example.test:3128"))))
    assert paths.index("/etc/apt/keyrings/gpurack-containerd.asc") < paths.index(
        "/etc/apt/sources.list.d/gpurack-kubernetes.sources"
    )
    assert paths.index(PROXY_FILE) < paths.index("/etc/apt/sources.list.d/gpurack-kubernetes.sources")


def test_the_second_run_writes_nothing() -> None:
    way = Way(proxy="http://me:secret@proxy.example.test:3128", ca="-----BEGIN CERTIFICATE-----\n")
    state = replace(found(), files=after(decide(found(), way)))
    assert decide(state, way).steps == ()


def test_a_file_with_another_mode_or_owner_is_put_back() -> None:
    state = found()
    files = after(decide(state))
    path = "/etc/apt/keyrings/gpurack-kubernetes.asc"
    files[path] = replace(files[path], mode=0o600)  # apt reads keys as _apt
    assert list(written(decide(replace(state, files=files)))) == [path]


def test_every_file_that_is_written_is_one_that_the_fact_looks_at() -> None:
    way = Way(proxy="http://me:secret@proxy.example.test:3128", ca="x\n")
    assert set(written(decide(found(), way))) == set(OURS)


# O-25, verbatim
O_25 = (
    *entries("/etc/apt/sources.list.d/old.list", ["deb https://repo.example.test/toolkit/stable/amd64 /"]),
    *entries(
        "/etc/apt/sources.list.d/new.list",
        ["deb [signed-by=/usr/share/keyrings/toolkit.gpg] https://repo.example.test/toolkit/stable/amd64 /"],
    ),
)


def test_o_25_a_pair_with_different_keyrings_is_refused_with_both_files() -> None:
    (problem,) = decide(replace(found(), entries=O_25)).refused
    assert problem.code == "E-APT-01"
    assert "old.list:1" in str(problem.found)
    assert "new.list:1" in str(problem.found)


def test_o_25_the_pair_that_we_would_make_is_refused_before_it_is_made() -> None:
    other = "deb https://repo.example.test/core:/stable:/v1.34/deb /"
    (problem,) = decide(found(other)).refused
    assert "gpurack-kubernetes.sources" in str(problem.found)


def test_o_25_twin_another_minors_repository_is_no_conflict() -> None:
    assert not decide(found("deb https://repo.example.test/core:/stable:/v1.33/deb /")).refused


def test_o_25_our_own_files_are_no_conflict() -> None:
    own = found(
        f"deb [signed-by={KUBERNETES.keyring}] {KUBERNETES.uri} /", path=KUBERNETES.file.replace("x", "x")
    )
    assert not decide(
        replace(own, entries=tuple(replace(e, file=KUBERNETES.file) for e in own.entries))
    ).refused


# O-28, verbatim
O_28 = [
    "deb [signed-by=/etc/apt/keyrings/toolkit.gpg] https://repo.example.test/toolkit/stable/$(ARCH) /",
    "#deb [signed-by=/etc/apt/keyrings/toolkit.gpg] https://repo.example.test/toolkit/experimental/$(ARCH) /",
]


def test_o_28_a_flat_line_is_seen_with_its_variable_and_its_commented_twin_is_not() -> None:
    (entry,) = entries("/etc/apt/sources.list.d/toolkit.list", O_28)
    assert entry == Entry(
        file="/etc/apt/sources.list.d/toolkit.list",
        line=1,
        type="deb",
        uri="https://repo.example.test/toolkit/stable/$(ARCH)",
        suite="/",
        components=(),
        signed_by="/etc/apt/keyrings/toolkit.gpg",
    )


@pytest.mark.parametrize(
    ("uri", "suite"),
    [
        ("https://repo.example.test/toolkit/stable/$(ARCH)", "/"),
        ("https://repo.example.test/toolkit/stable/amd64/", "./"),
        ("HTTPS://Repo.Example.Test/toolkit/stable", "amd64/"),
        ("https://me:secret@repo.example.test/toolkit//stable/amd64", "/"),
    ],
)
def test_o_28_spellings_of_one_flat_repository_are_one(uri: str, suite: str) -> None:
    assert repository(uri, suite, "amd64") == ("https://repo.example.test/toolkit/stable/amd64", "/")


def test_a_key_with_another_fingerprint_is_refused() -> None:
    other = replace(KUBERNETES, fingerprint="F" * 40)
    (problem,) = decide(found(), wanted=(other,)).refused
    assert (problem.code, GOOD_ID in str(problem.found)) == ("E-APT-03", True)


def test_a_file_with_a_second_key_is_refused() -> None:
    two = replace(KUBERNETES, key=GOOD + (KEYS / "other.asc").read_text())
    assert [problem.code for problem in decide(found(), wanted=(two,)).refused] == ["E-APT-03"]


def test_o_21_an_expired_key_is_refused_before_apt_meets_it() -> None:
    text = (KEYS / "old.asc").read_text()
    old = replace(KUBERNETES, key=text, fingerprint=read_keys(text)[0].fingerprint)
    (problem,) = decide(found(), wanted=(old,)).refused
    assert problem.what == "signing key expired: 3393D3AA20499ABA"
    assert not decide(found(), wanted=(old,), now=1_735_000_000.0).refused


def test_o_21_a_key_that_ends_soon_is_said() -> None:
    text = (KEYS / "other.asc").read_text()
    problems, notes = check_key(text, read_keys(text)[0].fingerprint, 1_830_297_600 - 86400.0, "the key")
    assert not problems
    assert "ends on 2028-01-01" in notes[0]


def test_the_proxys_password_is_only_in_the_secret_file() -> None:
    writes = written(decide(found(), Way(proxy="http://me:p%40ss@proxy.example.test:3128")))
    assert "p@ss" in writes[PROXY_SECRET].content
    assert (writes[PROXY_SECRET].mode, writes[PROXY_SECRET].secret) == (0o600, True)
    assert 'Acquire::https::Proxy "http://proxy.example.test:3128";' in writes[PROXY_FILE].content
    assert not any(
        "p@ss" in w.content or "p%40ss" in w.content for p, w in writes.items() if p != PROXY_SECRET
    )


def test_a_proxy_without_password_has_no_secret_file() -> None:
    assert PROXY_SECRET not in written(decide(found(), Way(proxy="http://proxy.example.test:3128")))


def test_a_proxy_that_left_the_document_leaves_the_host() -> None:
    way = Way(proxy="http://me:secret@proxy.example.test:3128")
    state = replace(found(), files=after(decide(found(), way)))
    assert decide(state).steps == (Remove(path=PROXY_FILE), Remove(path=PROXY_SECRET))


def test_a_ca_is_trusted_for_our_sources_only() -> None:
    writes = written(decide(found(), Way(ca="-----BEGIN CERTIFICATE-----\n")))
    assert f'Acquire::https::repo.example.test::CAInfo "{CA_FILE}";' in writes[PROXY_FILE].content


@pytest.mark.parametrize(
    ("host", "direct"),
    [
        ("mirror.site.example", True),
        ("a.b.site.example", True),
        ("othersite.example", False),
        ("10.77.0.2", True),
        ("10.78.0.2", False),
    ],
)
def test_no_proxy_knows_domains_and_networks(host: str, direct: bool) -> None:
    assert bypasses(host, (".site.example", "10.77.0.0/24")) is direct
