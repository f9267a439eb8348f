"""One rack for all lab tests: one control plane, two container hosts, one vm with two NUMA nodes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import harness

SITE = harness.REPOSITORY / "inventories" / "lab_vm.yaml"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/lab/" in str(item.path) and os.geteuid() != 0:
            item.add_marker(pytest.mark.skip(reason="the lab needs root: sudo make test"))


@pytest.fixture(scope="session")
def bare_rack() -> Path:
    """The rack, every host as after its first boot; the site document that describes it."""
    harness.gpurack("lab", "up", "--bare", "--site", SITE, timeout=1200).ok()
    return SITE


@pytest.fixture(scope="session")
def joined_rack(bare_rack: Path) -> Path:
    """The rack after both deploys: every node is a Ready member."""
    harness.pyinfra("inventories/lab_vm", "deploys/control_plane.py").ok()
    harness.pyinfra("inventories/lab_vm", "deploys/gpu_node.py", timeout=1500).ok()
    return bare_rack


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    if report.failed and "rack" in " ".join(getattr(item, "fixturenames", ())):
        try:
            for host, lines in harness.journals(SITE):
                report.sections.append((f"journal of {host}", lines))
        except (subprocess.SubprocessError, OSError, KeyError) as error:
            report.sections.append(("journals", f"not readable: {error}"))
    return report
