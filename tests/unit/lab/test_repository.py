"""Repositories in both layouts, judged by gpg and by apt's own rules for where things lie."""

from __future__ import annotations

import gzip
import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

from gpurack.errors import Refused
from gpurack.lab import repository
from gpurack.lab.repository import Key

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("gpg", "gpgv", "apt-ftparchive", "dpkg-deb"))),
    reason="no gpg, apt-ftparchive or dpkg on this machine",
)


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Key:
    folder = tmp_path_factory.mktemp("keys")
    return repository.key("kubernetes", folder / "gnupg", folder / "keys")


@pytest.fixture
def deb(tmp_path: Path) -> Path:
    tree = tmp_path / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN/control").write_text(
        "Package: thing\nVersion: 1-1\nArchitecture: amd64\nMaintainer: nobody <n@example.invalid>\n"
        "Description: a thing\n"
    )
    target = tmp_path / "thing-abc" / "thing_1-1_amd64.deb"
    target.parent.mkdir()
    command = ["dpkg-deb", "--root-owner-group", "-b", str(tree), str(target)]
    subprocess.run(command, check=True, capture_output=True)
    return target


def verify(signer: Key, tmp_path: Path, *files: Path) -> bool:
    """By gpgv with the exported public key, as apt does."""
    ring = tmp_path / "ring.gpg"
    command = ["gpg", "--batch", "--yes", "--dearmor", "--output", str(ring), str(signer.public)]
    subprocess.run(command, check=True)
    words = ["gpgv", "--keyring", str(ring), *map(str, files)]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def listed(release: str) -> dict[str, str]:
    """SHA256 by path, from a Release file."""
    rows = release.split("SHA256:\n", 1)[1].splitlines()
    taken = [row.split() for row in rows if row.startswith(" ") and len(row.split()[0]) == 64]
    return {path: digest for digest, _, path in taken}


def test_the_key_is_exported_in_armour_with_its_fingerprint(signer: Key) -> None:
    assert signer.public.read_text().startswith("-----BEGIN PGP PUBLIC KEY BLOCK-----")
    assert (signer.public.parent / "kubernetes.fingerprint").read_text() == f"{signer.fingerprint}\n"
    assert len(signer.fingerprint) == 40
    shown = subprocess.run(
        ["gpg", "--batch", "--with-colons", "--show-keys", str(signer.public)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert signer.fingerprint in shown


def test_a_key_is_made_once(signer: Key) -> None:
    again = repository.key("kubernetes", signer.home, signer.public.parent)
    assert again == signer


def test_no_agent_outlives_the_signing(signer: Key) -> None:
    found = subprocess.run(["pgrep", "-f", f"gpg-agent.*{signer.home}"], capture_output=True, check=False)
    assert found.stdout == b""


@pytest.mark.parametrize(
    ("layout", "top", "index", "pool"),
    [
        ("flat", ".", "Packages", "amd64"),
        ("dists", "dists/bookworm", "stable/binary-amd64/Packages", "dists/bookworm/pool/stable/amd64"),
    ],
)
def test_layout_index_and_signatures(
    signer: Key, deb: Path, tmp_path: Path, layout: repository.Layout, top: str, index: str, pool: str
) -> None:
    folder = tmp_path / "apt"
    assert repository.publish(folder, [deb], layout, signer)
    base = folder / top
    assert verify(signer, tmp_path, base / "InRelease")
    assert verify(signer, tmp_path, base / "Release.gpg", base / "Release")
    packages = (base / index).read_bytes()
    assert gzip.decompress((base / f"{index}.gz").read_bytes()) == packages
    assert f"Filename: {pool}/{deb.name}\n" in packages.decode()
    assert (folder / pool / deb.name).read_bytes() == deb.read_bytes()
    known = listed((base / "Release").read_text())
    assert known[index] == hashlib.sha256(packages).hexdigest()


def test_a_changed_file_no_longer_verifies(signer: Key, deb: Path, tmp_path: Path) -> None:
    folder = tmp_path / "apt"
    repository.publish(folder, [deb], "flat", signer)
    release = folder / "InRelease"
    release.write_text(release.read_text().replace("gpurack lab", "gpurack Lab", 1))
    assert not verify(signer, tmp_path, release)


def test_publishing_the_same_again_touches_nothing(signer: Key, deb: Path, tmp_path: Path) -> None:
    folder = tmp_path / "apt"
    repository.publish(folder, [deb], "flat", signer)
    before = {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.rglob("*")}
    assert not repository.publish(folder, [deb], "flat", signer)
    assert {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.rglob("*")} == before


def test_what_a_killed_run_left_is_cleared(signer: Key, deb: Path, tmp_path: Path) -> None:
    (tmp_path / ".apt.new" / "junk").mkdir(parents=True)
    (tmp_path / ".apt.old").mkdir()
    repository.publish(tmp_path / "apt", [deb], "flat", signer)
    left = sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".apt"))
    assert left == []


def test_an_end_of_validity_is_signed_with_the_rest(signer: Key, deb: Path, tmp_path: Path) -> None:
    until = "Mon, 01 Jan 2024 00:00:00 UTC"
    repository.publish(tmp_path / "apt", [deb], "flat", signer, valid_until=until)
    assert f"Valid-Until: {until}" in (tmp_path / "apt" / "InRelease").read_text().splitlines()
    assert verify(signer, tmp_path, tmp_path / "apt" / "InRelease")


def test_a_missing_tool_is_named_with_its_package(
    signer: Key, deb: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Refused) as caught:
        repository.publish(tmp_path / "apt", [deb], "flat", signer)
    (problem,) = caught.value.problems
    assert (problem.code, problem.next) == ("E-LAB-21", "apt-get install apt-utils gnupg")
