"""O-19: one containerd per host, the one behind kubelet's socket."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpurack.decide.containerd.candidates import notes_of, problems_of
from gpurack.decide.containerd.models import Binary, Daemon, Snapshot
from tests.unit.decide.containerd.found import snapshot

O_19 = replace(
    snapshot(),
    binaries=(
        Binary(path="/usr/bin/containerd", version=(1, 7, 27), owner="containerd.io"),
        Binary(path="/opt/k8s/bin/containerd", version=(2, 0, 5)),
    ),
    units={"containerd.service": "/usr/bin/containerd", "node-agent.service": "/opt/k8s/bin/containerd"},
    daemons=(
        *snapshot().daemons,
        Daemon(pid=9, exe="/opt/k8s/bin/containerd", sockets=("/run/node-agent/containerd.sock",)),
    ),
)


def codes(found: Snapshot) -> list[str]:
    return [problem.code for problem in problems_of(found)]


def test_o_19_a_kubelet_on_the_socket_of_another_containerd_is_refused_and_both_are_listed() -> None:
    found = replace(O_19, kubelet_endpoint="unix:///run/node-agent/containerd.sock")
    (problem,) = problems_of(found)
    assert problem.code == "E-CTRD-11"
    for part in (
        "/usr/bin/containerd v1.7.27 unit containerd.service socket /run/containerd/containerd.sock",
        "/opt/k8s/bin/containerd v2.0.5 unit node-agent.service socket /run/node-agent/containerd.sock",
    ):
        assert part in str(problem.found)


def test_o_19_without_a_kubelet_two_candidates_are_refused_and_listed() -> None:
    (problem,) = problems_of(O_19)
    assert problem.code == "E-CTRD-10"
    assert "/opt/k8s/bin/containerd v2.0.5" in str(problem.found)
    assert "package containerd.io" in str(problem.found)


def test_o_19_with_kubelet_on_ours_the_other_one_is_left_alone_and_said() -> None:
    found = replace(O_19, kubelet_endpoint="unix:///run/containerd/containerd.sock")
    assert codes(found) == []
    assert "/opt/k8s/bin/containerd is left alone" in notes_of(found)[0]


@pytest.mark.parametrize("where", ["binaries", "daemons", "units"])
def test_a_second_one_is_seen_as_a_program_as_a_process_and_as_a_unit(where: str) -> None:
    one = {
        "binaries": (*snapshot().binaries, Binary(path="/usr/local/bin/containerd")),
        "daemons": (*snapshot().daemons, Daemon(pid=9, exe="/usr/local/bin/containerd")),
        "units": {**snapshot().units, "x.service": "/usr/local/bin/containerd"},
    }[where]
    assert codes(replace(snapshot(), **{where: one})) == ["E-CTRD-10"]


def test_a_lone_tarball_counts_because_the_package_would_make_it_two() -> None:
    assert codes(Snapshot(binaries=(Binary(path="/usr/local/bin/containerd"),))) == ["E-CTRD-10"]


def test_one_containerd_or_none_is_fine() -> None:
    assert codes(snapshot()) == []
    assert codes(Snapshot()) == []


@pytest.mark.parametrize(
    "arguments", [("containerd", "--config", "/etc/other.toml"), ("containerd", "--config=/etc/other.toml")]
)
def test_a_root_file_somewhere_else_is_refused_because_our_edits_would_not_be_read(
    arguments: tuple[str, ...],
) -> None:
    (daemon,) = snapshot().daemons
    assert codes(replace(snapshot(), daemons=(replace(daemon, arguments=arguments),))) == ["E-CTRD-10"]


def test_naming_the_usual_root_file_is_fine() -> None:
    (daemon,) = snapshot().daemons
    arguments = ("containerd", "-c", "/etc/containerd/config.toml")
    assert codes(replace(snapshot(), daemons=(replace(daemon, arguments=arguments),))) == []


def test_a_socket_under_var_run_is_the_same_socket() -> None:
    found = replace(snapshot(), kubelet_endpoint="unix:///var/run/containerd/containerd.sock")
    assert codes(found) == []
