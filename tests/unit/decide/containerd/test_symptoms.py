"""From a message to its cause: O-16 and O-86."""

from __future__ import annotations

import pytest

from gpurack.decide.containerd.models import Binary, Snapshot
from gpurack.decide.containerd.symptoms import explain
from tests.unit.decide.containerd.found import files, snapshot

UNKNOWN_SERVICE = "rpc error: code = Unimplemented desc = unknown service runtime.v1.RuntimeService"
DISABLED = files(root='version = 3\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n')
OLD = (Binary(path="/usr/bin/containerd", version=(1, 5, 9)),)


@pytest.mark.parametrize(
    ("found", "cause"),
    [
        (snapshot(DISABLED), "/etc/containerd/config.toml disables the CRI plugin"),
        (snapshot(DISABLED, binaries=OLD), "/etc/containerd/config.toml disables the CRI plugin"),
        (snapshot(binaries=OLD), "containerd 1.5.9 is too old to serve CRI v1"),
        (snapshot(), "the CRI plugin did not load"),
    ],
)
def test_o_16_unknown_service_is_mapped_to_its_cause(found: Snapshot, cause: str) -> None:
    problem = explain(UNKNOWN_SERVICE, found)
    assert (problem.what, problem.found) == (cause, UNKNOWN_SERVICE)
    assert problem.next


def test_o_16_the_line_that_disables_cri_is_named() -> None:
    where = explain(UNKNOWN_SERVICE, snapshot(DISABLED)).where
    assert where is not None
    assert where.line == 2


def test_o_86_the_pods_error_is_mapped_to_the_missing_type() -> None:
    said = "failed to create containerd container: container.Runtime.Name must be set: invalid argument"
    assert explain(said, snapshot()).what == "a runtime has no runtime_type"


def test_silence_is_not_success() -> None:
    assert explain("", snapshot()).found == "no answer on /run/containerd/containerd.sock"
