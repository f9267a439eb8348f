"""What apt said names the cause. The files under data/apt are apt 2.6's own words, hosts replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpurack.decide.apt_messages import Log, hear, keyring_for, read_log

DATA = Path(__file__).parent / "data" / "apt"


def said(name: str) -> Log:
    return read_log((DATA / f"{name}.txt").read_text())


def heard(text: str, result: int | None = 100) -> list[str]:
    return [problem.code for problem in hear(Log(lines=tuple(text.splitlines()), result=result)).problems]


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("good", []),
        ("expired", ["E-APT-11"]),
        ("nokey", ["E-APT-12"]),
        ("conflict_two", ["E-APT-14"]),
        ("conflict_none_second", ["E-APT-14"]),
        ("proxy", ["E-APT-17"]),
        ("forbidden", ["E-APT-18"]),
        ("gone", ["E-APT-19"]),
        ("lists_lock", ["E-APT-30"]),
        ("dns", ["E-APT-22"]),
        ("refused", ["E-APT-22"]),
        ("malformed", ["E-APT-25"]),
        ("unsigned", ["E-APT-27"]),
    ],
)
def test_each_failure_of_an_update_has_one_cause(name: str, codes: list[str]) -> None:
    assert [problem.code for problem in hear(said(name)).problems] == codes


@pytest.mark.parametrize("name", ["dns", "refused"])
def test_o_21_warnings_count_although_apt_ends_well(name: str) -> None:
    log = said(name)
    assert log.result == 0
    assert hear(log).problems


O_21 = """\
Err:6 https://repo.example.test/stable/v1.27/deb  InRelease
  The following signatures were invalid: EXPKEYSIG 234654DA9A296436 obs-project <obs@example.test>
E: The repository 'https://repo.example.test/stable/v1.27/deb  InRelease' is not signed.
"""


def test_o_21_an_expired_key_is_named_with_its_file() -> None:
    keyrings = [("https://repo.example.test/stable/v1.27/deb/", "/etc/apt/keyrings/gpurack-kubernetes.asc")]
    (problem,) = hear(Log(lines=tuple(O_21.splitlines()), result=100), keyrings).problems
    assert problem.what == (
        "signing key expired: 234654DA9A296436, file /etc/apt/keyrings/gpurack-kubernetes.asc"
    )


def test_o_21_two_broken_repositories_are_two_problems() -> None:
    text = said("expired").lines + said("gone").lines
    assert sorted(p.code for p in hear(Log(lines=text, result=100)).problems) == ["E-APT-11", "E-APT-19"]


O_22 = """\
E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 24459 (unattended-upgr)
E: Unable to acquire the dpkg frontend lock (/var/lib/dpkg/lock-frontend), is another process using it?
dpkg: error: dpkg frontend is locked by another process
"""


def test_o_22_the_holder_of_the_lock_is_named() -> None:
    (problem,) = hear(Log(lines=tuple(O_22.splitlines()), result=100)).problems
    assert problem.what == "/var/lib/dpkg/lock-frontend is held by process 24459 (unattended-upgr)"
    assert "never remove the lock" in str(problem.next)


def test_o_22_the_spelling_of_hold_and_unhold_is_a_lock_too() -> None:
    assert heard("dpkg: error: dpkg frontend is locked by another process") == ["E-APT-21"]


def test_o_22_dpkgs_newer_spelling_names_the_process() -> None:
    line = "dpkg: error: dpkg frontend lock was locked by another process with pid 18"  # dpkg 1.21, Debian 12
    (problem,) = hear(Log(lines=(line,), result=100)).problems
    assert problem.what == "frontend lock of dpkg is held by process 18"
    assert "ps -fp 18" in str(problem.next)


def test_o_22_exit_100_alone_is_no_lock() -> None:
    assert heard("E: Unable to correct problems, you have held broken packages.") == ["E-APT-29"]


O_25 = (
    "E: Conflicting values set for option Signed-By regarding source "
    "https://repo.example.test/toolkit/stable/amd64/ /: /usr/share/keyrings/toolkit.gpg !="
)


def test_o_25_the_error_of_two_keyrings_is_recognised() -> None:
    assert heard(O_25) == ["E-APT-14"]


O_27 = """\
Configuration file '/etc/containerd/config.toml'
 ==> File on system created by you or by a script.
 ==> File also in package provided by package maintainer.
*** config.toml (Y/I/N/O/D/Z) [default=N] ? dpkg: error processing package containerd.io (--configure):
 end of file on stdin at conffile prompt
"""


def test_o_27_a_question_about_a_changed_file_is_recognised() -> None:
    (problem, second) = hear(Log(lines=tuple(O_27.splitlines()), result=100)).problems
    assert (problem.code, second.code) == ("E-PKG-11", "E-PKG-12")
    assert "containerd.io" in problem.what


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (
            "E: Release file for http://repo.example.test/InRelease is not valid yet (invalid for 3h).",
            "E-APT-15",
        ),
        (
            "E: Release file for http://repo.example.test/x/InRelease is expired (invalid since 3d 4h).",
            "E-APT-16",
        ),
        ("E: Failed to fetch http://repo.example.test/x/Packages  Hash Sum mismatch", "E-APT-23"),
        ("E: You don't have enough free space in /var/cache/apt/archives/.", "E-APT-24"),
        ("E: Write error - write (28: No space left on device)", "E-APT-24"),
        (
            "E: Failed to fetch https://repo.example.test/InRelease  Certificate verification failed: no.",
            "E-APT-20",
        ),
        (
            "E: Repository 'http://repo.example.test/x InRelease' changed its 'Suite' value from 'a' to 'b'",
            "E-APT-26",
        ),
        ("E: The package frobnicator needs to be reinstalled", "E-APT-29"),
        ("E: Version '9.9' for 'kubelet' was not found", "E-PKG-13"),
        ("E: Unable to locate package kubelet", "E-PKG-13"),
    ],
)
def test_a_line_names_its_cause(line: str, code: str) -> None:
    assert heard(line) == [code]


def test_a_harmless_warning_is_a_note() -> None:
    found = hear(
        Log(lines=("W: http://repo.example.test/InRelease: Key is stored in legacy trusted.gpg",), result=0)
    )
    assert not found.problems
    assert found.notes == (
        "apt warns: http://repo.example.test/InRelease: Key is stored in legacy trusted.gpg",
    )


def test_progress_that_mentions_an_address_is_no_failure() -> None:
    assert heard("Get:1 http://repo.example.test/404 InRelease [1422 B]", result=0) == []


def test_a_failing_status_without_a_word_is_still_a_failure() -> None:
    assert heard("", result=100) == ["E-APT-29"]


def test_a_log_without_its_last_line_is_a_cut_run() -> None:
    log = read_log("Setting up kubelet\n")
    assert log.result is None
    assert [p.code for p in hear(log).problems] == ["E-APT-28"]


def test_passwords_inside_addresses_are_not_repeated() -> None:
    found = hear(Log(lines=("E: Failed to fetch http://me:secret@repo.example.test/x  404",), result=100))
    assert "secret" not in str(found.problems[0])


def test_the_longest_source_names_the_keyring() -> None:
    keyrings = [("http://a.example/x", "short"), ("http://a.example/x/y", "long")]
    assert keyring_for("http://a.example/x/y/InRelease", keyrings) == "long"
    assert keyring_for("http://b.example/x", keyrings) is None
