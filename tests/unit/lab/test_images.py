"""Image layouts: readable by their own digests, the same for the same input."""

from __future__ import annotations

import gzip
import hashlib
import json
import tarfile
from pathlib import Path

import pytest

from gpurack.lab import images, recipes
from gpurack.lab.images import IMAGES, Image

IMAGE = Image(
    name="gpurack-lab/thing",
    tag="1",
    files={"/usr/local/bin/thing": "thing"},
    entrypoint=("/usr/local/bin/thing",),
    links={"/usr/sbin/other": "thing"},
)


@pytest.fixture
def binaries(tmp_path: Path) -> dict[str, Path]:
    path = tmp_path / "thing-1-abc" / "thing"
    path.parent.mkdir()
    path.write_bytes(b"\x7fELF thing")
    return {"thing": path}


def content(layout: Path, descriptor: dict[str, object]) -> bytes:
    """A blob, checked against its descriptor."""
    digest = str(descriptor["digest"]).removeprefix("sha256:")
    data = (layout / "blobs/sha256" / digest).read_bytes()
    assert hashlib.sha256(data).hexdigest() == digest
    assert len(data) == descriptor["size"]
    return data


def test_every_part_is_found_by_its_digest(binaries: dict[str, Path], tmp_path: Path) -> None:
    layout = tmp_path / "layout"
    images._write(IMAGE, binaries, layout, tmp_path)
    index = json.loads((layout / "index.json").read_text())
    manifest = json.loads(content(layout, index["manifests"][0]))
    config = json.loads(content(layout, manifest["config"]))
    layer = gzip.decompress(content(layout, manifest["layers"][0]))
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
    assert config["config"]["Entrypoint"] == ["/usr/local/bin/thing"]
    assert images.manifest_digest(layout) == index["manifests"][0]["digest"]
    assert len(list((layout / "blobs/sha256").iterdir())) == 3


def test_files_links_and_a_tmp_for_everybody(binaries: dict[str, Path], tmp_path: Path) -> None:
    images._tar(IMAGE, tmp_path / "none", binaries, tmp_path / "layer.tar")
    with tarfile.open(tmp_path / "layer.tar") as tar:
        thing, other, tmp = (tar.getmember(n) for n in ("usr/local/bin/thing", "usr/sbin/other", "tmp"))
        assert (thing.mode, thing.uid, thing.mtime) == (0o755, 0, 0)
        assert (other.issym(), other.linkname) == (True, "thing")
        assert (tmp.isdir(), tmp.mode) == (True, 0o1777)


def test_documentation_and_configuration_of_packages_stay_out(
    binaries: dict[str, Path], tmp_path: Path
) -> None:
    root = tmp_path / "root"
    for name in ("usr/share/doc/x/copyright", "etc/alternatives/x", "usr/lib/x.so"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
    images._tar(IMAGE, root, binaries, tmp_path / "layer.tar")
    with tarfile.open(tmp_path / "layer.tar") as tar:
        names = tar.getnames()
    assert "usr/lib/x.so" in names
    assert not [name for name in names if name.startswith(("usr/share", "etc"))]


def test_the_same_input_gives_the_same_digest(binaries: dict[str, Path], tmp_path: Path) -> None:
    for name in ("one", "two"):
        images._write(IMAGE, binaries, tmp_path / name, tmp_path)
    assert images.manifest_digest(tmp_path / "one") == images.manifest_digest(tmp_path / "two")


def test_another_build_of_a_binary_is_another_layout(binaries: dict[str, Path], tmp_path: Path) -> None:
    before = images._digest(IMAGE, binaries)
    assert images._digest(IMAGE, {"thing": tmp_path / "thing-1-def" / "thing"}) != before


def test_what_the_registry_has_is_read_from_its_storage(tmp_path: Path) -> None:
    assert images.stored(tmp_path, IMAGE) is None
    tags = tmp_path / "docker/registry/v2/repositories/gpurack-lab/thing/_manifests/tags"
    link = tags / "1/current/link"
    link.parent.mkdir(parents=True)
    link.write_text("sha256:abc")
    assert images.stored(tmp_path, IMAGE) == "sha256:abc"


def test_names_are_those_that_kubeadm_asks_for() -> None:
    references = {image.reference for image in IMAGES}
    assert {
        "pause:3.10.1",
        "etcd:3.6.5-0",
        "coredns/coredns:v1.12.1",
        f"kube-apiserver:v{recipes.KUBERNETES}",
        f"kube-controller-manager:v{recipes.KUBERNETES}",
        f"kube-scheduler:v{recipes.KUBERNETES}",
        f"kube-proxy:v{recipes.KUBERNETES}",
    } <= references
    assert "gpurack-lab/probe:1" in references
