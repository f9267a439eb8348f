"""kubelet's resource managers on the rack: the guide by hand, and a reboot with moved memory totals."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpurack.decide.kubelet import boot
from gpurack.decide.kubelet.snapshot import CONFIG, DROP_IN_DIR, EXTRA_ARGS, MEMORY_STATE
from tests.lab import harness

pytestmark = pytest.mark.lab

# The guide's step as printed, run twice after a join by hand.
GUIDE = f"""\
set -e
systemctl stop kubelet
rm -rf {DROP_IN_DIR} {boot.UNIT} {boot.GUARD} {boot.STORED}
printf 'KUBELET_EXTRA_ARGS=\\n' > {EXTRA_ARGS}
systemctl daemon-reload
for time in first second; do tee -a {CONFIG} > /dev/null << 'EOF'
cpuManagerPolicy: static
topologyManagerPolicy: single-numa-node
topologyManagerScope: pod
memoryManagerPolicy: Static
reservedMemory:
- numaNode: 0
  limits:
    memory: 4Gi
EOF
done
rm -f /var/lib/kubelet/cpu_manager_state /var/lib/kubelet/memory_manager_state
systemctl start kubelet
"""
LOOPING = "systemctl show kubelet -p NRestarts --value | grep -qv '^[01]$'"


def deploy(host: str, site: Path) -> harness.Ran:
    return harness.pyinfra(f"inventories/{site.stem}", "deploys/gpu_node.py", "--limit", host)


def lost(host: str, site: Path) -> bool:
    """Neither Ready nor up: what the guide leaves, and what a Static node is after an unguarded reboot."""
    return not harness.ready(site)[host] and harness.ssh(host, LOOPING, site=site).rc == 0


def test_the_guides_numa_step_by_hand_is_recognised_repaired_and_named(joined_rack: Path) -> None:
    config = harness.ssh("gpu-2", f"cat {CONFIG}", site=joined_rack).ok().out
    harness.ssh("gpu-2", GUIDE, site=joined_rack).ok()
    harness.until(lambda: lost("gpu-2", joined_rack), "kubelet of gpu-2 loops", deadline=180, every=5)

    repaired = deploy("gpu-2", joined_rack).ok()

    assert "keys appended by hand (cpuManagerPolicy, topologyManagerPolicy" in repaired.text
    assert harness.ssh("gpu-2", f"cat {CONFIG}", site=joined_rack).ok().out == config
    assert harness.ready(joined_rack)["gpu-2"]
    before = harness.footprint("gpu-2", site=joined_rack)
    deploy("gpu-2", joined_rack).ok()
    assert harness.footprint("gpu-2", site=joined_rack) == before


@pytest.mark.vm
def test_a_static_node_comes_back_from_a_reboot_with_moved_totals_and_not_without_the_guard(
    joined_rack: Path,
) -> None:
    def reboot(memory: str) -> None:
        harness.gpurack("lab", "reboot", "gpu-3", "--memory", memory).ok()

    def state() -> str:
        return harness.ssh("gpu-3", f"cat {MEMORY_STATE}", site=joined_rack).out

    before = state()
    reboot("2048,1920")
    harness.until(
        lambda: harness.ready(joined_rack)["gpu-3"] and state() not in ("", before),
        "gpu-3 is Ready with a new memory state",
        deadline=240,
        every=5,
    )

    harness.ssh("gpu-3", f"rm {boot.UNIT}; systemctl daemon-reload", site=joined_rack).ok()
    reboot("2048,2048")
    harness.until(lambda: lost("gpu-3", joined_rack), "kubelet of gpu-3 loops", deadline=240, every=5)
    assert "memory state drift after reboot" in deploy("gpu-3", joined_rack).ok().text
    assert harness.ready(joined_rack)["gpu-3"]
