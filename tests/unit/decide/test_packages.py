"""Exact versions in one transaction; what it may not do is refused before it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from gpurack.decide.apt_messages import Log
from gpurack.decide.decision import Await, Decision, Disruption, Transact
from gpurack.decide.packages import (
    MANAGED,
    Package,
    Packages,
    Simulation,
    expand,
    install,
    judge_simulation,
    judge_update,
    proven,
    transaction,
)
from gpurack.facts.packages import parse_simulation

PINS = {
    "kubelet": "1.34.4-1.1",
    "kubeadm": "1.34.4-1.1",
    "kubectl": "1.34.4-1.1",
    "cri-tools": "1.34.0-1.1",
    "kubernetes-cni": "1.7.1-1.1",
    "containerd.io": "2.2.9-1",
}
FINE = Log(lines=(), result=0)


def packages(versions: Mapping[str, str], *, held: tuple[str, ...] = (), **more: object) -> Packages:
    found = {
        name: Package(name=name, version=version, hold=name in held, state="installed")
        for name, version in versions.items()
    }
    return Packages(found=found, **more)  # type: ignore[arg-type]


def half(found: Packages, name: str, state: str = "half-configured") -> Packages:
    package = Package(name=name, version="1-1", hold=False, state=state)
    return replace(found, found={**found.found, name: package})


def codes(decision: Decision) -> list[str]:
    return [problem.code for problem in decision.refused]


def script(decision: Decision) -> str:
    (step,) = (step for step in decision.steps if isinstance(step, Transact))
    return step.script


def test_pins_are_the_packages_that_are_managed() -> None:
    assert set(PINS) == set(MANAGED)


def test_a_bare_host_waits_for_locks_and_refreshes_first() -> None:
    decision = install(PINS, packages({}))
    assert [type(step) for step in decision.steps] == [Await, Transact]
    assert decision.disruption is Disruption.UNIT_RELOAD
    assert "kubelet 1.34.4-1.1, found none" in decision.reason


def test_a_host_with_everything_does_nothing() -> None:
    assert install(PINS, packages(PINS)).steps == ()


def test_everything_is_installed_in_one_call() -> None:
    text = script(transaction(PINS, packages({})))
    assert text.count("apt-get") == 1
    for name, version in PINS.items():
        assert f"{name}={version}" in text


def test_another_containerd_under_running_pods_is_class_drain() -> None:
    old = packages({**PINS, "containerd.io": "2.2.8-1"})
    assert install(PINS, old).disruption is Disruption.DRAIN
    assert transaction(PINS, old).disruption is Disruption.DRAIN


# ---------------------------------------------------------------------------------------- refusals
O_20 = packages({"containerd": "1.7.12-0ubuntu4", "runc": "1.1.12-0ubuntu3"}, dependants=("docker.io",))


def test_o_20_the_distributions_containerd_is_refused_with_what_depends_on_it() -> None:
    (problem,) = install(PINS, O_20).refused
    assert problem.code == "E-PKG-07"
    for text in ("containerd 1.7.12-0ubuntu4", "runc 1.1.12-0ubuntu3", "docker.io depend on it"):
        assert text in str(problem.found)
    assert "would stop" in str(problem.rule)


def test_o_20_twin_without_them_is_accepted() -> None:
    assert not install(PINS, packages({})).refused


def test_o_20_apt_that_would_remove_something_is_refused() -> None:
    simulated = Simulation(
        available={name: (version,) for name, version in PINS.items()},
        installs={},
        removes=("docker.io",),
        log=FINE,
    )
    assert codes(judge_simulation(PINS, packages({}), simulated)) == ["E-PKG-03"]


@pytest.mark.parametrize(
    ("path", "owner", "refused"),
    [
        ("/usr/local/bin/containerd", None, True),
        ("/usr/bin/containerd", "nerdctl-full", True),
        ("/usr/bin/containerd", "containerd.io", False),
    ],
)
def test_a_second_containerd_is_refused(path: str, owner: str | None, refused: bool) -> None:
    assert (codes(install(PINS, packages({}, binaries={path: owner}))) == ["E-PKG-08"]) is refused


@pytest.mark.parametrize("name", ["kubelet", "kubeadm", "kubectl"])
def test_a_member_never_gets_another_kubernetes_version(name: str) -> None:
    for version in ("1.34.3-1.1", "1.34.4-1.2", "1.35.0-1.1"):
        member = packages({**PINS, name: version}, member=True)
        assert codes(install(PINS, member)) == ["E-PKG-01"]


def test_a_member_that_lacks_a_tool_gets_it() -> None:
    lacking = {name: version for name, version in PINS.items() if name != "kubectl"}
    assert not install(PINS, packages(lacking, member=True)).refused


def test_o_26_a_downgrade_is_refused_on_a_host_that_is_no_member() -> None:
    (problem,) = install(PINS, packages({"kubelet": "1.35.0-1.1"})).refused
    assert (problem.code, problem.found, problem.wanted) == ("E-PKG-06", "1.35.0-1.1", "1.34.4-1.1")
    assert not install(
        PINS, packages({"kubelet": "1.34.10~rc.1-1.1"} | {"kubelet": "1.34.4~rc.1-1.1"})
    ).refused


# ---------------------------------------------------------------------------------------- O-26
def test_o_26_one_version_means_all_companions() -> None:
    assert expand({"nvidia-container-toolkit": "1.17.8-1"}) == {
        "nvidia-container-toolkit": "1.17.8-1",
        "nvidia-container-toolkit-base": "1.17.8-1",
        "libnvidia-container-tools": "1.17.8-1",
        "libnvidia-container1": "1.17.8-1",
    }


def test_o_26_candidates_that_are_newer_do_not_come_in() -> None:
    pins = {"nvidia-container-toolkit": "1.17.8-1"}
    text = script(transaction(pins, packages({})))
    for name in ("nvidia-container-toolkit-base", "libnvidia-container-tools", "libnvidia-container1"):
        assert f"{name}=1.17.8-1" in text
    newer = packages(dict.fromkeys(expand(pins), "1.18.0-1") | pins)
    assert len(proven(pins, FINE, newer).refused) == 3


def test_o_26_a_missing_version_is_reported_per_package() -> None:
    available = {name: (version,) for name, version in PINS.items()} | {
        "kubelet": ("1.34.9-1.1",),
        "kubectl": (),
    }
    simulated = Simulation(available=available, installs={}, removes=(), log=FINE)
    decision = judge_simulation(PINS, packages({}), simulated)
    assert [(p.code, p.what) for p in decision.refused] == [
        ("E-PKG-02", "kubelet 1.34.4-1.1 is in no source"),
        ("E-PKG-02", "kubectl 1.34.4-1.1 is in no source"),
    ]
    assert "1.34.9-1.1" in str(decision.refused[0].found)


# ---------------------------------------------------------------------------------------- O-23, O-27
def test_o_23_only_managed_packages_are_released_and_the_kernels_hold_stays() -> None:
    held = packages(
        {
            "kubelet": "1.34.3-1.1",
            "kubeadm": "1.34.3-1.1",
            "kubectl": "1.34.3-1.1",
            "linux-image-generic": "6.8",
        },
        held=("kubelet", "kubeadm", "kubectl", "linux-image-generic"),
    )
    text = script(transaction(PINS, held))
    (line,) = (line for line in text.splitlines() if line.startswith("apt-mark unhold"))
    assert line == "apt-mark unhold kubelet kubeadm kubectl 2>&1 || status=$?"
    assert "--allow-change-held-packages" not in text


def test_o_23_a_transaction_that_would_change_the_administrators_hold_is_refused() -> None:
    held = packages({"iptables": "1.8.9-2"}, held=("iptables",))
    simulated = Simulation(
        available={name: (version,) for name, version in PINS.items()},
        installs={"iptables": ("1.8.9-2", "1.8.10-3")},
        removes=(),
        log=FINE,
    )
    assert codes(judge_simulation(PINS, held, simulated)) == ["E-PKG-04"]


def test_o_27_somebody_elses_cut_transaction_is_reported() -> None:
    (problem,) = install(PINS, half(packages({}), "postfix")).refused
    assert (problem.code, problem.found) == ("E-PKG-09", "postfix is half-configured")


@pytest.mark.parametrize("state", ["half-configured", "unpacked", "half-installed"])
def test_o_27_a_cut_transaction_of_ours_is_finished(state: str) -> None:
    found = replace(half(half(packages({}), "kubelet", state), "iptables", "unpacked"), cut=True)
    assert not install(PINS, found).refused
    assert "dpkg --force-confdef --force-confold --configure -a" in script(transaction(PINS, found))


def test_o_27_a_package_left_half_configured_is_not_hidden_by_what_comes_next() -> None:
    found = half(packages({k: v for k, v in PINS.items() if k != "containerd.io"}), "containerd.io")
    (problem,) = proven(PINS, FINE, found).refused
    assert "half-configured" in str(problem.found)


def test_a_cut_run_of_ours_is_taken_up_although_every_version_is_there() -> None:
    assert install(PINS, replace(packages(PINS), cut=True)).steps


def test_o_21_an_update_that_ended_well_with_a_failure_in_it_is_refused() -> None:
    log = Log(lines=("W: Failed to fetch http://repo.example.test/x/InRelease  Could not resolve",), result=0)
    assert codes(judge_update(log, ())) == ["E-APT-22"]


def test_dependencies_that_change_are_said() -> None:
    simulated = parse_simulation(
        "".join(f"{n} | {v} | http://repo.example.test Packages\n" for n, v in PINS.items())
        + "gpurack-simulation\n"
        + "Inst libc6 [2.36-9] (2.36-10 Debian:12.4/stable [amd64])\n"
        + "Inst kubelet (1.34.4-1.1 x:1.34/y [amd64])\n"
        + "gpurack-result=0\n"
    )
    decision = judge_simulation(PINS, packages({"libc6": "2.36-9"}), simulated)
    assert decision.notes == ("dependencies change as well: libc6 2.36-9 -> 2.36-10",)
