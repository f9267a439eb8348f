"""What the boot guard is for: without it a Static node does not come back from a reboot (R9, R10)."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpurack.decide.kubelet import boot
from gpurack.lab import rack, vm
from tests.lab import harness

pytestmark = [pytest.mark.lab, pytest.mark.vm]

HOST = "gpu-3"


def run(site: Path, *flags: str) -> harness.Ran:
    return harness.pyinfra(f"inventories/{site.stem}", "deploys/gpu_node.py", "--limit", HOST, *flags).ok()


def test_without_the_guard_kubelet_stays_down_and_the_next_run_names_drift_and_repairs_it(
    joined_rack: Path,
) -> None:
    harness.ssh(HOST, f"rm {boot.UNIT} && systemctl daemon-reload", site=joined_rack).ok()
    try:
        harness.gpurack("lab", "reboot", HOST, "--memory", "1984,2048").ok()
    finally:
        vm.configure(rack.find(HOST)[0])  # its next boot has the usual memory again

    def loops() -> bool:
        restarts = harness.ssh(HOST, "systemctl show kubelet -p NRestarts --value", site=joined_rack).ok().out
        return int(restarts) > 2

    harness.until(loops, f"kubelet of {HOST} loops", deadline=120)
    told = harness.ssh(HOST, "journalctl -b -u kubelet --no-pager", site=joined_rack).ok().out
    assert harness.STATE_REFUSED in told
    # Each start posts a status before it fails, so that the Node can stay Ready for as long as kubelet loops;
    # a Ready node is live, and nothing above class none is done to it.
    harness.ssh(HOST, "systemctl stop kubelet", site=joined_rack).ok()
    harness.until(lambda: not harness.ready(joined_rack)[HOST], f"{HOST} is not Ready", deadline=120)
    guarded = f"test -e {boot.UNIT}"
    assert harness.ssh(HOST, guarded, site=joined_rack).rc != 0

    repaired = run(joined_rack)

    assert "memory state drift after reboot" in repaired.text
    assert harness.ready(joined_rack)[HOST]
    harness.ssh(HOST, guarded, site=joined_rack).ok()
    assert harness.changed(run(joined_rack, "--json")) == {}
