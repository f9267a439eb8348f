"""Holds of ours are set, holds of others stay; kubelet waits for the join."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpurack.decide.decision import Run, Unit
from gpurack.decide.holds import hold, kernels, kubelet_waits
from gpurack.decide.packages import MANAGED, Kubelet, Package, Packages


def packages(*names: str, held: tuple[str, ...] = (), kubelet: Kubelet | None = None) -> Packages:
    found = {n: Package(name=n, version="1-1", hold=n in held, state="installed") for n in (*names, *held)}
    return Packages(found=found, kubelet=kubelet or Kubelet())


def test_what_is_installed_and_not_held_is_held() -> None:
    decision = hold(MANAGED, packages("kubelet", held=("kubeadm",)))
    (run,) = (step for step in decision.steps if isinstance(step, Run))
    assert run.script == "apt-mark hold kubelet"
    assert not hold(MANAGED, packages(held=("kubelet", "kubeadm"))).steps


def test_o_23_the_administrators_hold_is_reported_and_left_alone() -> None:
    decision = hold(MANAGED, packages(held=("kubelet", "postgresql")))
    assert decision.steps == ()
    assert decision.notes == ("held by the administrator, left alone: postgresql",)


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        ("linux-image-generic", True),
        ("linux-generic", True),
        ("linux-headers-generic", True),
        ("linux-generic-hwe-22.04", True),
        ("linux-image-nvidia-64k-hwe-24.04", True),
        ("linux-image-amd64", True),
        ("linux-image-cloud-amd64", True),
        ("linux-image-6.8.0-88-generic", False),
        ("linux-libc-dev", False),
        ("linux-base", False),
        ("linux-firmware", False),
    ],
)
def test_kernel_metapackages_are_known_by_name_not_run_on_ubuntu(name: str, kernel: bool) -> None:
    assert kernels(packages(name)) == ((name,) if kernel else ())


def verbs(found: Packages) -> list[str]:
    return [step.verb for step in kubelet_waits(found).steps if isinstance(step, Unit)]


@pytest.mark.parametrize(
    ("enabled", "active", "wanted"),
    [
        ("enabled", "inactive", []),
        ("disabled", "inactive", ["enable"]),
        ("enabled", "activating", ["stop"]),
        ("masked", "inactive", ["unmask", "enable"]),
        ("disabled", "active", ["stop", "enable"]),
    ],
)
def test_kubelet_is_enabled_and_does_not_run_before_the_join(
    enabled: str, active: str, wanted: list[str]
) -> None:
    assert verbs(packages("kubelet", kubelet=Kubelet(enabled=enabled, active=active))) == wanted


def test_a_joined_or_joining_kubelet_is_left_alone() -> None:
    running = packages("kubelet", kubelet=Kubelet(enabled="enabled", active="active"))
    assert verbs(replace(running, member=True)) == []
    assert verbs(replace(running, kubelet=replace(running.kubelet, configured=True))) == []
    assert verbs(packages()) == []
