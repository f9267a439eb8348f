"""The rack of the contract tests; without root or sshd they are skipped."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.rack import Rack


@pytest.fixture(scope="session")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rack]:
    if os.geteuid() or not Path("/usr/sbin/sshd").exists() or not shutil.which("unshare"):
        pytest.skip("needs root, sshd and unshare")
    rack = Rack(tmp_path_factory.mktemp("rack"))
    try:
        rack.start()
        yield rack
    finally:
        rack.stop()


@pytest.fixture
def rack(started: Rack) -> Rack:
    started.clean()
    return started
