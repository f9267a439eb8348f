"""The rack that is watched while it is provisioned: made once, for all that look at what was seen."""

from __future__ import annotations

import secrets

import pytest

from tests.lab import watched_rack
from tests.lab.watched import Watched


@pytest.fixture(scope="session")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    folder = tmp_path_factory.mktemp("watched")
    given = {
        # Signs that a shell, JSON, a URL and Python each write in their own way.
        "SUDO": f"Pa'ss\"$w%rd-{secrets.token_hex(6)}",
        "PROXY_USER": "gate",
        "PROXY_PASSWORD": f"pr0xy-{secrets.token_hex(6)}",
    }
    done = watched_rack.watch(folder, given)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return Watched(folder)
