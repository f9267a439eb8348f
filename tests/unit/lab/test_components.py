"""Recipes, their hashes, and what a build leaves behind."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gpurack import defaults
from gpurack.errors import Refused
from gpurack.lab import components
from gpurack.lab.recipes import RECIPES, CRecipe, GoRecipe

KUBERNETES = next(recipe for recipe in RECIPES if recipe.name == "kubernetes")
PAUSE = next(recipe for recipe in RECIPES if recipe.name == "pause")

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler on this machine")


class Lines(list[str]):
    def __call__(self, line: str) -> None:
        self.append(line)


# Kept as published, shortened: only exact v0.0.0 stands for a part of Kubernetes itself.
GO_MOD = """module k8s.io/kubernetes

go 1.24.0

require (
	github.com/vishvananda/netlink v1.3.1-0.20250303224720-0e7078ed04c8
	k8s.io/api v0.0.0
	k8s.io/apiextensions-apiserver v0.0.0 // indirect
	k8s.io/gengo/v2 v2.0.0-20250604051438-85fd79dbfd9f
	k8s.io/klog/v2 v2.130.1
	k8s.io/kube-openapi v0.0.0-20250710124328-f3f2b991d03b
	k8s.io/kubelet v0.0.0
	k8s.io/utils v0.0.0-20250604170112-4c0f3b243397
	sigs.k8s.io/yaml v1.6.0
)

replace k8s.io/api => ./staging/src/k8s.io/api
"""


def test_staging_takes_only_lines_that_end_in_exactly_v0_0_0() -> None:
    assert components.staging(GO_MOD) == ("k8s.io/api", "k8s.io/apiextensions-apiserver", "k8s.io/kubelet")


@pytest.mark.parametrize(
    ("package", "module", "made"),
    [
        ("k8s.io/kubernetes/cmd/kubelet", "kubernetes", "kubelet"),
        ("go.etcd.io/etcd/server/v3", "etcd", "server"),
        ("github.com/coredns/coredns", "coredns", "coredns"),
        (".", "gpusim", "gpusim"),
        ("example.test/v2x", "x", "v2x"),
    ],
)
def test_the_name_that_go_build_gives_a_binary(package: str, module: str, made: str) -> None:
    assert components._made_name(package, module) == made


def test_no_binary_comes_from_two_recipes() -> None:
    names = [name for recipe in RECIPES for name in recipe.binaries]
    assert sorted(names) == sorted(set(names)) == sorted(components.everything())


def test_a_recipe_is_found_by_its_binary_and_an_unknown_name_is_an_error() -> None:
    assert components.recipe_of("kube-proxy") is KUBERNETES
    with pytest.raises(KeyError):
        components.recipe_of("kube-prox")


@pytest.mark.parametrize(
    "change",
    [
        {"version": "1.34.5"},
        {"binaries": {"kubelet": "k8s.io/kubernetes/cmd/kubelet"}},
        {"require": {"k8s.io/kubernetes": "v1.34.5"}},
        {"staging": ("k8s.io/kubernetes", "v0.34.5")},
        {"ldflags": ("-s",)},
        {"tags": ("providerless",)},
        {"cgo": True},
    ],
)
def test_whatever_changes_the_content_changes_the_hash(change: dict[str, object]) -> None:
    assert isinstance(KUBERNETES, GoRecipe)
    assert components.digest(replace(KUBERNETES, **change)) != components.digest(KUBERNETES)


def test_our_own_source_is_part_of_the_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(components.HERE / "pause", tmp_path / "pause")
    monkeypatch.setattr(components, "HERE", tmp_path)
    before = components.digest(PAUSE)
    source = tmp_path / "pause" / "pause.c"
    source.write_text(source.read_text() + "\n")
    assert components.digest(PAUSE) != before


def test_kubernetes_is_stamped_with_its_version_for_kubeadm() -> None:
    assert isinstance(KUBERNETES, GoRecipe)
    assert f"-X k8s.io/component-base/version.gitVersion=v{KUBERNETES.version}" in KUBERNETES.ldflags
    assert f"-X k8s.io/client-go/pkg/version.gitVersion=v{KUBERNETES.version}" in KUBERNETES.ldflags


@needs_gcc
def test_a_component_is_built_once(tmp_path: Path) -> None:
    said = Lines()
    first = components.ensure(["pause"], said, tmp_path)["pause"]
    made = first.stat()
    assert said == ["building pause 3.10.1 (1 of 1)"]
    assert components.missing(["pause"], tmp_path) == ()
    again = components.ensure(["pause"], said, tmp_path)["pause"]
    assert (again, again.stat().st_ino, again.stat().st_mtime_ns) == (first, made.st_ino, made.st_mtime_ns)
    assert len(said) == 1
    assert stat.S_IMODE(made.st_mode) & 0o111
    assert list((tmp_path / "work").iterdir()) == []


@needs_gcc
def test_pause_exits_when_given_an_argument_and_ends_on_term(tmp_path: Path) -> None:
    pause = components.ensure(["pause"], Lines(), tmp_path)["pause"]
    assert subprocess.run([pause, "-v"], timeout=5, check=False).returncode == 0
    with subprocess.Popen([pause]) as child:
        time.sleep(0.2)
        assert child.poll() is None
        child.send_signal(signal.SIGTERM)
        assert child.wait(timeout=5) == 0


@needs_gcc
def test_the_probe_shows_the_kernels_view_and_can_fail(tmp_path: Path) -> None:
    probe = components.ensure(["probe"], Lines(), tmp_path)["probe"]
    environment = {"GPURACK_SIMULATED_GPUS": "GPU-simulated-2"}
    done = subprocess.run([probe, "status"], env=environment, capture_output=True, text=True, check=True)
    shown = done.stdout.splitlines()
    own = Path("/proc/self/status").read_text().splitlines()
    assert next(line for line in own if "Cpus_allowed_list" in line) in shown
    assert "Simulated_gpus:\tGPU-simulated-2" in shown
    assert subprocess.run([probe, "false"], check=False).returncode == 1


@needs_gcc
def test_a_build_that_fails_says_why_and_leaves_no_component(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here" / "pause").mkdir(parents=True)
    (tmp_path / "here" / "pause" / "pause.c").write_text("int main(void) { return nothing; }\n")
    monkeypatch.setattr(components, "HERE", tmp_path / "here")
    with pytest.raises(Refused) as caught:
        components.ensure(["pause"], Lines(), tmp_path / "cache")
    (problem,) = caught.value.problems
    assert problem.code == "E-LAB-23"
    assert "nothing" in (problem.found or "")
    assert [path.name for path in (tmp_path / "cache" / "components").iterdir()] == [".pause.lock"]


def test_a_missing_compiler_is_named_with_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Refused) as caught:
        components.ensure(["pause"], Lines(), tmp_path)
    (problem,) = caught.value.problems
    assert (problem.code, problem.next) == ("E-LAB-21", "apt-get install gcc")


def test_too_little_disk_is_refused_before_anything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(defaults, "LAB_BUILD_FLOOR", 2**60)
    said = Lines()
    with pytest.raises(Refused) as caught:
        components.ensure(["pause"], said, tmp_path)
    (problem,) = caught.value.problems
    assert problem.code == "E-LAB-22"
    assert str(tmp_path) in problem.what
    assert said == []


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        ("go version go1.26.8 linux/amd64", (1, 26)),
        ("go version go1.9 linux/amd64", (1, 9)),
        ("go version devel go1.25-abcdef linux/amd64", (1, 25)),
        ("command not understood", (0, 0)),
    ],
)
def test_the_version_of_a_go_command(tmp_path: Path, answer: str, version: tuple[int, int]) -> None:
    go = tmp_path / "go"
    go.write_text(f"#!/bin/sh\necho '{answer}'\n")
    go.chmod(0o755)
    assert components.go_version(str(go)) == version


def test_an_old_go_is_passed_over_for_the_packed_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    old = tmp_path / "bin" / "go"
    old.write_text("#!/bin/sh\necho go version go1.19.8 linux/amd64\n")
    old.chmod(0o755)
    packed = tmp_path / "toolchain" / "go" / "bin" / "go"
    packed.parent.mkdir(parents=True)
    packed.write_text("#!/bin/sh\n")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin{os.pathsep}/usr/bin")
    assert components.go_command(tmp_path, Lines()) == str(packed)


def test_a_c_recipe_makes_one_binary_of_its_own_name() -> None:
    assert isinstance(PAUSE, CRecipe)
    assert list(PAUSE.binaries) == ["pause"]
