"""The debs: what the vendors' layout promises, read back with dpkg-deb from small stand-ins."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from gpurack.lab import components, packages
from gpurack.lab.packages import PACKAGES

pytestmark = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="no dpkg on this machine")


def field(deb: Path, name: str) -> str:
    return subprocess.run(
        ["dpkg-deb", "--field", str(deb), name], capture_output=True, text=True, check=True
    ).stdout.strip()


def unpack(deb: Path, target: Path) -> Path:
    subprocess.run(["dpkg-deb", "-R", str(deb), str(target)], check=True)
    return target


@pytest.fixture
def debs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Every package, with scripts of one line in place of the binaries; by file name."""
    binaries = {}
    for name in {name for package in PACKAGES for name in package.binaries}:
        path = tmp_path / "components" / f"{components.recipe_of(name).name}-0-abc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
        binaries[name] = path
    monkeypatch.setattr(components, "ensure", lambda *_: binaries)
    made = packages.build(lambda _: None, tmp_path)
    return {path.name: path for paths in made.values() for path in paths}


def test_two_revisions_of_each_package_in_the_repository_of_its_vendor(debs: dict[str, Path]) -> None:
    assert sorted(debs) == [
        "containerd.io_2.2.9-1_amd64.deb",
        "containerd.io_2.2.9-2_amd64.deb",
        "cri-tools_1.34.0-1.1_amd64.deb",
        "cri-tools_1.34.0-1.2_amd64.deb",
        "kubeadm_1.34.4-1.1_amd64.deb",
        "kubeadm_1.34.4-1.2_amd64.deb",
        "kubectl_1.34.4-1.1_amd64.deb",
        "kubectl_1.34.4-1.2_amd64.deb",
        "kubelet_1.34.4-1.1_amd64.deb",
        "kubelet_1.34.4-1.2_amd64.deb",
        "kubernetes-cni_1.7.1-1.1_amd64.deb",
        "kubernetes-cni_1.7.1-1.2_amd64.deb",
    ]


def test_kubelet_pulls_cni_plugins_and_kubeadm_pulls_nothing(debs: dict[str, Path]) -> None:
    depends = field(debs["kubelet_1.34.4-1.1_amd64.deb"], "Depends")
    assert "kubernetes-cni (>= 1.2.0)" in depends
    assert "cri-tools" not in depends
    assert field(debs["kubeadm_1.34.4-1.1_amd64.deb"], "Depends") == ""


def test_kubelet_layout_and_conffile(debs: dict[str, Path], tmp_path: Path) -> None:
    tree = unpack(debs["kubelet_1.34.4-1.1_amd64.deb"], tmp_path / "tree")
    assert (tree / "usr/bin/kubelet").is_file()
    assert (tree / "usr/lib/systemd/system/kubelet.service").is_file()
    assert (tree / "DEBIAN/conffiles").read_text() == "/etc/default/kubelet\n"
    assert (tree / "etc/default/kubelet").read_text() == "KUBELET_EXTRA_ARGS=\n"


def test_the_drop_in_of_kubeadm_lies_under_usr_lib_in_its_own_package(
    debs: dict[str, Path], tmp_path: Path
) -> None:
    tree = unpack(debs["kubeadm_1.34.4-1.1_amd64.deb"], tmp_path / "tree")
    text = (tree / "usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf").read_text()
    assert "EnvironmentFile=-/etc/default/kubelet" in text.splitlines()
    assert text.rstrip().endswith("$KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS")


def test_kubelet_scripts_enable_but_never_start_or_restart(debs: dict[str, Path], tmp_path: Path) -> None:
    tree = unpack(debs["kubelet_1.34.4-1.1_amd64.deb"], tmp_path / "tree")
    scripts = "".join(path.read_text() for path in (tree / "DEBIAN").glob("p*"))
    code = "\n".join(line for line in scripts.splitlines() if not line.startswith("#"))
    assert "systemctl preset kubelet.service" in code
    assert "restart" not in code
    assert "systemctl start" not in code


def test_containerd_is_packaged_with_cri_off_and_restarts_on_upgrade(
    debs: dict[str, Path], tmp_path: Path
) -> None:
    tree = unpack(debs["containerd.io_2.2.9-1_amd64.deb"], tmp_path / "tree")
    assert 'disabled_plugins = ["cri"]' in (tree / "etc/containerd/config.toml").read_text().splitlines()
    assert (tree / "DEBIAN/conffiles").read_text() == "/etc/containerd/config.toml\n"
    assert "_dh_action=restart" in (tree / "DEBIAN/postinst").read_text()
    assert field(debs["containerd.io_2.2.9-1_amd64.deb"], "Conflicts") == "containerd, runc"
    assert {path.name for path in (tree / "usr/bin").iterdir()} == {
        "containerd",
        "containerd-shim-runc-v2",
        "ctr",
        "runc",
    }


def test_a_later_revision_brings_a_changed_conffile(debs: dict[str, Path], tmp_path: Path) -> None:
    first = unpack(debs["containerd.io_2.2.9-1_amd64.deb"], tmp_path / "first")
    second = unpack(debs["containerd.io_2.2.9-2_amd64.deb"], tmp_path / "second")
    changed = (second / "etc/containerd/config.toml").read_text()
    assert changed.startswith((first / "etc/containerd/config.toml").read_text())
    assert changed != (first / "etc/containerd/config.toml").read_text()


def test_maintainer_scripts_are_plain_shell(debs: dict[str, Path], tmp_path: Path) -> None:
    for name, deb in debs.items():
        tree = unpack(deb, tmp_path / name)
        for script in (tree / "DEBIAN").glob("p*"):
            assert subprocess.run(["sh", "-n", str(script)], check=False).returncode == 0


def test_the_same_input_gives_the_same_bytes(debs: dict[str, Path], tmp_path: Path) -> None:
    before = {name: deb.read_bytes() for name, deb in debs.items()}
    shutil.rmtree(tmp_path / "packages")
    again = packages.build(lambda _: None, tmp_path)
    assert {path.name: path.read_bytes() for paths in again.values() for path in paths} == before


def test_a_package_that_is_there_is_not_packed_again(debs: dict[str, Path], tmp_path: Path) -> None:
    said: list[str] = []
    packages.build(said.append, tmp_path)
    assert said == []
    assert len(debs) == 12
