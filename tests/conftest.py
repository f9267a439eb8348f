"""One rack for all tests: one control plane, two container hosts, one vm with two NUMA nodes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import harness

SITE = harness.REPOSITORY / "inventories" / "lab_vm.yaml"
_ON_THE_RACK = ("tests/lab/", "tests/infra/", "tests/proof/")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--as-is", action="store_true", help="Take the rack as it runs now, instead of making it from bare."
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # "A second run changes nothing", and what every node looks like, is asked of the rack as the two deploys
    # left it; the other tests then break and mend single hosts.
    first = ("test_bare_to_joined", "tests/infra/")
    items.sort(key=lambda item: next((i for i, part in enumerate(first) if part in item.nodeid), len(first)))
    if os.geteuid() == 0:
        return
    for item in items:
        if any(folder in str(item.path) for folder in _ON_THE_RACK):
            item.add_marker(pytest.mark.skip(reason="the lab needs root: sudo make test"))


@pytest.fixture(scope="session")
def bare_rack(request: pytest.FixtureRequest) -> Path:
    """The rack, every host as after its first boot; the site document that describes it."""
    if not request.config.getoption("--as-is"):
        harness.gpurack("lab", "up", "--bare", "--site", SITE, timeout=1200).ok()
    return SITE


@pytest.fixture(scope="session")
def joined_rack(bare_rack: Path, request: pytest.FixtureRequest) -> Path:
    """The rack after both deploys: every node is a Ready member."""
    if not request.config.getoption("--as-is"):
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
