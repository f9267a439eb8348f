"""What gpurack believes about kubelet's configuration files, held against the real program of the lab.

No rack is needed, and nothing is started: the main file carries a mistake that kubelet names after it has
merged everything, so its one error line says what else it accepted.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpurack.decide.kubelet.config import drop_in, effective, parse_document, render
from gpurack.decide.numa import Reservation
from gpurack.lab import components
from gpurack.site.models import NumaPolicy, Reserved

pytestmark = pytest.mark.lab

KIND = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
STOP = "maxPods (--max-pods) -5 must not be a negative number"


@pytest.fixture(scope="session")
def kubelet() -> Path:
    return components.ensure(["kubelet"], print)["kubelet"]


def said(kubelet: Path, folder: Path, base: str, **drop_ins: str) -> str:
    """What kubelet dies of, with `base` as its main file and `drop_ins` beside it."""
    (folder / "conf.d").mkdir(exist_ok=True)
    (folder / "config.yaml").write_text(KIND + "maxPods: -5\n" + base)
    for name, text in drop_ins.items():
        (folder / "conf.d" / f"{name}.conf").write_text(text)
    argv = [kubelet, "--config", folder / "config.yaml", "--config-dir", folder / "conf.d"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    return done.stdout + done.stderr


def test_our_drop_in_is_accepted_over_a_base_full_of_options(kubelet: Path, tmp_path: Path) -> None:
    base = 'cpuManagerPolicy: static\ncpuManagerPolicyOptions: {align-by-socket: "true"}\n'
    policy = NumaPolicy(
        cpu="static",
        cpu_options={"full-pcpus-only": "true"},
        memory="Static",
        topology="single-numa-node",
        scope="pod",
        reserved=Reserved(cpus="0"),
    )
    reservation = Reservation(cpus=frozenset({0}), memory={0: 100 * 2**20})
    ours = drop_in(policy, reservation, effective([parse_document(base)]))
    text = said(kubelet, tmp_path, base, ours=render(ours))
    assert f"error: invalid configuration: {STOP}" in text


def test_null_in_a_drop_in_removes_a_key_and_a_key_of_a_map(kubelet: Path, tmp_path: Path) -> None:
    base = (
        "topologyManagerScope: Pod\nshutdownGracePeriod: 30s\nfeatureGates: {GracefulNodeShutdown: false}\n"
    )
    before = said(kubelet, tmp_path, base, ours=KIND)
    assert "topologyManagerScope" in before
    assert "requires feature gate GracefulNodeShutdown" in before
    after = said(
        kubelet,
        tmp_path,
        base,
        ours=KIND + "topologyManagerScope: null\nfeatureGates: {GracefulNodeShutdown: null}\n",
    )
    assert f"error: invalid configuration: {STOP}" in after


def test_a_key_given_twice_is_fatal_in_a_drop_in_and_lenient_in_the_main_file(
    kubelet: Path, tmp_path: Path
) -> None:
    twice = "registryBurst: 5\nregistryBurst: 6\n"
    assert STOP in said(kubelet, tmp_path, twice)
    assert "strict decoding error" in said(kubelet, tmp_path, "", ours=KIND + twice)


def test_a_drop_in_without_kind_is_fatal_and_a_misspelt_key_is_not(kubelet: Path, tmp_path: Path) -> None:
    assert "failed to load kubelet dropin file" in said(
        kubelet, tmp_path, "", ours="cpuManagerPolicy: none\n"
    )
    assert STOP in said(kubelet, tmp_path, "", ours=KIND + 'reservedSystemCPU: "0"\n')


def test_a_missing_drop_in_directory_is_fatal(kubelet: Path, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(KIND + "maxPods: -5\n")
    argv = [kubelet, "--config", tmp_path / "config.yaml", "--config-dir", tmp_path / "gone"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert "failed to walk through kubelet dropin directory" in done.stdout + done.stderr
