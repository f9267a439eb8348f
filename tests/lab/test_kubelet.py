"""kubelet's resource managers on the rack: the guide's step by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpurack.decide.kubelet import boot
from gpurack.decide.kubelet.snapshot import CONFIG, DROP_IN_DIR, EXTRA_ARGS
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


def deploy(host: str, site: Path) -> harness.Ran:
    return harness.pyinfra(f"inventories/{site.stem}", "deploys/gpu_node.py", "--limit", host)


def test_the_guides_numa_step_by_hand_is_recognised_repaired_and_named(joined_rack: Path) -> None:
    config = harness.ssh("gpu-2", f"cat {CONFIG}", site=joined_rack).ok().out
    harness.ssh("gpu-2", GUIDE, site=joined_rack).ok()
    harness.until(
        lambda: harness.lost("gpu-2", site=joined_rack), "kubelet of gpu-2 loops", deadline=180, every=5
    )

    repaired = deploy("gpu-2", joined_rack).ok()

    assert "keys appended by hand (cpuManagerPolicy, topologyManagerPolicy" in repaired.text
    assert harness.ssh("gpu-2", f"cat {CONFIG}", site=joined_rack).ok().out == config
    assert harness.ready(joined_rack)["gpu-2"]
    before = harness.footprint("gpu-2", site=joined_rack)
    deploy("gpu-2", joined_rack).ok()
    assert harness.footprint("gpu-2", site=joined_rack) == before
