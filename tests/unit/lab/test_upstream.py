"""Packages from a vendor: a local server with the vendors' two layouts, and what must not pass."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from gpurack.errors import Refused
from gpurack.lab import repository, upstream
from gpurack.lab.repository import Key, Layout
from gpurack.lab.servers import Files, Server
from gpurack.lab.upstream import Upstream

needs_tools = pytest.mark.skipif(
    not all(map(shutil.which, ("gpg", "gpgv", "apt-ftparchive", "dpkg-deb"))),
    reason="no gpg, apt-ftparchive or dpkg on this machine",
)

# As pkgs.k8s.io and download.docker.com write them, shortened.
KUBERNETES = """Package: kubelet
Version: 1.34.4-1.1
Architecture: amd64
Filename: amd64/kubelet_1.34.4-1.1_amd64.deb
SHA256: 4f1f4b3d1d4f4b3d1d4f4b3d1d4f4b3d1d4f4b3d1d4f4b3d1d4f4b3d1d4f4b3d
Description: Node agent for Kubernetes clusters
 Node agent for Kubernetes clusters.

Package: kubelet
Version: 1.34.4-1.1
Architecture: arm64
Filename: arm64/kubelet_1.34.4-1.1_arm64.deb
SHA256: 5f1f4b3d1d4f4b3d1d4f4b3d1d4f4b3d1d4f4b3d1d4f4b3d1d4f4b3d1d4f4b3d
"""


def test_an_index_gives_our_architecture() -> None:
    (entry,) = upstream.parse_index(KUBERNETES)
    assert (entry.name, entry.version) == ("kubelet", "1.34.4-1.1")
    assert entry.filename == "amd64/kubelet_1.34.4-1.1_amd64.deb"
    assert entry.sha256.startswith("4f1f")


@pytest.mark.parametrize("field", ["Version", "Filename", "SHA256"])
def test_an_index_that_lacks_what_apt_needs_is_an_error(field: str) -> None:
    rows = [row for row in KUBERNETES.splitlines() if not row.startswith(f"{field}:")]
    with pytest.raises(ValueError, match=field.lower()):
        upstream.parse_index("\n".join(rows))


def test_an_empty_index_offers_nothing() -> None:
    assert upstream.parse_index("") == ()


def test_only_sha256_sums_of_a_release_file_count() -> None:
    text = (
        f"Origin: x\nMD5Sum:\n {'a' * 32} 10 Packages\nSHA256:\n {'b' * 64}  10 Packages\n"
        f" {'c' * 63} 10 short\nSHA512:\n {'d' * 64} 10 Packages.gz\n"
    )
    assert upstream.checksums(text) == {"Packages": "b" * 64}


# ------------------------------------------------------------------------------- against a real server
@dataclass(frozen=True, slots=True, kw_only=True)
class Vendor:
    www: Path
    source: Upstream
    ours: tuple[Path, ...]
    theirs: tuple[Path, ...]
    key: Key


def deb(folder: Path, name: str, version: str, content: str) -> Path:
    tree = folder / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "from").write_text(content)
    (tree / "DEBIAN/control").write_text(
        f"Package: {name}\nVersion: {version}\nArchitecture: amd64\n"
        "Maintainer: nobody <nobody@example.invalid>\nDescription: a thing\n"
    )
    target = folder / f"{name}_{version}_amd64.deb"
    command = ["dpkg-deb", "--root-owner-group", "-b", str(tree), str(target)]
    subprocess.run(command, check=True, capture_output=True)
    return target


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Key]:
    folder = tmp_path_factory.mktemp("keys")
    return {name: repository.key(name, folder / "gnupg", folder / "keys") for name in ("vendor", "other")}


@pytest.fixture(params=["flat", "dists"])
def vendor(
    request: pytest.FixtureRequest, keys: dict[str, Key], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Vendor]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    layout: Layout = request.param
    for name in ("ours", "theirs", "www"):
        (tmp_path / name).mkdir()
    ours = tuple(deb(tmp_path / "ours", "kubelet", version, "ours") for version in ("1-1.1", "1-1.2"))
    theirs = (deb(tmp_path / "theirs", "kubelet", "1-1.1", "theirs"),)
    repository.publish(tmp_path / "www" / "apt", theirs, layout, keys["vendor"])
    server = Server(("127.0.0.1", 0), partial(Files, directory=str(tmp_path / "www")))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield Vendor(
        www=tmp_path / "www" / "apt",
        source=Upstream(
            uri=f"http://127.0.0.1:{server.server_address[1]}/apt",
            suite="/" if layout == "flat" else "bookworm",
            component="" if layout == "flat" else "stable",
            key=keys["vendor"].public,
        ),
        ours=ours,
        theirs=theirs,
        key=keys["vendor"],
    )
    server.shutdown()
    server.server_close()


def silent(_: str) -> None:
    return


@needs_tools
def test_the_vendors_package_takes_the_place_of_the_same_version(vendor: Vendor, tmp_path: Path) -> None:
    said: list[str] = []
    first, second = upstream.replace(vendor.ours, vendor.source, said.append, tmp_path / "cache")
    assert first.read_bytes() == vendor.theirs[0].read_bytes() != vendor.ours[0].read_bytes()
    assert first.name == vendor.ours[0].name
    assert second == vendor.ours[1]  # the vendor has no such revision
    assert len(said) == 1
    assert upstream.replace(vendor.ours, vendor.source, said.append, tmp_path / "cache") == (first, second)
    assert len(said) == 1  # fetched once


@needs_tools
def test_a_repository_signed_by_another_key_is_refused(
    vendor: Vendor, keys: dict[str, Key], tmp_path: Path
) -> None:
    other = replace(vendor.source, key=keys["other"].public)
    with pytest.raises(Refused) as caught:
        upstream.replace(vendor.ours, other, silent, tmp_path / "cache")
    assert caught.value.problems[0].code == "E-LAB-31"


@needs_tools
def test_text_around_the_signature_is_not_believed(vendor: Vendor, tmp_path: Path) -> None:
    (release,) = vendor.www.rglob("InRelease")
    release.write_text(f"SHA256:\n {'0' * 64} 1 {vendor.source.index}\n" + release.read_text())
    first, _ = upstream.replace(vendor.ours, vendor.source, silent, tmp_path / "cache")
    assert first.read_bytes() == vendor.theirs[0].read_bytes()


@needs_tools
@pytest.mark.parametrize("pattern", ["Packages", "*.deb", "InRelease"])
def test_a_changed_byte_anywhere_is_refused(vendor: Vendor, tmp_path: Path, pattern: str) -> None:
    (path,) = vendor.www.rglob(pattern)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(Refused) as caught:
        upstream.replace(vendor.ours, vendor.source, silent, tmp_path / "cache")
    assert caught.value.problems[0].code == "E-LAB-31"
    assert not list((tmp_path / "cache").rglob("*.deb"))


@needs_tools
def test_a_repository_that_is_not_there_changes_nothing_and_is_said(vendor: Vendor, tmp_path: Path) -> None:
    said: list[str] = []
    gone = replace(vendor.source, uri=f"{vendor.source.uri}-gone")
    assert upstream.replace(vendor.ours, gone, said.append, tmp_path / "cache") == vendor.ours
    assert len(said) == 1
    assert "404" in said[0]


@needs_tools
def test_a_package_that_is_listed_but_missing_changes_nothing(vendor: Vendor, tmp_path: Path) -> None:
    (path,) = vendor.www.rglob("*.deb")
    path.unlink()
    assert upstream.replace(vendor.ours, vendor.source, silent, tmp_path / "cache") == vendor.ours
