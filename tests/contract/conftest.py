"""The rack of the contract tests; without root or sshd they are skipped."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.trio import Trio


@pytest.fixture(scope="session")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    if os.geteuid() or not Path("/usr/sbin/sshd").exists() or not shutil.which("unshare"):
        pytest.skip("needs root, sshd and unshare")
    trio = Trio(tmp_path_factory.mktemp("rack"))
    try:
        trio.start()
        yield trio
    finally:
        trio.stop()


@pytest.fixture
def trio(started: Trio) -> Trio:
    started.clean()
    return started
