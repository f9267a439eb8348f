"""SIGKILL of the controller at the other moments of the table; a guest whose power fails under dpkg."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import harness, kill_cases, killing
from tests.lab.kill_cases import Moment

GUEST = "gpu-3"


@pytest.fixture(scope="module")
def used_up_rack(joined_rack: Path) -> Iterator[Path]:
    """The rack; made from bare again when the last test has given its control plane another life."""
    yield joined_rack
    harness.gpurack("lab", "up", "--bare", "--site", joined_rack, timeout=1200).ok()
    for deploy in ("control_plane", "gpu_node"):
        harness.pyinfra(kill_cases.INVENTORY, f"deploys/{deploy}.py", timeout=1500).ok()


@pytest.mark.lab
@pytest.mark.vm
def test_after_a_power_cut_in_the_middle_of_dpkg_the_same_command_converges(used_up_rack: Path) -> None:
    site = used_up_rack
    kill_cases.bare(GUEST, site=site)
    run = killing.Controller(kill_cases.INVENTORY, "deploys/gpu_node.py", "--limit", GUEST)
    half = 'until [ -n "$(dpkg --audit)" ]; do sleep 0.1; done'
    harness.ssh(GUEST, half, site=site, timeout=600).ok()

    harness.gpurack("lab", "reboot", GUEST, "--cut", timeout=600).ok()

    assert run.ends(within=120) == 1
    assert not run.says("Traceback")
    left = harness.ssh(GUEST, "dpkg --audit; ls /var/lib/dpkg/updates", site=site).ok().out
    assert left.strip(), "the cut left no half package: nothing is proven"
    kill_cases.assert_converges(GUEST, "gpu_node", site=site)


@pytest.mark.lab
@pytest.mark.parametrize("moment", kill_cases.OTHERS, ids=lambda moment: moment.name)
def test_after_a_kill_the_same_command_converges_and_nothing_is_left(
    used_up_rack: Path, moment: Moment
) -> None:
    kill_cases.kill(moment, site=used_up_rack)
    kill_cases.assert_converges(moment.host, moment.deploy, site=used_up_rack)
