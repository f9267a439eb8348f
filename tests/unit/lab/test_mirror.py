"""What the mirror decides before anything is started."""

from __future__ import annotations

from pathlib import Path

from gpurack.lab import mirror


def test_a_vendor_is_asked_only_when_a_person_gave_its_key(tmp_path: Path) -> None:
    assert mirror.vendors(tmp_path) == {}
    key = tmp_path / "vendor-keys" / "kubernetes.asc"
    key.parent.mkdir()
    key.write_text("-----BEGIN PGP PUBLIC KEY BLOCK-----\n")
    found = mirror.vendors(tmp_path)
    assert list(found) == ["kubernetes"]
    assert found["kubernetes"].key == key
    assert found["kubernetes"].top.endswith("core:/stable:/v1.34/deb")


def test_release_and_index_of_both_layouts_lie_where_the_vendors_put_them(tmp_path: Path) -> None:
    (tmp_path / "vendor-keys").mkdir()
    for name in ("kubernetes", "containerd"):
        (tmp_path / "vendor-keys" / f"{name}.asc").touch()
    found = mirror.vendors(tmp_path)
    assert found["kubernetes"].index == "Packages"
    assert found["containerd"].top.endswith("/linux/debian/dists/bookworm")
    assert found["containerd"].index == "stable/binary-amd64/Packages"


def test_the_rack_finds_the_mirror_where_the_contract_says() -> None:
    assert mirror.RACK.registry == "10.77.0.2:5000"
    assert mirror.RACK.keys == Path("/var/lib/gpurack/lab/mirror/keys")
    assert {"docker-registry", "skopeo", "apt-utils", "gnupg", "gcc"} <= set(mirror.DEBIAN_PACKAGES)
